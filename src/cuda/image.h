// Images [N, C, D, H, W] as kernels take them.
#pragma once

#include "src/cuda/vector.cuh"
#include "tenor/tensor.h"

namespace tenor::cuda {

/// Strides count elements. Images of two dims have depth 1.
struct StridedImage {
  const void* data;
  int64_t n, c, d, h, w;
};
inline StridedImage image_of(const Tensor& x) {
  return {x.raw(), x.stride(0), x.stride(1), x.stride(2), x.stride(3), x.stride(4)};
}

/// Whether x can be accessed in pieces of `width` elements along `dim`, whose stride is 1, at every place of the other
/// dims.
inline bool fits_vectors(const Tensor& x, int dim, int width) {
  const size_t item = item_size(x.dtype());
  const int bytes = width * static_cast<int>(item);
  if (x.stride(dim) != 1 || x.shape(dim) % width != 0 || !is_aligned(x.raw(), 0, item, bytes)) return false;
  for (int d = 0; d < x.ndim(); ++d)
    if (d != dim && x.shape(d) > 1 && !is_aligned(nullptr, x.stride(d), item, bytes)) return false;
  return true;
}

}  // namespace tenor::cuda
