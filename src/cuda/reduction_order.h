// The reduction order of CUDA: in which order every float reduction on a GPU adds (or multiplies) its elements, eager
// or fused. It depends on the number of elements alone: not on the layout class (rows, columns, general), the dtype,
// the alignment, the rows beside, nor on how the work was split, so a row has the same bits alone and in any batch.
//
// The elements that meet in one output form a sequence: row-major over the reduced dims in the order that they would
// have in memory in a result of x's shape (core::result_strides; the logical order of any x that is not transposed). It
// is cut into blocks of kOrderBlock. In a block, element i goes to leaf i % kOrderLanes; a leaf starts from the
// identity and takes its (at most four) elements in order. All leaves, block after block, then meet in one tree of
// neighbours: 0 with 1, 2 with 3, then those two, and so on; a leaf without a neighbour passes up as it is. Any aligned
// power of two of leaves is a subtree, so threads, warps and blocks may each take one: a warp reads a block as four
// rows of 16-byte vectors; a thread walks down a column four rows, 256 apart, at a time.
//
// The error of a float32 sum is that of about 4 + log2(n / 4) additions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/core/reduction_order.h"

namespace tenor::cuda {

inline constexpr int64_t kOrderLanes = 256;
inline constexpr int kOrderChain = 4;  ///< elements of a leaf
inline constexpr int64_t kOrderBlock = kOrderLanes * kOrderChain;

/// The order itself, one element at a time: what the kernels are tested against. `at(i)` gives element i. A counter
/// that carries (core::BlockCounter) is the tree of neighbours.
template <class T, class At, class Combine>
T ordered_reduce(int64_t count, T identity, At at, Combine combine) {
  core::BlockCounter<T> tree;
  for (int64_t start = 0; start < count; start += kOrderBlock) {
    const int64_t end = std::min(start + kOrderBlock, count);
    for (int64_t first = start; first < std::min(start + kOrderLanes, end); ++first) {
      T leaf = identity;
      for (int64_t i = first; i < end; i += kOrderLanes) leaf = combine(leaf, at(i));
      tree.push(leaf, combine);
    }
  }
  return tree.finish(identity, combine);
}

}  // namespace tenor::cuda
