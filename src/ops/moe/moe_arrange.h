// Host side of moe_arrange.cuh.
#pragma once

#include "src/ops/moe/moe_arrange.cuh"
#include "src/ops/moe/moe_plan.h"

namespace tenor::cuda {

/// A plan's slots; `counts` [chunks, experts + 1] is memory that the launches share.
struct ArrangeSpace {
  moe::Slots slots;
  Tensor counts;
  explicit ArrangeSpace(const moe::RoutingPlan::State& plan);
};

/// What is left once the chunks are counted: the prefix sums and the rows.
void arrange_counted(const char* op, const moe::Slots& slots, Device device);

}  // namespace tenor::cuda
