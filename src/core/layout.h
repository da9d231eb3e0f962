// Questions about memory layout: overlap, extents.
#pragma once

#include "tenor/tensor.h"

namespace tenor::core {

/// The most dims of a tensor that a caller sees.
inline constexpr int kMaxDims = 64;

/// The bytes [first, last) that a tensor's elements span; empty for an empty tensor.
struct Extent {
  const char* first;
  const char* last;
};
Extent extent(const Tensor& x);

/// Whether two tensors' spans of memory meet.
bool spans_overlap(const Tensor& a, const Tensor& b);
/// Whether both show the same elements in the same order: then an elementwise kernel may write one over the other.
bool same_elements(const Tensor& a, const Tensor& b);
/// Whether two index tuples of x name one address.
bool has_internal_overlap(const Tensor& x);

/// Strides that show x at that shape: 0 where x is repeated. The shapes are known to broadcast.
Dims broadcast_strides(const Tensor& x, const Dims& shape);
/// Dense strides of `shape` in the dimension order of `like`'s strides when `like` has that rank and is dense or
/// permuted dense; row-major otherwise. The contract's "result strides".
Dims result_strides(const Dims& shape, const Tensor& like);
/// `dims` of x, those of larger strides in a result of x's shape (result_strides) first: the order in which floats
/// meet.
Dims in_memory_order(const Tensor& x, Dims dims);

}  // namespace tenor::core
