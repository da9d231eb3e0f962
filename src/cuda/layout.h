// Collapsed layouts: the fewest dims that describe how several tensors walk through memory together.
#pragma once

#include <cstdint>

#include "tenor/dims.h"

namespace tenor::cuda {

inline constexpr int kMaxDims = 12;  // after merging; more is refused by collapse()

/// Division of 0 <= n < 2^31 by a constant d, 1 <= d < 2^31, as a product and a shift (Granlund and Montgomery, 1994).
struct Divider {
  uint32_t divisor = 1, magic = 1;
  int shift = 0;
};
Divider make_divider(int64_t d);

/// The strides of N tensors over one shape, outermost first, dims of size 1 dropped and dense neighbours merged. A 0-d or
/// one-element shape has ndim 0 and count 1.
template <int N>
struct Layout {
  int ndim = 0;
  int64_t count = 1;
  int64_t size[kMaxDims];
  int64_t stride[N][kMaxDims];
  Divider divider[kMaxDims];  ///< of the sizes, where count < 2^31

  /// Whether tensor t is one run of elements, each once.
  bool is_dense(int t) const { return ndim == 0 || (ndim == 1 && stride[t][0] == 1); }
  /// Whether tensor t is one element for all places.
  bool is_single(int t) const { return ndim == 0 || (ndim == 1 && stride[t][0] == 0); }
};

/// Fills a layout of n tensors; `stride` points to n rows of kMaxDims. The dims stand in the order of tensor `lead`'s strides,
/// widest first, so that neighbouring threads touch neighbouring elements of it; unsorted for lead < 0.
/// @throws UnsupportedError when more than kMaxDims remain.
void collapse_into(const char* op, const Dims& shape, const Dims* strides, int n, int lead, int& ndim, int64_t& count,
                   int64_t* size, int64_t (*stride)[kMaxDims], Divider* divider);

template <int N>
Layout<N> collapse(const char* op, const Dims& shape, const Dims (&strides)[N], int lead) {
  Layout<N> out;
  collapse_into(op, shape, strides, N, lead, out.ndim, out.count, out.size, out.stride, out.divider);
  return out;
}

/// The layout less one of its dims, which is not empty.
template <int N>
Layout<N> without(const Layout<N>& layout, int dim) {
  Layout<N> out;
  for (int d = 0; d < layout.ndim; ++d) {
    if (d == dim) continue;
    out.size[out.ndim] = layout.size[d];
    out.count *= layout.size[d];
    for (int t = 0; t < N; ++t) out.stride[t][out.ndim] = layout.stride[t][d];
    ++out.ndim;
  }
  for (int d = 0; d < out.ndim && out.count <= INT32_MAX; ++d) out.divider[d] = make_divider(out.size[d]);
  return out;
}

#ifdef __CUDACC__
__device__ __forceinline__ uint32_t divide(uint32_t n, const Divider& d) { return (__umulhi(n, d.magic) + n) >> d.shift; }

/// Offsets of element i (row-major over the layout's dims) in each tensor.
template <int N>
__device__ __forceinline__ void offsets(const Layout<N>& layout, int64_t i, int64_t (&at)[N]) {
  if (layout.ndim <= 1) {
#pragma unroll
    for (int t = 0; t < N; ++t) at[t] = layout.ndim == 0 ? 0 : i * layout.stride[t][0];
    return;
  }
#pragma unroll
  for (int t = 0; t < N; ++t) at[t] = 0;
  const bool narrow = layout.count <= INT32_MAX;
  for (int d = layout.ndim - 1; d >= 0; --d) {
    const int64_t next = d == 0 ? 0 : narrow ? divide(static_cast<uint32_t>(i), layout.divider[d]) : i / layout.size[d];
    const int64_t along = i - next * layout.size[d];
#pragma unroll
    for (int t = 0; t < N; ++t) at[t] += along * layout.stride[t][d];
    i = next;
  }
}
#endif

}  // namespace tenor::cuda
