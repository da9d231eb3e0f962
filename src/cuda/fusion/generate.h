// Text of a fused kernel, and what it is launched with. The text depends on the program's steps and dtypes, on how many
// dims there are and which strides are 0 or 1; sizes, strides, scalars and addresses are parameters, so that one
// compiled kernel serves many shapes.
#pragma once

#include <string>
#include <vector>

#include "src/cuda/fusion/walk.h"

namespace tenor::cuda {

struct FusedKernel {
  std::string text;
  std::vector<char> parameters;   ///< the kernel's one parameter, all but its pointers
  std::vector<WalkArray> arrays;  ///< whose pointers come first in it
  std::vector<size_t> flags;      ///< where it has the pointers to the flag of bad entries, in bytes
  /// Memory for what thread blocks that share a row give, as many bytes, of which the first `counters` start as 0;
  /// `scratch_at`: where the parameter has its address.
  size_t scratch = 0, counters = 0, scratch_at = 0;
  int64_t blocks = 1;
  int threads = 1;
  std::string layout;  ///< one line for people: "vectors of 8", "rows of 8192 held by 8 warps"
};

/// What a kernel that spilled registers is written again with.
struct FusedOptions {
  int most_width = 8;  ///< neighbouring elements a thread
  bool hold = true;    ///< rows stay in registers between passes where they fit
};

/// Why the program cannot be one kernel on CUDA; empty where it can.
std::string why_not_fused(const fusion::Program& program);

/// Bytes of the parameter of its kernel.
size_t parameter_bytes(const fusion::Program& program);

/// The kernel of a program that why_not_fused() has nothing against.
FusedKernel generate_kernel(const fusion::Program& program, const FusedOptions& options = {});

}  // namespace tenor::cuda
