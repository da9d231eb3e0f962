// Depthwise convolutions of stride and dilation 1 over channels-last images on devices with TMA, by the rings of
// conv_depthwise_rows.cuh. A row is read once and meets the kSize rows of results, or of grad, that it belongs to,
// which registers hold.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/ops/conv/conv_depthwise_rows.cuh"
#include "src/ops/conv/conv_mend.cuh"

namespace tenor::conv {

/// Neighbouring columns' channels from a line in shared memory.
template <int kCount, int kOwn, class T>
__device__ __forceinline__ void take_columns(const T* line, float (&to)[kCount][kOwn]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) cuda::widen_pack(cuda::load_pack<kOwn>(line + i * 32 * kOwn), to[i]);
}

/// Keeps the compiler from widening what is used in each turn of a loop once in front of it, for which registers lack.
template <class T, int kChannels>
__device__ __forceinline__ void keep_packed(cuda::Pack<T, kChannels>& x) {
  if constexpr (sizeof(x) == 4 && sizeof(T) == 2) asm volatile("" : "+r"(reinterpret_cast<uint32_t&>(x)));
}

/// The block's channels of the weight as [taps, channels], in the order in which the source's rows meet them. Returns
/// whether what this thread brought is finite.
template <class Config>
__device__ __forceinline__ bool gather_weight(typename Config::T* to, const RingShape& s) {
  using T = typename Config::T;
  constexpr int kSize = Config::kSize, kTaps = Config::kTaps, kCount = kTaps * Config::kChannels;
  constexpr int kPiece = 16 / sizeof(T);
  const int first = blockIdx.x * Config::kChannels;
  bool finite = true;
  const auto place = [&](int channel, int tap, T w) {
    to[(s.from_last ? kTaps - 1 - tap : tap) * Config::kChannels + channel] = w;
    finite &= is_finite(w);
  };
  if (s.weight_pieces && first + Config::kChannels <= s.channels) {  // one turn, while the first rows are on their way
    const T* const from = static_cast<const T*>(s.weight) + first * kTaps;
    for (int i = threadIdx.x; i < kCount / kPiece; i += blockDim.x) {
      const cuda::Pack<T, kPiece> piece = cuda::load_pack<kPiece>(from + i * kPiece);
#pragma unroll
      for (int k = 0; k < kPiece; ++k) {
        const int channel = (i * kPiece + k) / kTaps;
        place(channel, i * kPiece + k - channel * kTaps, piece.at[k]);
      }
    }
    return finite;
  }
#pragma unroll 4
  for (int i = threadIdx.x; i < kCount; i += blockDim.x) {
    const int channel = i / kTaps, tap = i - channel * kTaps;
    if (first + channel < s.channels)
      place(channel, tap,
            static_cast<const T*>(s.weight)[(first + channel) * s.weight_channel + tap / kSize * s.weight_row +
                                            tap % kSize * s.weight_column]);
  }
  return finite;
}

/// A block's results, once all of them are stored, where its weight is not finite: `scale` of them a row and a column
/// of the ring's, from (row, column) on.
template <class Config>
__device__ __forceinline__ void mend_block(const ConvProblem& p, const RingShape& s, int scale = 1, int row = 0,
                                           int column = 0) {
  const int wide = s.warps * Config::kWide;
  __syncthreads();
  for (RingCursor<0> at(s, wide); at.any(); at.leave(s, wide))
    mend_box<typename Config::T>(
        p,
        {at.n, row + scale * at.first, scale * (at.last - at.first), column + scale * at.column, scale * wide,
         static_cast<int>(blockIdx.x) * Config::kChannels, Config::kChannels},
        threadIdx.x, blockDim.x);
}

/// A row's products with all rows of taps.
template <class Config, int kPhase>
__device__ __forceinline__ void add_row(
    float (&sum)[Config::kSize][Config::kWide][Config::kOwn], const float (&in)[Config::kSpan][Config::kOwn],
    cuda::Pack<typename Config::T, Config::kOwn> (&weight)[Config::kSize][Config::kSize]) {
#pragma unroll
  for (int i = 0; i < Config::kSize; ++i)
#pragma unroll
    for (int j = 0; j < Config::kSize; ++j) {
      if constexpr (Config::kPacked) keep_packed(weight[i][j]);
      float w[Config::kOwn];
      cuda::widen_pack(weight[i][j], w);
#pragma unroll
      for (int k = 0; k < Config::kWide; ++k)
#pragma unroll
        for (int c = 0; c < Config::kOwn; ++c) {
          float& to = sum[Config::slot(kPhase, i)][k][c];
          to = i + j == 0 ? in[k][c] * w[c] : fmaf(in[k + j][c], w[c], to);
        }
    }
}

