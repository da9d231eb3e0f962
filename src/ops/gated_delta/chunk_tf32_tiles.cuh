// The chunk form for float32 and float16 on the tensor cores, by TF32 products: what its two kernels share. float16
// numbers are TF32 ones, and TF32 has float32's range, which a state of float16's range would not have. float32's
// products are three of TF32 (Tf32Factor), which keeps float32's accuracy.
#pragma once

#include "src/ops/gated_delta/chunk_prepare.cuh"

namespace tenor::delta {

inline constexpr int kSquarePitch = kChunk + 8;  // floats of a square's row: pairs of eight rows in different banks

/// What the first kernel leaves for the second, as ChunkFactors; the squares without what lies above their diagonals'
/// tiles of eight.
struct Tf32Factors {
  float attend[kChunk][kSquarePitch], solve[kChunk][kSquarePitch];
  float weights[4][kChunk];
};

/// Rows of a chunk as they lie in shared memory.
template <class T, int kKeyDim>
using ChunkRows = T[kChunk][kKeyDim + 8];

/// Likewise with decays by channel, what decays within `rest`. `weights` are those of norms and the scale.
template <class T, int kKeyDim>
struct Tf32ChannelFactors {
  struct Rows {
    alignas(128) ChunkRows<T, kKeyDim> key, query;  ///< exp(G) k and exp(G) q
  };
  struct Rest {
    alignas(128) ChunkRows<T, kKeyDim> update;  ///< exp(G_C - G) k
    Tf32Factors squares;
    float decay[kKeyDim];  ///< exp(G_C)
  };
  Rows rows;
  Rest rest;
};

template <class T>
inline constexpr bool kIsFine = sizeof(T) == sizeof(float);

/// Neighbours of a row.
template <class T>
__device__ __forceinline__ float2 two_of(const T* at) {
  if constexpr (kIsFine<T>) {
    return *reinterpret_cast<const float2*>(at);
  } else {
    const auto two = *reinterpret_cast<const cuda::Pack<T, 2>*>(at);
    return make_float2(cuda::convert<float>(two.at[0]), cuda::convert<float>(two.at[1]));
  }
}

/// A factor's numbers, which need no rounding where they are of 16 bits or rounded before.
template <bool kFine, int kCount>
__device__ __forceinline__ Tf32Factor<kFine, kCount> exact_factor(const float (&x)[kCount]) {
  if constexpr (kFine) {
    return Tf32Factor<true, kCount>(x);
  } else {
    Tf32Factor<false, kCount> factor;
#pragma unroll
    for (int i = 0; i < kCount; ++i) factor.high[i] = x[i];
    return factor;
  }
}
template <bool kFine>
__device__ __forceinline__ Tf32Factor<kFine, 2> exact_factor(float2 x) {
  return exact_factor<kFine, 2>({x.x, x.y});
}

/// Bytes that copy_rows brings.
template <class T, int kKeyDim>
__device__ __forceinline__ uint32_t row_bytes(int rows) {
  return static_cast<uint32_t>(rows) * kKeyDim * sizeof(T);
}

/// Copies rows [0, valid) of a chunk in so many threads, each of which starts its own; the rest is zeros.
template <class T, int kKeyDim>
__device__ __forceinline__ void copy_rows(ChunkRows<T, kKeyDim>& to, const T* from, int64_t stride, int valid,
                                          int first, int threads, uint64_t* barrier) {
  for (int row = first; row < valid; row += threads)
    ptx::bulk_load(to[row], from + row * stride, kKeyDim * sizeof(T), barrier);
}
template <class T, int kKeyDim>
__device__ __forceinline__ void clear_rows(ChunkRows<T, kKeyDim>& rows, int valid, int first, int threads) {
  constexpr int kPieces = kKeyDim * static_cast<int>(sizeof(T)) / 16;
  for (int at = first; at < (kChunk - valid) * kPieces; at += threads)
    reinterpret_cast<uint4*>(rows[valid + at / kPieces])[at % kPieces] = make_uint4(0, 0, 0, 0);
}

}  // namespace tenor::delta
