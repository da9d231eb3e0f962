// Depthwise convolutions of stride 2 by the rings of conv_depthwise_ring.cuh.
//
// Forward and weight gradient: a step brings two rows of the source, 2q and 2q + 1, whose taps are 2m and 2m + 1 of
// result, or grad, row q - m. Data gradient: inputs are taken in pairs, 2u - before + {0, 1}, which read the gradient
// at u - m through taps 2m + {0, 1}: a convolution of stride 1 by half of the taps, whose results are two by two.
#pragma once

#include "src/ops/conv/conv_depthwise_ring.cuh"

namespace tenor::conv {

/// Where a thread's weight lies in registers, of taps as they are.
template <class Config>
struct StrideWeight {
  float at[Config::kSize][Config::kSize][Config::kOwn];
  __device__ __forceinline__ explicit StrideWeight(const typename Config::T* taps) {
#pragma unroll
    for (int i = 0; i < Config::kTaps; ++i)
      cuda::widen_pack(cuda::load_pack<Config::kOwn>(taps + i * Config::kChannels +
                                                     static_cast<int>(threadIdx.x) % 32 * Config::kOwn),
                       at[i / Config::kSize][i % Config::kSize]);
  }
};

/// Row `row` of a step's two.
template <class Config>
__device__ __forceinline__ const typename Config::T* stride_row(const RingShape& s, const typename Config::T* line,
                                                                int row) {
  return line + row * ((s.warps * Config::kWide - 1) * 2 + Config::kSize) * Config::kChannels;
}

template <class Config>
__global__ void __launch_bounds__(32 * kRingWarps, Config::kBlocks)
    stride_forward(const __grid_constant__ CUtensorMap source, const __grid_constant__ RingShape s,
                   const __grid_constant__ ConvProblem p) {
  using T = typename Config::T;
  constexpr int kSize = Config::kSize, kOwn = Config::kOwn, kWide = Config::kWide, kReach = Config::kReach;
  if constexpr (!ptx::kHasClusters) return;  // without TMA it is never launched
  extern __shared__ __align__(128) unsigned char raw[];
  T* const taps = reinterpret_cast<T*>(raw);
  Ring<Config, false> ring(raw + RingLayout<Config>::kWeight, s, source);
  ring.start(s, source, nullptr);
  const bool finite = __syncthreads_and(gather_weight<Config>(taps, s));
  const StrideWeight<Config> weight(taps);
  const int channel = blockIdx.x * Config::kChannels + threadIdx.x % 32 * kOwn;
  float bias[kOwn] = {};
  load_bias<T>(bias, s, channel);
  const int wide = s.warps * kWide;
  for (RingCursor<kReach> at(s, wide); at.any(); at.leave(s, wide)) {
    float sum[kReach + 1][kWide][kOwn] = {};
    const int column = at.column + threadIdx.x / 32 * kWide, steps = at.steps();
    T* const result = static_cast<T*>(s.result) + at.n * s.other_batch + at.first * s.other_row +
                      int64_t{column} * s.other_pixel + channel;
    const int columns = channel < s.channels ? s.out_width - column : 0;
    for (int q = 0; q < steps; ++q) {
      ring.wait();
      const int row = (at.first + q) * 2 - s.top;
      const bool inside = row + 2 > 0 && row < s.height;
      float in[2][Config::kSpan][kOwn];
      if (inside)
#pragma unroll
        for (int a = 0; a < 2; ++a) take_columns(stride_row<Config>(s, ring.line(), a), in[a]);
      ring.release(s, source, nullptr);
      if (inside)
#pragma unroll
        for (int i = 0; i < kSize; ++i)
#pragma unroll
          for (int j = 0; j < kSize; ++j)
#pragma unroll
            for (int k = 0; k < kWide; ++k)
#pragma unroll
              for (int c = 0; c < kOwn; ++c)
                sum[i / 2][k][c] = fmaf(in[i % 2][2 * k + j][c], weight.at[i][j][c], sum[i / 2][k][c]);
      if (q >= kReach) store_columns<T>(result + (q - kReach) * s.other_row, s, sum[kReach], bias, columns);
#pragma unroll
      for (int m = kReach; m >= 0; --m)
#pragma unroll
        for (int k = 0; k < kWide; ++k)
#pragma unroll
          for (int c = 0; c < kOwn; ++c) sum[m][k][c] = m > 0 ? sum[m > 0 ? m - 1 : 0][k][c] : 0.f;
    }
  }
  if (!finite) mend_block<Config>(p, s);
}

/// Of the data gradient: where the pairs begin in the image, and its sizes. RingShape speaks of pairs.
struct StridePairs {
  int first_row, first_column, height, width;
};

/// A pair of rows of pairs of columns, of which those inside of the image are stored.
template <class T, int kWide, int kOwn>
__device__ __forceinline__ void store_pairs(T* image, const RingShape& s, const StridePairs& pairs, int row, int column,
                                            float (&sum)[2][kWide][2][kOwn], const float (&bias)[kOwn]) {
#pragma unroll
  for (int a = 0; a < 2; ++a) {
    if (static_cast<unsigned>(row + a) >= static_cast<unsigned>(pairs.height)) continue;
#pragma unroll
    for (int k = 0; k < kWide; ++k)
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const int x = column + 2 * k + b;
        if (static_cast<unsigned>(x) >= static_cast<unsigned>(pairs.width)) continue;
#pragma unroll
        for (int c = 0; c < kOwn; ++c) sum[a][k][b][c] += bias[c];
        cuda::store_pack(image + (row + a) * s.other_row + int64_t{x} * s.other_pixel,
                         cuda::convert_pack<T>(sum[a][k][b]));
      }
  }
}

