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

/// The strides of N tensors over one shape, outermost first, dims of size 1 dropped and dense neighbours merged. A 0-d
/// or one-element shape has ndim 0 and count 1.
template <int N>
struct Layout {
  int ndim = 0;
  int64_t count = 1;
  int64_t size[kMaxDims];
  int64_t stride[N][kMaxDims];
  Divider divider[kMaxDims];  ///< of the sizes, where 0 < count < 2^31

  /// Whether tensor t is one run of elements, each once.
  bool is_dense(int t) const { return ndim == 0 || (ndim == 1 && stride[t][0] == 1); }
  /// Whether tensor t is one element for all places.
  bool is_single(int t) const { return ndim == 0 || (ndim == 1 && stride[t][0] == 0); }
};

/// Fills a layout of n tensors; `stride` points to n rows of kMaxDims. The dims stand in the order of tensor `lead`'s
/// strides, widest first, so that neighbouring threads touch neighbouring elements of it; unsorted for lead < 0.
/// @throws UnsupportedError when more than kMaxDims remain.
void collapse_into(const char* op, const Dims& shape, const Dims* strides, int n, int lead, int& ndim, int64_t& count,
                   int64_t* size, int64_t (*stride)[kMaxDims], Divider* divider);

template <int N>
Layout<N> collapse(const char* op, const Dims& shape, const Dims (&strides)[N], int lead) {
  Layout<N> out;
  collapse_into(op, shape, strides, N, lead, out.ndim, out.count, out.size, out.stride, out.divider);
  return out;
}

/// Sets the dividers to the sizes as they stand. Whoever changes a size or the count calls it: a smaller count can
/// bring a walk below 2^31, where kernels divide by every dim's divider, also those of dims that did not change.
template <int N>
void set_dividers(Layout<N>& layout) {
  if (layout.count <= 0 || layout.count > INT32_MAX) return;
  for (int d = 0; d < layout.ndim; ++d) layout.divider[d] = make_divider(layout.size[d]);
}

/// Turns the innermost dim into groups of n elements, the last of which may have fewer.
template <int N>
void group_innermost(Layout<N>& layout, int64_t n) {
  const int last = layout.ndim - 1;
  const int64_t groups = (layout.size[last] + n - 1) / n;
  if (layout.count > 0) layout.count = layout.count / layout.size[last] * groups;
  layout.size[last] = groups;
  for (auto& stride : layout.stride) stride[last] *= n;
  set_dividers(layout);
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
  set_dividers(out);
  return out;
}

/// How blocks lie over a walk of units along the innermost dim. Where rows are long a block stays in one: the place of
/// a row is found once, not once a unit.
template <int N>
struct RowBlocks {
  bool linear = false;          ///< a block's units lie evenly; else anywhere
  bool plane = false;           ///< not so, but the walk has two dims and fewer than 2^31 units
  bool several = false;         ///< dims outside of the rows: `rows` says where a row begins, else its stride
  int64_t row_units = 0;        ///< units of the innermost dim; 0 where blocks do not follow rows
  Divider row_blocks;           ///< blocks a row
  int64_t row_stride[N] = {};   ///< from row to row
  int64_t unit_stride[N] = {};  ///< from unit to unit
  Layout<N> rows;               ///< the other dims
};
/// The blocks of a walk, `a_block` units each; lays them along rows where those are long enough.
template <int N>
int64_t lay_blocks(const Layout<N>& layout, int64_t a_block, RowBlocks<N>& out) {
  const int last = layout.ndim - 1;
  const int64_t row = last < 1 ? 0 : layout.size[last], row_blocks = (row + a_block - 1) / a_block;
  // At least three quarters of a row's last block work.
  const bool by_rows = row > 0 && 4 * row >= 3 * row_blocks * a_block && layout.count / row * row_blocks <= INT32_MAX;
  out.linear = by_rows || last < 1;
  out.plane = !out.linear && last == 1 && layout.count <= INT32_MAX;
  for (int t = 0; t < N && last >= 0; ++t) out.unit_stride[t] = layout.stride[t][last];
  if (!by_rows) return (layout.count + a_block - 1) / a_block;
  out.row_units = row;
  out.row_blocks = make_divider(row_blocks);
  out.rows = without(layout, last);
  out.several = out.rows.ndim > 1;
  for (int t = 0; t < N && out.rows.ndim == 1; ++t) out.row_stride[t] = out.rows.stride[t][0];
  return out.rows.count * row_blocks;
}

