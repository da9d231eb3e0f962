// What elementwise operators ask of a device beside bytes and FLOPs.
#pragma once

#include "src/core/step.h"
#include "src/ops/elementwise/elementwise_ops.h"

namespace tenor::elementwise {

/// Of `count` elements computed in that dtype.
core::Work work_of(Op op, DType compute, int64_t count);

}  // namespace tenor::elementwise
