// The gated delta rule's CPU kernels, over all cores. Problems are checked; their sequences are in on_cpu.
#pragma once

#include "src/ops/gated_delta/gated_delta_problem.h"

namespace tenor::cpu {

/// Step by step, a block of value columns a task.
void delta_recurrent(const delta::Problem& problem);
/// chunk steps at once, likewise.
void delta_chunked(const delta::Problem& problem);

}  // namespace tenor::cpu