#ifdef __CUDACC__
__device__ __forceinline__ uint32_t divide(uint32_t n, const Divider& d) {
  return (__umulhi(n, d.magic) + n) >> d.shift;
}

/// The offset of element i in tensor t. One copy of it a module: inlined, its divisions would be most of a kernel.
template <int N>
__device__ __noinline__ int64_t offset_of(const Layout<N>& layout, int t, int64_t i) {
  const bool narrow = layout.count <= INT32_MAX;
  int64_t at = 0;
#pragma unroll 1
  for (int d = layout.ndim - 1; d >= 0; --d) {
    const int64_t next = d == 0 ? 0 : narrow ? divide(static_cast<uint32_t>(i), layout.divider[d]) : i / layout.size[d];
    at += (i - next * layout.size[d]) * layout.stride[t][d];
    i = next;
  }
  return at;
}

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
#pragma unroll 1
  for (int d = layout.ndim - 1; d >= 0; --d) {
    const int64_t next = d == 0 ? 0 : narrow ? divide(static_cast<uint32_t>(i), layout.divider[d]) : i / layout.size[d];
    const int64_t along = i - next * layout.size[d];
#pragma unroll
    for (int t = 0; t < N; ++t) at[t] += along * layout.stride[t][d];
    i = next;
  }
}

/// Likewise, with a shorter way for two dims, the most common.
template <int N>
__device__ __forceinline__ void plane_offsets(const Layout<N>& layout, int64_t i, int64_t (&at)[N]) {
  if (layout.ndim != 2 || layout.count > INT32_MAX) return offsets(layout, i, at);
  const auto n = static_cast<uint32_t>(i);
  const uint32_t row = divide(n, layout.divider[1]), along = n - row * layout.divider[1].divisor;
#pragma unroll
  for (int t = 0; t < N; ++t) at[t] = row * layout.stride[t][0] + along * layout.stride[t][1];
}

/// A thread's first unit in its block.
template <int N>
struct UnitPlace {
  int64_t unit, end;  ///< the unit, and the end of its walk or row
  int64_t at[N];      ///< where the block's units lie evenly: this one's offsets
};
/// Unit `unit` of a walk whose blocks' units do not lie evenly.
template <int N>
__device__ __forceinline__ void scattered_offsets(const Layout<N>& layout, const RowBlocks<N>& blocks, int64_t unit,
                                                  int64_t (&at)[N]) {
  if (blocks.plane) return plane_offsets(layout, unit, at);
#pragma unroll
  for (int t = 0; t < N; ++t) at[t] = offset_of(layout, t, unit);
}
template <int N>
__device__ __forceinline__ UnitPlace<N> unit_place(const Layout<N>& layout, const RowBlocks<N>& blocks, int a_block) {
  UnitPlace<N> p;
  uint32_t row = 0, block = blockIdx.x;
  p.end = layout.count;
  if (blocks.row_units != 0) {
    row = divide(blockIdx.x, blocks.row_blocks);
    block -= row * blocks.row_blocks.divisor;
    p.end = blocks.row_units;
  }
  p.unit = block * int64_t{a_block} + threadIdx.x;
  if (!blocks.linear) return p;
#pragma unroll
  for (int t = 0; t < N; ++t) p.at[t] = row * blocks.row_stride[t] + p.unit * blocks.unit_stride[t];
  if (blocks.several)
#pragma unroll
    for (int t = 0; t < N; ++t) p.at[t] += offset_of(blocks.rows, t, row);
  return p;
}
#endif

}  // namespace tenor::cuda
