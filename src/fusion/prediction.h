// What a planned kernel is expected to take, beside the floor that it cannot pass.
#pragma once

#include "src/fusion/cpu_table.h"
#include "src/fusion/planner.h"
#include "src/fusion/target.h"

namespace tenor::fusion {

/// What the kernel takes from tables: nothing on devices other than the CPU.
TablePlan tables_of(const PlannedKernel& kernel, const Graph& graph, const Target& target);

/// Seconds from the call to the end: what starts a kernel, its bytes, and on the CPU the passes of its program through
/// the first cache, which `floor_seconds` leaves out. Within 1.5 of the measured for kernels of more than a megabyte
/// that memory bounds (bench/predictions.py).
double predicted_seconds(const PlannedKernel& kernel, const Graph& graph, const Target& target, double floor_seconds);

}  // namespace tenor::fusion
