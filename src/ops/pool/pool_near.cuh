// Kernels of pool_near.h for windows that move on by two, as models have them. Inputs 2 m - 1 and 2 m of a dim have the
// same candidates, outputs m - 1 and m.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/cuda/launch.h"
#include "src/ops/pool/pool_near.h"

namespace tenor::cuda {

/// Two dims of planes; all sizes and counts of threads fit 31 bits.
struct NearPlan {
  pool::PoolGrid grad, indices, dx;
  int height, width, out_height, out_width;
  uint32_t total;  ///< threads, or pairs of rows
  Divider by_inner, by_columns, by_pairs, by_width, by_channels;
  StrayReport report;
};

/// Where an index lies in its output's window of 4 x 4: 4 * row + column; kNoPlace for none. Bad and stray ones are
/// reported.
inline constexpr int kNoPlace = 255;
__device__ __forceinline__ int near_code(const NearPlan& p, int64_t index, int oh, int ow, int64_t position) {
  const auto flat = static_cast<uint32_t>(index);
  const auto plane = static_cast<uint32_t>(p.height) * static_cast<uint32_t>(p.width);
  if (index >> 32 == 0 && flat < plane) {
    const uint32_t h = divide(flat, p.by_width), w = flat - h * p.by_width.divisor;
    const uint32_t row = h - static_cast<uint32_t>(2 * oh - 1), column = w - static_cast<uint32_t>(2 * ow - 1);
    if (row < 4 && column < 4) return static_cast<int>(4 * row + column);
    *p.report.stray = 1;
  } else if (index != -1) {
    raise_content_error(p.report.flag, p.report.op, position, index);
  }
  return kNoPlace;
}

/// Channels together: a thread has V channels of the inputs 2 m - 1, 2 m of both dims.
template <class T, int V>
__global__ void __launch_bounds__(128)
    near_channels(const T* __restrict__ grad, const int64_t* __restrict__ indices, T* __restrict__ dx, NearPlan p) {
  using C = core::Compute<T>;
  const uint32_t i = blockIdx.x * 128u + threadIdx.x;
  if (i >= p.total) return;
  const uint32_t quad = divide(i, p.by_inner), line = divide(quad, p.by_columns), n = divide(line, p.by_pairs);
  const int c = static_cast<int>(i - quad * p.by_inner.divisor) * V,
            mw = static_cast<int>(quad - line * p.by_columns.divisor),
            mh = static_cast<int>(line - n * p.by_pairs.divisor);
  Pack<T, V> g[2][2];
  int code[2][2][V];  // by the window of (mh - 1 + a, mw - 1 + b)
#pragma unroll
  for (int a = 0; a < 2; ++a)
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const int oh = mh - 1 + a, ow = mw - 1 + b;
      const bool there = static_cast<unsigned>(oh) < static_cast<unsigned>(p.out_height) &&
                         static_cast<unsigned>(ow) < static_cast<unsigned>(p.out_width);
#pragma unroll
      for (int v = 0; v < V; ++v) code[a][b][v] = -1, g[a][b].at[v] = T{};
      if (!there) continue;
      g[a][b] = load_pack<V>(grad + p.grad.at(n, c, 0, oh, ow));
      const int64_t* at = indices + p.indices.at(n, c, 0, oh, ow);
#pragma unroll
      for (int v = 0; v < V; v += 2) {
        const auto two = load_pack<2>(at + v);
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int64_t index = two.at[k];
          if (a == 1 && b == 1) {  // each output is looked at by one thread
            const int64_t position =
                ((n * int64_t{p.by_channels.divisor} + c + v + k) * p.out_height + oh) * p.out_width + ow;
            near_code(p, index, oh, ow, position);
          }
          code[a][b][v + k] = index >> 32 == 0 ? static_cast<int>(index) : -1;
        }
      }
    }
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const int h = 2 * mh - 1 + r, w = 2 * mw - 1 + s;
      if (static_cast<unsigned>(h) >= static_cast<unsigned>(p.height) ||
          static_cast<unsigned>(w) >= static_cast<unsigned>(p.width))
        continue;
      const int flat = h * p.width + w;
      C sums[V] = {};
#pragma unroll
      for (int a = 0; a < 2; ++a)
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          C wide[V];
          widen_pack(g[a][b], wide);
#pragma unroll
          for (int v = 0; v < V; ++v)
            if (code[a][b][v] == flat) sums[v] += wide[v];
        }
      store_pack(dx + p.dx.at(n, c, 0, h, w), convert_pack<T>(sums));
    }
}

inline constexpr int kNearThreads = 256;
inline constexpr int kNearHead = 4;  // columns of shared memory before a tile's first output
inline constexpr int kNearRun = 4;   // outputs that a thread brings at once

/// Rows together, dense planes: a block has pairs of rows (those of all planes one after another) and a tile of their
/// columns. What their outputs bring waits in shared memory: a byte says where in its window each goes.
struct NearRows {
  NearPlan p;
  int pairs;                             ///< of a block
  int tile;                              ///< inputs of a row, a multiple of V
  int pitch;                             ///< outputs of a row in shared memory
  Divider by_tiles, by_chunks, by_held;  ///< tiles a row; accesses of a tile; runs of the outputs that it holds
};

