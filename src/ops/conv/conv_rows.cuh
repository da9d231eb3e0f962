// The rows of an implicit GEMM: which pixel a row is, where its taps lie in the source, and which of them are padding.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/core/numeric.h"
#include "src/ops/conv/conv_gather.h"

namespace tenor::conv {

inline constexpr int kMaskBits = 31;              ///< taps, summed over the dims that have padding
inline constexpr uint32_t kRowExists = 1u << 31;  ///< beside a bit for each tap of such a dim

/// What of a GatherProduct the kernels need to find rows.
struct RowShape {
  int pixels;  ///< batch times outputs
  int outputs[3], size[3], stride[3], first[3], taps[3], step[3];
  int bit[3];  ///< of tap 0 in the mask, or -1 where no tap of the dim is ever padding
  int64_t source_stride[3], source_batch, result_stride[3], result_batch;
};

struct SourceRow {
  int64_t offset;  ///< of tap 0
  uint32_t mask;
};

/// Where im2col TMA's base positions of a dim begin, so that no tap's offset is negative.
inline int lowest_of(const GatherDim& d) { return d.first + std::min(0, (d.taps - 1) * d.step); }

/// Whether the first dim is there for uniformity's sake alone.
inline bool has_two_dims(const GatherProduct& p) {
  const GatherDim& d = p.dim[0];
  return d.size == 1 && d.taps == 1 && d.outputs == 1 && d.first == 0;
}

TENOR_HOST_DEVICE inline int taps_of(const RowShape& rows) { return rows.taps[0] * rows.taps[1] * rows.taps[2]; }

/// False where the taps do not fit a mask, or there are too many pixels.
inline bool make_row_shape(const GatherProduct& p, RowShape& s) {
  int64_t pixels = p.batch;
  int bits = 0;
  s.source_batch = p.source_batch, s.result_batch = p.result_batch;
  for (int d = 0; d < 3; ++d) {
    const GatherDim& g = p.dim[d];
    pixels *= g.outputs;
    s.outputs[d] = g.outputs, s.size[d] = g.size, s.stride[d] = g.stride, s.first[d] = g.first;
    s.taps[d] = g.taps, s.step[d] = g.step;
    s.source_stride[d] = g.source_stride, s.result_stride[d] = g.result_stride;
    const int64_t last = int64_t{g.outputs - 1} * g.stride + g.first, reach = int64_t{g.taps - 1} * g.step;
    const int64_t low = g.first + (reach < 0 ? reach : 0), high = last + (reach > 0 ? reach : 0);
    if (low < -(int64_t{1} << 30) || high > (int64_t{1} << 30)) return false;
    const bool padded = low < 0 || high >= g.size;
    s.bit[d] = padded ? bits : -1;
    if (padded) bits += g.taps;
    if (bits > kMaskBits) return false;
  }
  s.pixels = static_cast<int>(pixels);
  return pixels < (int64_t{1} << 31) - 1024;
}

#ifdef __CUDACC__

/// The positions of pixel m, which exists, in the three dims; what is left is its image.
__device__ __forceinline__ int pixel_positions(const RowShape& s, int m, int (&p)[3]) {
  uint32_t rest = m;
#pragma unroll
  for (int d = 2; d >= 0; --d) {
    const uint32_t count = s.outputs[d];
    if (count == 1) {
      p[d] = 0;
      continue;
    }
    const uint32_t next = rest / count;
    p[d] = rest - next * count;
    rest = next;
  }
  return rest;
}

/// A bit for each of fewer than 32 taps that lies on 0..size-1.
__device__ __forceinline__ uint32_t taps_inside(int start, int step, int taps, int size) {
  if (step == 1) {
    const int low = min(max(-start, 0), taps), high = min(max(size - start, low), taps);
    return ((1u << high) - 1) & ~((1u << low) - 1);
  }
  uint32_t bits = 0;
  for (int j = 0; j < taps; ++j)
    if (static_cast<uint32_t>(start + j * step) < static_cast<uint32_t>(size)) bits |= 1u << j;
  return bits;
}

__device__ __forceinline__ SourceRow source_row(const RowShape& s, int m) {
  if (m >= s.pixels) return {0, 0};
  int p[3];
  SourceRow row{pixel_positions(s, m, p) * s.source_batch, kRowExists};
#pragma unroll
  for (int d = 0; d < 3; ++d) {
    const int start = p[d] * s.stride[d] + s.first[d];
    row.offset += start * s.source_stride[d];
    if (s.bit[d] < 0) continue;
    row.mask |= taps_inside(start, s.step[d], s.taps[d], s.size[d]) << s.bit[d];
  }
  return row;
}

__device__ __forceinline__ int64_t result_row(const RowShape& s, int m) {
  int p[3];
  int64_t offset = pixel_positions(s, m, p) * s.result_batch;
#pragma unroll
  for (int d = 0; d < 3; ++d) offset += p[d] * s.result_stride[d];
  return offset;
}

/// Walks the taps, the last dim fastest: where each lies from tap 0, and the bits that say whether it is an input.
struct TapWalk {
  int j[3] = {0, 0, 0};
  /// False, and back at tap 0, past the last.
  __device__ __forceinline__ bool next(const RowShape& s) {
#pragma unroll
    for (int d = 2; d >= 0; --d) {
      if (++j[d] < s.taps[d]) return true;
      j[d] = 0;
    }
    return false;
  }
  __device__ __forceinline__ int64_t offset(const RowShape& s) const {
    int64_t sum = 0;
#pragma unroll
    for (int d = 0; d < 3; ++d) sum += j[d] * s.step[d] * s.source_stride[d];
    return sum;
  }
  __device__ __forceinline__ uint32_t bits(const RowShape& s) const {
    uint32_t bits = kRowExists;
#pragma unroll
    for (int d = 0; d < 3; ++d)
      if (s.bit[d] >= 0) bits |= 1u << (s.bit[d] + j[d]);
    return bits;
  }
};

/// The walk at its tap-th tap.
__device__ __forceinline__ TapWalk tap_walk(const RowShape& s, int tap) {
  TapWalk walk;
#pragma unroll
  for (int d = 2; d >= 0; --d) {
    const int next = tap / s.taps[d];
    walk.j[d] = tap - next * s.taps[d];
    tap = next;
  }
  return walk;
}

#endif

}  // namespace tenor::conv