/// `Half` is the ring of half of the taps; kSize all of them.
template <class Half, int kSize>
__global__ void __launch_bounds__(32 * kRingWarps, Half::kBlocks)
    stride_data(const __grid_constant__ CUtensorMap source, const __grid_constant__ RingShape s,
                const __grid_constant__ StridePairs pairs, const __grid_constant__ ConvProblem p) {
  using T = typename Half::T;
  using Whole = RingConfig<T, kSize, Half::kOwn, Half::kWide, Half::kStages, Half::kBlocks>;
  constexpr int kOwn = Half::kOwn, kWide = Half::kWide, kReach = Half::kReach;
  if constexpr (!ptx::kHasClusters) return;  // without TMA it is never launched
  extern __shared__ __align__(128) unsigned char raw[];
  T* const taps = reinterpret_cast<T*>(raw);
  Ring<Half, false> ring(raw + RingLayout<Whole>::kWeight, s, source);
  ring.start(s, source, nullptr);
  const bool finite = __syncthreads_and(gather_weight<Whole>(taps, s));
  const StrideWeight<Whole> weight(taps);
  const int channel = blockIdx.x * Half::kChannels + threadIdx.x % 32 * kOwn;
  float bias[kOwn] = {};
  load_bias<T>(bias, s, channel);
  const int wide = s.warps * kWide;
  for (RingCursor<kReach> at(s, wide); at.any(); at.leave(s, wide)) {
    float sum[kReach + 1][2][kWide][2][kOwn] = {};
    const int column = pairs.first_column + 2 * (at.column + static_cast<int>(threadIdx.x) / 32 * kWide);
    T* const image = static_cast<T*>(s.result) + at.n * s.other_batch + channel;
    const int steps = at.steps();
    for (int q = 0; q < steps; ++q) {
      ring.wait();
      const bool inside = is_inside(s, at.first - s.top + q);
      float in[Half::kSpan][kOwn];
      if (inside) take_columns(ring.line(), in);
      ring.release(s, source, nullptr);
      if (inside)
#pragma unroll
        for (int i = 0; i < kSize; ++i)
#pragma unroll
          for (int j = 0; j < kSize; ++j)
#pragma unroll
            for (int k = 0; k < kWide; ++k)
#pragma unroll
              for (int c = 0; c < kOwn; ++c) {
                float& to = sum[kReach - i / 2][i % 2][k][j % 2][c];
                to = fmaf(in[k + kReach - j / 2][c], weight.at[i][j][c], to);
              }
      if (q >= kReach && channel < s.channels)
        store_pairs<T>(image, s, pairs, pairs.first_row + 2 * (at.first + q - kReach), column, sum[kReach], bias);
#pragma unroll
      for (int m = kReach; m >= 0; --m)
#pragma unroll
        for (int x = 0; x < 4 * kWide; ++x)
#pragma unroll
          for (int c = 0; c < kOwn; ++c) {
            const int a = x / 2 / kWide, k = x / 2 % kWide, b = x % 2;
            sum[m][a][k][b][c] = m > 0 ? sum[m > 0 ? m - 1 : 0][a][k][b][c] : 0.f;
          }
    }
  }
  if (!finite) mend_block<Half>(p, s, 2, pairs.first_row, pairs.first_column);
}

template <class Config>
__global__ void __launch_bounds__(32 * kRingWarps, Config::kBlocks)
    stride_weight(const __grid_constant__ CUtensorMap source, const __grid_constant__ CUtensorMap grad,
                  const __grid_constant__ RingShape s) {
  using T = typename Config::T;
  constexpr int kSize = Config::kSize, kOwn = Config::kOwn, kWide = Config::kWide, kReach = Config::kReach;
  if constexpr (!ptx::kHasClusters) return;  // without TMA it is never launched
  extern __shared__ __align__(128) unsigned char raw[];
  Ring<Config, true> ring(raw, s, source);
  ring.start(s, source, &grad);
  float sum[kSize][kSize][kOwn] = {};
  const int wide = s.warps * kWide;
  for (RingCursor<kReach> at(s, wide); at.any(); at.leave(s, wide)) {
    float g[kReach + 1][kWide][kOwn] = {};
    const int rows = at.last - at.first, steps = at.steps();
    for (int q = 0; q < steps; ++q) {
      ring.wait();
#pragma unroll
      for (int m = kReach; m > 0; --m)
#pragma unroll
        for (int k = 0; k < kWide; ++k)
#pragma unroll
          for (int c = 0; c < kOwn; ++c) g[m][k][c] = g[m - 1][k][c];
      if (q < rows)
        take_columns(ring.grads(), g[0]);
      else
#pragma unroll
        for (int k = 0; k < kWide; ++k)
#pragma unroll
          for (int c = 0; c < kOwn; ++c) g[0][k][c] = 0;
      const int row = (at.first + q) * 2 - s.top;
      const bool inside = row + 2 > 0 && row < s.height;
      float in[2][Config::kSpan][kOwn];
      if (inside)
#pragma unroll
        for (int a = 0; a < 2; ++a) take_columns(stride_row<Config>(s, ring.line(), a), in[a]);
      ring.release(s, source, &grad);
      if (inside)
#pragma unroll
        for (int i = 0; i < kSize; ++i)
#pragma unroll
          for (int k = 0; k < kWide; ++k)
#pragma unroll
            for (int j = 0; j < kSize; ++j)
#pragma unroll
              for (int c = 0; c < kOwn; ++c) sum[i][j][c] = fmaf(in[i % 2][2 * k + j][c], g[i / 2][k][c], sum[i][j][c]);
    }
  }
  store_taps<Config>(raw, s, sum);
}

}  // namespace tenor::conv