/// The row of outputs that goes with a pair of rows of inputs.
struct NearRow {
  int64_t grad, indices, position;  ///< of its first output: in the tensors, and among all outputs
  int oh;                           ///< -1: there is none
};
__device__ __forceinline__ NearRow near_row(const NearPlan& p, int64_t pair) {
  if (pair < 0 || pair >= p.total) return {0, 0, 0, -1};
  const uint32_t plane = divide(static_cast<uint32_t>(pair), p.by_pairs);
  const int oh = static_cast<int>(static_cast<uint32_t>(pair) - plane * p.by_pairs.divisor);
  if (oh >= p.out_height) return {0, 0, 0, -1};
  const uint32_t n = divide(plane, p.by_channels), c = plane - n * p.by_channels.divisor;
  const int64_t within = int64_t{oh} * p.out_width;
  return {n * p.grad.stride[0] + c * p.grad.stride[1] + within,
          n * p.indices.stride[0] + c * p.indices.stride[1] + within,
          int64_t{plane} * p.out_height * p.out_width + within, oh};
}

/// The outputs of a tile that a block holds, kNearRun neighbours a thread: column kNearHead - 1 + k is output
/// first - 1 + k.
template <class T>
__device__ __forceinline__ void hold_outputs(const NearRows& r, const T* grad, const int64_t* indices, T* held,
                                             uint8_t* codes, int64_t first_pair, int first) {
  const NearPlan& p = r.p;
  const int runs = static_cast<int>(r.by_held.divisor), count = (r.pairs + 1) * runs;
  for (int i = threadIdx.x; i < count; i += kNearThreads) {
    const int row = static_cast<int>(divide(static_cast<uint32_t>(i), r.by_held)), k0 = (i - row * runs) * kNearRun;
    const NearRow from = near_row(p, first_pair - 1 + row);
    int64_t index[kNearRun];
    T g[kNearRun];
#pragma unroll
    for (int k = 0; k < kNearRun; ++k) {
      const int ow = first - 1 + k0 + k;
      const bool there = from.oh >= 0 && static_cast<unsigned>(ow) < static_cast<unsigned>(p.out_width);
      index[k] = there ? indices[from.indices + ow] : -1;
      g[k] = there ? grad[from.grad + ow] : T{};
    }
    const int at = row * r.pitch + kNearHead - 1 + k0;
#pragma unroll
    for (int k = 0; k < kNearRun; ++k) {
      const int ow = first - 1 + k0 + k;
      held[at + k] = g[k];
      codes[at + k] = static_cast<uint8_t>(near_code(p, index[k], from.oh, ow, from.position + ow));
    }
  }
}

template <class T, int V>
__global__ void __launch_bounds__(kNearThreads)
    near_rows(const T* __restrict__ grad, const int64_t* __restrict__ indices, T* __restrict__ dx, NearRows r) {
  using C = core::Compute<T>;
  constexpr int kOut = V / 2 + 2;  // candidates of V inputs
  extern __shared__ __align__(16) char shared[];
  const NearPlan& p = r.p;
  T* held = reinterpret_cast<T*>(shared);
  uint8_t* codes = reinterpret_cast<uint8_t*>(held + (r.pairs + 1) * r.pitch);
  const uint32_t group = divide(blockIdx.x, r.by_tiles);
  const int w0 = static_cast<int>(blockIdx.x - group * r.by_tiles.divisor) * r.tile;
  const int64_t first_pair = int64_t{group} * r.pairs;
  hold_outputs(r, grad, indices, held, codes, first_pair, w0 / 2);
  __syncthreads();
  const int chunks = static_cast<int>(r.by_chunks.divisor);
  for (int i = threadIdx.x; i < r.pairs * chunks; i += kNearThreads) {
    const int row = static_cast<int>(divide(static_cast<uint32_t>(i), r.by_chunks)), w = (i - row * chunks) * V;
    const int64_t pair = first_pair + row;
    if (pair >= p.total || w0 + w >= p.width) continue;
    const uint32_t plane = divide(static_cast<uint32_t>(pair), p.by_pairs);
    const int mh = static_cast<int>(static_cast<uint32_t>(pair) - plane * p.by_pairs.divisor);
    C sums[2][V] = {};
#pragma unroll
    for (int a = 0; a < 2; ++a) {
      if (a == 0 && mh == 0) continue;  // that row is another plane's
      const int at = (row + a) * r.pitch + kNearHead - 1 + w / 2;
#pragma unroll
      for (int k = 0; k < kOut; ++k) {  // output w / 2 - 1 + k
        const int code = codes[at + k];
        const C g = convert<C>(held[at + k]);
#pragma unroll
        for (int s = 0; s < 2; ++s)
#pragma unroll
          for (int e = 2 * k - 3; e <= 2 * k; ++e) {  // inputs of its window
            if (e < 0 || e >= V) continue;
            if (code == 4 * (2 - 2 * a + s) + e - (2 * k - 3)) sums[s][e] += g;
          }
      }
    }
    const uint32_t n = divide(plane, p.by_channels), c = plane - n * p.by_channels.divisor;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const int h = 2 * mh - 1 + s;
      if (static_cast<unsigned>(h) >= static_cast<unsigned>(p.height)) continue;
      T* to = dx + n * p.dx.stride[0] + c * p.dx.stride[1] + h * p.dx.stride[3] + w0 + w;
      const Pack<T, V> out = convert_pack<T>(sums[s]);
      if constexpr (V > 2) {
        store_pack(to, out);
      } else {
        to[0] = out.at[0];
        if (w0 + w + 1 < p.width) to[1] = out.at[1];
      }
    }
  }
}

}  // namespace tenor::cuda
