// The plan of a fusing compiler: which steps become one kernel, and why others do not.
//
// Chains of view, elementwise and reduction steps share a kernel, and everything else has its own. lower() has the last
// word on what a kernel can express, so that explain() shows what fuse() runs. A kernel with a reduction works row by
// row: what follows the reduction may join where it stays within the row, and where the row stays on the chip.
#pragma once

#include <string>
#include <vector>

#include "src/fusion/graph.h"
#include "src/fusion/program.h"

namespace tenor::fusion {

/// Arrays in memory that one kernel reads and writes at most.
inline constexpr int kMaxArrays = 24;
/// Steps of one kernel at most.
inline constexpr int kMaxSteps = 256;
/// A row up to this many bytes stays on the chip (a core's cache, a cluster's shared memory) between its reduction and
/// what follows; a longer one is read again by a kernel of its own.
inline constexpr int64_t kRowBytes = int64_t{1} << 19;

struct PlannedKernel {
  std::vector<int> steps = {};  ///< in order, views included
  int64_t bytes_read = 0, bytes_written = 0;
};

/// A result that passes from one kernel to another through memory.
struct PlannedCut {
  int before, after;  ///< the step that makes it, a step that reads it
  std::string reason;
};

struct Plan {
  std::vector<PlannedKernel> kernels = {};  ///< in an order in which they can run
  std::vector<PlannedCut> cuts = {};
  std::vector<int> intermediates = {};  ///< steps whose result reaches memory, outputs excluded
  int64_t bytes_needed = 0, bytes_moved = 0;
};

/// What a step reads and writes when it runs on its own.
struct StepBytes {
  int64_t read = 0, written = 0;
};
StepBytes bytes_of(const Node& node);

/// Why a device cannot run that program as one kernel; empty where it can. What it declines is not merged, so that the
/// steps around find other company.
using Decline = std::string (*)(const Program&);

/// `decline`: of the device that the plan is for; null: everything that a program expresses runs. `fast`: contractions
/// may take epilogues.
Plan make_plan(const Graph& graph, Decline decline = nullptr, bool fast = false);

}  // namespace tenor::fusion