/// The bias of the thread's channels.
template <class T, int kOwn>
__device__ __forceinline__ void load_bias(float (&bias)[kOwn], const RingShape& s, int channel) {
  if (s.bias && channel < s.channels)
#pragma unroll
    for (int c = 0; c < kOwn; ++c) bias[c] = cuda::widen(static_cast<const T*>(s.bias)[(channel + c) * s.bias_stride]);
}

/// Whether row q of a segment is one of the source's.
__device__ __forceinline__ bool is_inside(const RingShape& s, int row) {
  return static_cast<unsigned>(row) < static_cast<unsigned>(s.height);
}

/// A warp's results of one row, of which `columns` exist.
template <class T, int kWide, int kOwn>
__device__ __forceinline__ void store_columns(T* to, const RingShape& s, float (&sum)[kWide][kOwn],
                                              const float (&bias)[kOwn], int columns) {
#pragma unroll
  for (int k = 0; k < kWide; ++k) {
    if (s.bias)
#pragma unroll
      for (int c = 0; c < kOwn; ++c) sum[k][c] += bias[c];
    if (k < columns) cuda::store_pack(to + int64_t{k} * s.other_pixel, cuda::convert_pack<T>(sum[k]));
  }
}

template <class Config>
__global__ void __launch_bounds__(32 * kRingWarps, Config::kBlocks)
    ring_image(const __grid_constant__ CUtensorMap source, const __grid_constant__ RingShape s,
               const __grid_constant__ ConvProblem p) {
  using T = typename Config::T;
  constexpr int kSize = Config::kSize, kOwn = Config::kOwn, kWide = Config::kWide, kLast = kSize - 1;
  if constexpr (!ptx::kHasClusters) return;  // without TMA it is never launched
  extern __shared__ __align__(128) unsigned char raw[];
  T* const taps = reinterpret_cast<T*>(raw);
  Ring<Config, false> ring(raw + RingLayout<Config>::kWeight, s, source);
  ring.start(s, source, nullptr);
  const bool finite = __syncthreads_and(gather_weight<Config>(taps, s));
  cuda::Pack<T, kOwn> weight[kSize][kSize];
#pragma unroll
  for (int i = 0; i < Config::kTaps; ++i)
    weight[i / kSize][i % kSize] =
        cuda::load_pack<kOwn>(taps + i * Config::kChannels + static_cast<int>(threadIdx.x) % 32 * kOwn);
  const int channel = blockIdx.x * Config::kChannels + threadIdx.x % 32 * kOwn;
  float bias[kOwn] = {};
  load_bias<T>(bias, s, channel);
  const int wide = s.warps * kWide;
  for (RingCursor<Config::kReach> at(s, wide); at.any(); at.leave(s, wide)) {
    float sum[kSize][kWide][kOwn] = {};
    const int column = at.column + threadIdx.x / 32 * kWide, steps = at.steps(), top = at.first - s.top;
    T* const result = static_cast<T*>(s.result) + at.n * s.other_batch + at.first * s.other_row +
                      int64_t{column} * s.other_pixel + channel;
    const int columns = channel < s.channels ? s.out_width - column : 0;
    const auto step = [&]<int kPhase>(int q) {
      ring.wait();
      if (is_inside(s, top + q)) {
        float in[Config::kSpan][kOwn];
        take_columns(ring.line(), in);
        ring.release(s, source, nullptr);
        add_row<Config, kPhase>(sum, in, weight);
      } else {
        ring.release(s, source, nullptr);
#pragma unroll
        for (int k = 0; k < kWide; ++k)
#pragma unroll
          for (int c = 0; c < kOwn; ++c) sum[Config::slot(kPhase, 0)][k][c] = 0;
      }
      if (q >= kLast)
        store_columns<T>(result + (q - kLast) * s.other_row, s, sum[Config::slot(kPhase, kLast)], bias, columns);
      if constexpr (Config::kPhases == 1)
#pragma unroll
        for (int i = kLast; i > 0; --i)
#pragma unroll
          for (int k = 0; k < kWide; ++k)
#pragma unroll
            for (int c = 0; c < kOwn; ++c) sum[i][k][c] = sum[i - 1][k][c];
    };
    for (int q = 0; q < steps; q += Config::kPhases) {
      step.template operator()<0>(q);
      if constexpr (Config::kPhases == 3) {
        if (q + 1 < steps) step.template operator()<1>(q + 1);
        if (q + 2 < steps) step.template operator()<2>(q + 2);
      }
    }
  }
  if (!finite) mend_block<Config>(p, s);
}

