// The first kernel of the chunk form by TF32 products where each channel has a decay of its own: as chunk_channels.cuh,
// with rows of the operands' type and squares of float32. Norms and the scale stay weights of steps, as the second
// kernel takes them, so that float16's decayed rows never exceed what they were.
#pragma once

#include "src/ops/gated_delta/chunk_channels.cuh"
#include "src/ops/gated_delta/chunk_tf32_prepare.cuh"

namespace tenor::delta {

/// Two blocks of float16 fit a multiprocessor.
template <class T, int kKeyDim_>
struct Tf32ChannelShared : ChannelNumbers<kKeyDim_> {
  using Element = T;
  static constexpr int kKeyDim = kKeyDim_;
  static constexpr bool kFine = kIsFine<T>, kHasNorms = false;
  alignas(128) Tf32ChannelFactors<T, kKeyDim> made;
  float lower[kChunk][kPad];

  /// Where the squares will be.
  __device__ auto& sums() {
    static_assert(sizeof(ChannelSums<kKeyDim>) <= 2 * sizeof(made.rest.squares.attend));
    return *reinterpret_cast<ChannelSums<kKeyDim>*>(made.rest.squares.attend);
  }
  __device__ auto& keys() { return made.rows.key; }
  __device__ auto& queries() { return made.rows.query; }
  __device__ auto& updates() { return made.rest.update; }
  __device__ auto& decays() { return made.rest.decay; }
  template <class Rows>
  static __device__ __forceinline__ auto& eight(Rows& rows, int row, int channel) {
    return *reinterpret_cast<cuda::Pack<T, 8>*>(&rows[row][channel]);
  }
  template <class Rows>
  static __device__ __forceinline__ float2 two(const Rows& rows, int row, int channel) {
    return two_of(&rows[row][channel]);
  }
  __device__ __forceinline__ void set_attend(int i, int j, float x) {
    made.rest.squares.attend[i][j] = square_element<kFine>(x);
  }
  __device__ __forceinline__ void clear_attend() {
    float* attend = &made.rest.squares.attend[0][0];
    for (int at = threadIdx.x; at < kChunk * kSquarePitch; at += kChannelThreads) attend[at] = 0;
  }
};

/// As for tiles of bfloat16.
template <class T, int kKeyDim, class Rows>
__device__ __forceinline__ void block_products(const ChannelChunk<Tf32ChannelShared<T, kKeyDim>>& chunk,
                                               float (&by)[kBlocks - 1][2][4], const Rows& rows, int w) {
  constexpr bool kFine = kIsFine<T>;
  if (w == 0) return;
  const int lane = threadIdx.x % 32, row = kBlock * w + lane / 4;
#pragma unroll 2
  for (int k = 0; k < kKeyDim; k += 8) {
    const int channel = k + lane % 4 * 2;
    float x[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 sums = chunk.sums_of(row + 8 * half, channel), two = two_of(&rows[row + 8 * half][channel]);
      x[2 * half] = two.x * exp2_fast(sums.x), x[2 * half + 1] = two.y * exp2_fast(sums.y);
    }
#pragma unroll
    for (int m = kBlocks - 2; m >= 0; --m) {
      if (m >= w) continue;
      const Tf32Factor<kFine, 4> a(x);
#pragma unroll
      for (int h = 0; h < 2; ++h)
        multiply_tf32<kFine>(
            by[m][h], a, exact_factor<kFine>(two_of(&chunk.shared.updates()[kBlock * m + 8 * h + lane / 4][channel])));
      const float2 block = chunk.sums_of(kBlock * m + kBlock - 1, channel);
      const float decay[2] = {exp2_fast(block.x), exp2_fast(block.y)};
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] *= decay[i % 2];
    }
  }
}

template <class T, int kKeyDim, class Rows>
__device__ __forceinline__ void corner_products(const ChannelChunk<Tf32ChannelShared<T, kKeyDim>>& chunk,
                                                float (&to)[4], const Rows& rows, int w) {
  constexpr bool kFine = kIsFine<T>;
  const int lane = threadIdx.x % 32;
#pragma unroll 4
  for (int k = 0; k < kKeyDim; k += 8) {
    const auto [x, key] = chunk.corner_factors(rows, kBlock * w + lane / 4, k + lane % 4 * 2);
    multiply_tf32<kFine>(to, Tf32Factor<kFine, 4>({0, 0, x.x, x.y}), Tf32Factor<kFine, 2>({key.x, key.y}));
  }
}

/// What the second kernel weighs steps by, NaN from the first one on that is no number.
template <class Shared>
__device__ __forceinline__ void set_channel_weights(Shared& shared, int valid) {
  const int i = threadIdx.x, good = shared.good;
  if (i >= kChunk) return;
  auto& weights = shared.made.rest.squares.weights;
  const float number = i >= good && i < valid ? NAN : i < valid ? 1.0f : 0.0f;
  weights[0][i] = weights[2][i] = number * shared.key_norm[i];
  weights[1][i] = number * shared.query_norm[i], weights[3][i] = 0;
}

/// Dynamic shared memory: Tf32ChannelShared.
template <class T, int kKeyDim>
__global__ void __launch_bounds__(kChannelThreads, kIsFine<T> ? 1 : 2)
    prepare_tf32_channels_kernel(const __grid_constant__ DeviceProblem p, Tf32ChannelFactors<T, kKeyDim>* factors) {
  if constexpr (!ptx::kIsHopper) return;  // in PTX for other devices the kernel is empty, and never launched
  using Shared = Tf32ChannelShared<T, kKeyDim>;
  extern __shared__ __align__(1024) unsigned char channel_memory[];
  auto& shared = *reinterpret_cast<Shared*>(channel_memory);
  ptx::launch_dependents();
  const ChunkTask t(p, block_slot(p));
  if (t.valid <= 0) return;
  load_rows<Shared, T, kKeyDim>(shared, shared.keys(), shared.queries(), p, t);
  const ChannelChunk<Shared> chunk{shared, p, t};
  chunk.sum_decays();
  ptx::mbarrier_wait(&shared.barrier, 0);
  chunk.make();
  set_channel_weights(shared, t.valid);
  if (threadIdx.x < 32 * kBlocks)
    make_solve<kIsFine<T>>(shared.lower, shared.made.rest.squares.solve, shared.beta, shared.good);
  store_factors(factors, p, t, shared.made);
}

}  // namespace tenor::delta
