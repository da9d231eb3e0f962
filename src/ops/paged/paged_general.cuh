// The splits of the plain kernels of paged attention.
#pragma once

#include "src/ops/paged/paged_launch.h"

namespace tenor::cuda::paged {

/// A row's: numbers [first, last), parts of what it sees where a number is asked for, else places of the sequence.
struct GeneralSplits {
  int first, last;
  int length, begin;
  Range seen;
  /// Of number n.
  __device__ __forceinline__ Range keys(int n) const {
    return {max(seen.begin, begin + n * length), min(seen.end, begin + (n + 1) * length)};
  }
};
__device__ __forceinline__ GeneralSplits general_splits(const General& p, int row) {
  const Range seen = visible(p, row);
  if (seen.begin >= seen.end) return {0, 0, 1, 0, {0, 0}};
  if (p.most_splits == 1) return {0, 1, seen.end - seen.begin, seen.begin, seen};
  const int length = split_length(own_keys(p, row), p.asked);
  return {seen.begin / length, (seen.end + length - 1) / length, length, 0, seen};
}

}  // namespace tenor::cuda::paged
