// Resampling with a fixed number of taps a dim: nearest, linear, cubic. A thread owns V neighbouring outputs, along W
// or along channels, and goes down a strip of output rows. Of every input row that the strip needs it makes its V
// values once (the taps along W and depth) and keeps as many rows as there are taps in registers, so that a value that
// several output rows read is not made again; where the image grows that is most of the work.
#pragma once

#include "src/core/resample.h"
#include "src/cuda/convert.cuh"
#include "src/cuda/image.h"
#include "src/cuda/quotient.cuh"
#include "src/cuda/vector.cuh"

namespace tenor::cuda {

inline constexpr int kResampleThreads = 128;
inline constexpr int kMostStrip = 64;  // output rows of a block

struct FixedResample {
  StridedImage from, to;
  core::ResampleAxis depth, height, width;
  int64_t channels;
  int64_t units;   ///< threads with work: images (or images and channels) by columns (and groups of channels)
  int64_t groups;  ///< of V columns a row; of V channels a pixel
  int strip;
};

/// Elements that are moved as they lie, and those that are weighted.
template <class T, bool Move>
using Carried = std::conditional_t<Move, T, core::Compute<T>>;

/// V neighbours along W: each has taps of its own.
template <class T, int KW, int V, class Offset>
struct Columns {
  using C = core::Compute<T>;
  static constexpr int kWide = V;
  /// What a row gives, as it lies.
  struct Raw {
    T at[V][KW];
  };
  Offset at[V][KW];
  C weight[V][KW];

  /// The unit's places; returns the offsets of its image in `from` and of its first output in `to`.
  __device__ void place(const FixedResample& p, int64_t unit, int64_t& from, int64_t& to) {
    const int64_t plane = quotient(unit, p.groups), column = (unit - plane * p.groups) * V,
                  n = quotient(plane, p.channels), c = plane - n * p.channels;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const auto t = core::fixed_taps_at<KW, C>(p.width, column + v);
#pragma unroll
      for (int k = 0; k < KW; ++k) {
        at[v][k] = static_cast<Offset>(core::clamp_index(t.first + k, p.width.in) * p.from.w);
        weight[v][k] = t.weight[k];
      }
    }
    from = n * p.from.n + c * p.from.c;
    to = n * p.to.n + c * p.to.c + column * p.to.w;
  }
  __device__ __forceinline__ void load(const T* row, Raw& raw) const {
#pragma unroll
    for (int v = 0; v < V; ++v)
#pragma unroll
      for (int k = 0; k < KW; ++k) raw.at[v][k] = row[at[v][k]];
  }
  __device__ __forceinline__ void move(const Raw& raw, T (&out)[V]) const {
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = raw.at[v][0];
  }
  __device__ __forceinline__ void weigh(const Raw& raw, C (&out)[V]) const {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      out[v] = KW == 1 ? widen(raw.at[v][0]) : weight[v][0] * widen(raw.at[v][0]);
#pragma unroll
      for (int k = 1; k < KW; ++k) out[v] = fma(weight[v][k], widen(raw.at[v][k]), out[v]);
    }
  }
};

/// V neighbouring channels of one pixel.
template <class T, int KW, int V, class Offset>
struct Channels {
  using C = core::Compute<T>;
  static constexpr int kWide = V;
  struct Raw {
    Pack<T, V> at[KW];
  };
  int64_t at[KW];
  C weight[KW];

  __device__ void place(const FixedResample& p, int64_t unit, int64_t& from, int64_t& to) {
    const int64_t pixel = quotient(unit, p.groups), c = (unit - pixel * p.groups) * V, n = quotient(pixel, p.width.out),
                  column = pixel - n * p.width.out;
    const auto t = core::fixed_taps_at<KW, C>(p.width, column);
#pragma unroll
    for (int k = 0; k < KW; ++k) {
      at[k] = core::clamp_index(t.first + k, p.width.in) * p.from.w;
      weight[k] = t.weight[k];
    }
    from = n * p.from.n + c * p.from.c;
    to = n * p.to.n + c * p.to.c + column * p.to.w;
  }
  __device__ __forceinline__ void load(const T* row, Raw& raw) const {
#pragma unroll
    for (int k = 0; k < KW; ++k) raw.at[k] = load_pack<V>(row + at[k]);
  }
  __device__ __forceinline__ void move(const Raw& raw, T (&out)[V]) const {
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = raw.at[0].at[v];
  }
  __device__ __forceinline__ void weigh(const Raw& raw, C (&out)[V]) const {
#pragma unroll
    for (int k = 0; k < KW; ++k) {
      C x[V];
      widen_pack(raw.at[k], x);
#pragma unroll
      for (int v = 0; v < V; ++v) out[v] = KW == 1 ? x[v] : k == 0 ? weight[0] * x[v] : fma(weight[k], x[v], out[v]);
    }
  }
};

/// Stores V neighbours as one access; V = 1 knows no alignment.
template <class T, int V>
__device__ __forceinline__ void store_results(T* to, const T (&x)[V]) {
  Pack<T, V> pack;
#pragma unroll
  for (int v = 0; v < V; ++v) pack.at[v] = x[v];
  store_once(to, pack);
}
template <class T, int V, class C>
requires(!std::is_same_v<T, C>) __device__ __forceinline__ void store_results(T* to, const C (&x)[V]) {
  store_once(to, convert_pack<T>(x));
}

/// What a strip does, row of `from` by row: worked out once for the block.
template <class C, int KH>
struct StripPlan {
  int64_t first[kMostStrip];  ///< of every output row: its first input row
  C weight[kMostStrip][KH];
  int last[kMostStrip];             ///< the place of its last input row among the sources
  int64_t source[kMostStrip * KH];  ///< offsets of the rows to read, in order
  int count;

