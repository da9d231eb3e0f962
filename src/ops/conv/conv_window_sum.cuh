// One window's sum over the taps that lie on inputs alone: what a kernel's epilogue computes again where its product is
// NaN, since it has multiplied the zeros that stand for padding (conv_plain.h says why).
#pragma once

#include "src/ops/conv/conv_rows.cuh"

namespace tenor::conv {

/// The weight's taps as a product walks them.
struct WeightTaps {
  int first, step[3], count;  ///< of tap 0, from tap to tap, of all
};

inline WeightTaps weight_taps_of(const GatherProduct& p) {
  return {p.weight_first, {p.dim[0].weight_step, p.dim[1].weight_step, p.dim[2].weight_step}, p.weight_taps};
}

#ifdef __CUDACC__

/// Of pixel m: `source` begins at the group's channels, `weight` at the column's line [taps, channels].
template <class T>
__device__ __forceinline__ float window_sum(const RowShape& s, const WeightTaps& taps, int m, const T* source,
                                            const T* weight, int channels) {
  const SourceRow row = source_row(s, m);
  float sum = 0;
  if (s.taps[0] * s.taps[1] * s.taps[2] == 0) return sum;
  TapWalk walk;
  do {
    const uint32_t bits = walk.bits(s);
    if ((row.mask & bits) != bits) continue;
    const T* const x = source + row.offset + walk.offset(s);
    const int tap = taps.first + walk.j[0] * taps.step[0] + walk.j[1] * taps.step[1] + walk.j[2] * taps.step[2];
    const T* const w = weight + int64_t{tap} * channels;
    for (int c = 0; c < channels; ++c) sum = fmaf(static_cast<float>(x[c]), static_cast<float>(w[c]), sum);
  } while (walk.next(s) && sum == sum);
  return sum;
}

/// Whether a tap of some row lies on padding.
__host__ __device__ __forceinline__ bool has_padding(const RowShape& s) {
  return s.bit[0] >= 0 || s.bit[1] >= 0 || s.bit[2] >= 0;
}

/// Whether every tap of a row lies on an input.
__device__ __forceinline__ bool is_whole(const RowShape& s, uint32_t mask) {
  uint32_t bits = kRowExists;
#pragma unroll
  for (int d = 0; d < 3; ++d)
    if (s.bit[d] >= 0) bits |= ((1u << s.taps[d]) - 1) << s.bit[d];
  return (mask & bits) == bits;
}

/// Sums results of a warp's again, which has stored them, that are NaN though taps of theirs lie on padding: `rows`
/// pixels from m on, `columns` channels of a group. `Shape` names operands and result as ConvShape does.
template <class T, class Shape>
__device__ __forceinline__ void mend_pixels(const Shape& s, int group, int first_column, int columns, int m, int rows) {
  __syncwarp();
  for (int row = m; row < min(m + rows, s.rows.pixels); ++row) {
    if (is_whole(s.rows, source_row(s.rows, row).mask)) continue;
    T* const result = static_cast<T*>(s.result) + result_row(s.rows, row);
    for (int i = first_column + threadIdx.x % 32; i < min(first_column + columns, s.columns); i += 32) {
      const int64_t column = int64_t{group} * s.columns + i;
      T* const to = result + column * s.result_channel;
      const float stored = static_cast<float>(*to);
      if (stored == stored) continue;
      float sum = window_sum(s.rows, s.taps, row, static_cast<const T*>(s.source) + int64_t{group} * s.channels,
                             static_cast<const T*>(s.weight) + column * s.taps.count * s.channels, s.channels);
      if (s.bias) sum += static_cast<float>(static_cast<const T*>(s.bias)[column * s.bias_stride]);
      *to = static_cast<T>(sum);
    }
  }
}

/// Whether one of a warp's sums is not a finite number.
template <int kCount>
__device__ __forceinline__ bool not_finite(const float (&d)[kCount]) {
  float odd[4] = {};  // chains that do not wait for one another
#pragma unroll
  for (int i = 0; i < kCount; ++i) odd[i % 4] = fmaf(d[i], 0.f, odd[i % 4]);
  const float any = (odd[0] + odd[1]) + (odd[2] + odd[3]);
  return __any_sync(~0u, any != any);
}

#endif

}  // namespace tenor::conv