/// A source row's products with the kSize rows of grad that it meets.
template <class Config, int kPhase>
__device__ __forceinline__ void add_taps(
    float (&sum)[Config::kSize][Config::kSize][Config::kOwn], const float (&in)[Config::kSpan][Config::kOwn],
    cuda::Pack<typename Config::T, Config::kOwn> (&g)[Config::kSize][Config::kWide]) {
#pragma unroll
  for (int i = 0; i < Config::kSize; ++i)
#pragma unroll
    for (int k = 0; k < Config::kWide; ++k) {
      auto& packed = g[Config::slot(kPhase, i)][k];
      keep_packed(packed);
      float along[Config::kOwn];
      cuda::widen_pack(packed, along);
#pragma unroll
      for (int j = 0; j < Config::kSize; ++j)
#pragma unroll
        for (int c = 0; c < Config::kOwn; ++c) sum[i][j][c] = fmaf(in[k + j][c], along[c], sum[i][j][c]);
    }
}

/// Adds the warps' sums in ascending order: sums[block, tap, channel].
template <class Config>
__device__ __forceinline__ void store_taps(unsigned char* memory, const RingShape& s,
                                           const float (&sum)[Config::kSize][Config::kSize][Config::kOwn]) {
  constexpr int kCount = Config::kTaps * Config::kChannels;
  float* const all = reinterpret_cast<float*>(memory);  // [warps, taps, channels]
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Config::kTaps; ++i)
#pragma unroll
    for (int c = 0; c < Config::kOwn; ++c)
      all[threadIdx.x / 32 * kCount + i * Config::kChannels + threadIdx.x % 32 * Config::kOwn + c] =
          sum[i / Config::kSize][i % Config::kSize][c];
  __syncthreads();
  for (int i = threadIdx.x; i < kCount; i += blockDim.x) {
    const int tap = i / Config::kChannels, channel = blockIdx.x * Config::kChannels + i % Config::kChannels;
    float whole = all[i];
    for (int k = 1; k < s.warps; ++k) whole += all[k * kCount + i];
    if (channel < s.channels) s.sums[(int64_t{blockIdx.y} * Config::kTaps + tap) * s.channels + channel] = whole;
  }
}

template <class Config>
__global__ void __launch_bounds__(32 * kRingWarps, Config::kBlocks)
    ring_weight(const __grid_constant__ CUtensorMap source, const __grid_constant__ CUtensorMap grad,
                const __grid_constant__ RingShape s) {
  using T = typename Config::T;
  constexpr int kSize = Config::kSize, kOwn = Config::kOwn, kWide = Config::kWide;
  if constexpr (!ptx::kHasClusters) return;  // without TMA it is never launched
  extern __shared__ __align__(128) unsigned char raw[];
  Ring<Config, true> ring(raw, s, source);
  ring.start(s, source, &grad);
  float sum[kSize][kSize][kOwn] = {};
  const int wide = s.warps * kWide;
  for (RingCursor<Config::kReach> at(s, wide); at.any(); at.leave(s, wide)) {
    cuda::Pack<T, kOwn> g[kSize][kWide] = {};
    const int rows = at.last - at.first, steps = at.steps(), top = at.first - s.top;
    const auto step = [&]<int kPhase>(int q) {
      ring.wait();
      if constexpr (Config::kPhases == 1)
#pragma unroll
        for (int i = kSize - 1; i > 0; --i)
#pragma unroll
          for (int k = 0; k < kWide; ++k) g[i][k] = g[i - 1][k];
      auto& fresh = g[Config::slot(kPhase, 0)];
#pragma unroll
      for (int k = 0; k < kWide; ++k) {
        fresh[k] = {};
        if (q < rows) fresh[k] = cuda::load_pack<kOwn>(ring.grads() + k * Config::kChannels);
      }
      float in[Config::kSpan][kOwn];
      const bool inside = is_inside(s, top + q);
      if (inside) take_columns(ring.line(), in);
      ring.release(s, source, &grad);
      if (inside) add_taps<Config, kPhase>(sum, in, g);
    };
    for (int q = 0; q < steps; q += Config::kPhases) {
      step.template operator()<0>(q);
      if constexpr (Config::kPhases == 3) {
        if (q + 1 < steps) step.template operator()<1>(q + 1);
        if (q + 2 < steps) step.template operator()<2>(q + 2);
      }
    }
  }
  store_taps<Config>(raw, s, sum);
}

}  // namespace tenor::conv