  __device__ void fill(const FixedResample& p, int64_t row, int rows) {
    for (int r = threadIdx.x; r < rows; r += blockDim.x) {
      const auto t = core::fixed_taps_at<KH, C>(p.height, row + r);
      first[r] = t.first;
      for (int k = 0; k < KH; ++k) weight[r][k] = t.weight[k];
    }
    __syncthreads();
    for (int r = threadIdx.x; r < rows; r += blockDim.x) {
      int before = r == 0 ? 0 : static_cast<int>(first[r - 1] - first[0]) + KH;
      if (p.height.step > KH - 1) {  // rows are left out between the windows
        before = 0;
        for (int above = 0; above < r; ++above) before += fresh(above);
      }
      const int added = fresh(r);
      for (int k = 0; k < added; ++k)
        source[before + k] = core::clamp_index(first[r] + KH - added + k, p.height.in) * p.from.h;
      last[r] = before + added - 1;
      if (r == rows - 1) count = before + added;
    }
  }
  /// Rows that output row r reads and the one above it does not.
  __device__ int fresh(int r) const {
    if (r == 0) return KH;
    const int64_t moved = first[r] - first[r - 1];
    return moved < KH ? static_cast<int>(moved) : KH;
  }
};

/// Input rows whose loads are under way together.
template <int KD, int KW>
inline constexpr int kRowsAhead = KD* KW >= 4 ? 2 : 4;

/// One strip: rows of `from` at x, results at y. KD taps along depth, at `planes` with `depth`.
template <class G, class T, bool Move, int KD, int KH, int Ahead>
__device__ void resample_strip(const G& gather, const T* x, T* y, int64_t y_row, const int64_t (&planes)[KD],
                               const core::Compute<T> (&depth)[KD], const StripPlan<core::Compute<T>, KH>& plan,
                               int rows) {
  using R = Carried<T, Move>;
  constexpr int V = G::kWide;
  R held[KH][V] = {};
  int r = 0;
  for (int start = 0; start < plan.count; start += Ahead) {
    typename G::Raw raw[Ahead][KD];
#pragma unroll
    for (int b = 0; b < Ahead; ++b) {
      const int64_t row = plan.source[min(start + b, plan.count - 1)];
#pragma unroll
      for (int k = 0; k < KD; ++k) gather.load(x + row + planes[k], raw[b][k]);
    }
#pragma unroll
    for (int b = 0; b < Ahead; ++b) {
      if (start + b >= plan.count) break;
#pragma unroll
      for (int k = 0; k + 1 < KH; ++k)
#pragma unroll
        for (int v = 0; v < V; ++v) held[k][v] = held[k + 1][v];
      if constexpr (Move) {
        gather.move(raw[b][0], held[KH - 1]);
      } else {
        gather.weigh(raw[b][0], held[KH - 1]);
        if constexpr (KD > 1) {
          R part[V];
#pragma unroll
          for (int v = 0; v < V; ++v) held[KH - 1][v] *= depth[0];
#pragma unroll
          for (int k = 1; k < KD; ++k) {
            gather.weigh(raw[b][k], part);
#pragma unroll
            for (int v = 0; v < V; ++v) held[KH - 1][v] = fma(depth[k], part[v], held[KH - 1][v]);
          }
        }
      }
      for (; r < rows && plan.last[r] == start + b; ++r) {
        if constexpr (KH == 1) {
          store_results<T, V>(y + r * y_row, held[0]);
        } else {
          R sum[V];
#pragma unroll
          for (int v = 0; v < V; ++v) {
            sum[v] = plan.weight[r][0] * held[0][v];
#pragma unroll
            for (int k = 1; k < KH; ++k) sum[v] = fma(plan.weight[r][k], held[k][v], sum[v]);
          }
          store_results<T, V>(y + r * y_row, sum);
        }
      }
    }
  }
}

template <class G, class T, bool Move, int KD, int KH, int KW>
__global__ void __launch_bounds__(kResampleThreads) resample_fixed(const __grid_constant__ FixedResample p) {
  using C = core::Compute<T>;
  __shared__ StripPlan<C, KH> plan;
  const int64_t unit = int64_t{blockIdx.x} * kResampleThreads + threadIdx.x;
  const bool works = unit < p.units;
  G gather;
  int64_t from = 0, to = 0;
  if (works) gather.place(p, unit, from, to);
  for (int64_t row = int64_t{blockIdx.y} * p.strip; row < p.height.out; row += int64_t{gridDim.y} * p.strip) {
    const int rows = static_cast<int>(min(int64_t{p.strip}, p.height.out - row));
    __syncthreads();
    plan.fill(p, row, rows);
    __syncthreads();
    for (int64_t d = blockIdx.z; works && d < p.depth.out; d += gridDim.z) {
      const auto t = core::fixed_taps_at<KD, C>(p.depth, d);
      int64_t planes[KD];
      C depth[KD];
      for (int k = 0; k < KD; ++k) {
        planes[k] = core::clamp_index(t.first + k, p.depth.in) * p.from.d;
        depth[k] = t.weight[k];
      }
      resample_strip<G, T, Move, KD, KH, kRowsAhead<KD, KW>>(
          gather, static_cast<const T*>(p.from.data) + from,
          static_cast<T*>(const_cast<void*>(p.to.data)) + to + d * p.to.d + row * p.to.h, p.to.h, planes, depth, plan,
          rows);
    }
  }
}

}  // namespace tenor::cuda
