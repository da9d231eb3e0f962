// A sequence of a call, as the CPU's kernels take it.
#pragma once

#include <cstdint>

namespace tenor::delta {

/// Steps [begin, begin + length) of row `batch`.
struct Sequence {
  int64_t batch, begin, length;
  int64_t slot;  ///< its place in the states that are read and written; -1: skipped
  bool fresh;    ///< starts from zeros
};

}  // namespace tenor::delta
