// How the Hopper GEMM writes C: bias, rounding, and a store by TMA or, where TMA cannot, by threads.
#pragma once

#include <cuda.h>

#include "src/cuda/ptx/tma.cuh"
#include "src/cuda/ptx/wgmma.cuh"

namespace tenor::cuda::gemm {

namespace ptx = tenor::cuda::ptx;

inline constexpr int kTileM = 128, kTileK = 64;
inline constexpr int kConsumers = 2, kThreads = 128 * (kConsumers + 1);

/// Columns of a box of C that TMA stores: a swizzled line of 128 bytes, or 64.
template <int kColumns>
inline constexpr int kStoreColumns = kColumns % 64 == 0 ? 64 : 32;

/// What a launch needs. Tiles count clusters.
struct GemmShape {
  int m, n, k;
  int tiles_m, tiles_n;
  int batch[2];
  bool shared_a[2], shared_b[2];  ///< one matrix for that dim of the batch
  bool tma_store;                 ///< C has the operands' dtype and lies as TMA asks
  bool float_result, bias_float;
  void* c;
  int64_t stride_c, column_c, batch_c[2];
  const void* bias;
  int64_t bias_row, bias_column;
};

template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high);
template <>
__device__ __forceinline__ uint32_t pack<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&two);
}
template <>
__device__ __forceinline__ uint32_t pack<__half>(float low, float high) {
  const __half2 two = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&two);
}

/// The row and column of accumulator i of this thread, in its warpgroup's tile (ptx::wgmma says how they lie).
__device__ __forceinline__ int accumulator_row(int i) {
  return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + (i & 2) * 4;
}
__device__ __forceinline__ int accumulator_column(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + (i & 1); }

template <class T>
__device__ __forceinline__ float bias_at(const GemmShape& shape, int64_t at) {
  return shape.bias_float ? static_cast<const float*>(shape.bias)[at]
                          : static_cast<float>(static_cast<const T*>(shape.bias)[at]);
}

/// Adds the bias of each row (bias_row not 0) or of each column.
template <class T, int kCount>
__device__ void add_bias(float (&d)[kCount], const GemmShape& shape, int y, int x) {
  if (shape.bias_row != 0) {
    const int top = min(y + accumulator_row(0), shape.m - 1), low = min(y + accumulator_row(2), shape.m - 1);
    const float first = bias_at<T>(shape, top * shape.bias_row), second = bias_at<T>(shape, low * shape.bias_row);
#pragma unroll
    for (int i = 0; i < kCount; ++i) d[i] += i & 2 ? second : first;
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    const int column = x + accumulator_column(i);
    const float left = bias_at<T>(shape, min(column, shape.n - 1) * shape.bias_column);
    const float right = bias_at<T>(shape, min(column + 1, shape.n - 1) * shape.bias_column);
    d[i] += left, d[i + 1] += right, d[i + 2] += left, d[i + 3] += right;
  }
}

/// Rounds 64 x kColumns accumulators to T and stores them through shared memory, two boxes in turn.
template <class T, int kColumns>
__device__ void store_rounded(T (&staging)[2][64 * kStoreColumns<kColumns>], const float (&d)[kColumns / 2],
                              const CUtensorMap& map, int y, int x, int z, int w, int barrier) {
  constexpr int kBox = kStoreColumns<kColumns>, kChunks = kBox / 8;
  const int lane = threadIdx.x % 32, matrix = lane / 8, row = threadIdx.x % 128 / 32 * 16 + (matrix & 1) * 8 + lane % 8;
  const int swizzle = kBox == 64 ? row & 7 : row >> 1 & 3;
#pragma unroll
  for (int box = 0; box < kColumns / kBox; ++box) {
    // The box before the last has left its place; the first of an odd count takes the last's.
    constexpr bool kOdd = kColumns / kBox % 2;
    if (threadIdx.x % 128 == 0) {
      if (kOdd && box == 0)
        ptx::tma_store_wait_read<0>();
      else
        ptx::tma_store_wait_read<1>();
    }
    asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory");
#pragma unroll
    for (int pair = 0; pair < kChunks / 2; ++pair) {  // two groups of 8 columns a stmatrix
      const int j = 4 * (box * kChunks + pair * 2);
      T* line = staging[box % 2] + row * kBox + (((pair * 2 + (matrix >> 1)) ^ swizzle) * 8);
      ptx::stmatrix_x4(line, pack<T>(d[j], d[j + 1]), pack<T>(d[j + 2], d[j + 3]), pack<T>(d[j + 4], d[j + 5]),
                       pack<T>(d[j + 6], d[j + 7]));
    }
    ptx::fence_async_proxy();
    asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory");
    if (threadIdx.x % 128 == 0) {
      ptx::tma_store_4d(&map, staging[box % 2], x + box * kBox, y, z, w);
      ptx::tma_store_commit();
    }
  }
}

/// Stores accumulators element by element: C of any strides, of T or float32, rows that end inside 16 bytes.
template <class T, int kCount>
__device__ void store_elements(const float (&d)[kCount], const GemmShape& shape, int y, int x, int z, int w) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int row = y + accumulator_row(i), column = x + accumulator_column(i);
    if (row >= shape.m || column >= shape.n) continue;
    const int64_t at = z * shape.batch_c[0] + w * shape.batch_c[1] + row * shape.stride_c + column * shape.column_c;
    if (shape.float_result)
      static_cast<float*>(shape.c)[at] = d[i];
    else
      static_cast<T*>(shape.c)[at] = static_cast<T>(d[i]);
  }
}

template <class T, int kColumns>
__device__ void store_tile(T (&staging)[2][64 * kStoreColumns<kColumns>], float (&d)[kColumns / 2],
                           const GemmShape& shape, const CUtensorMap& map, int y, int x, int z, int w, int barrier) {
  if (shape.bias) add_bias<T>(d, shape, y, x);
  if (shape.tma_store)
    store_rounded<T, kColumns>(staging, d, map, y, x, z, w, barrier);
  else
    store_elements<T>(d, shape, y, x, z, w);
}

}  // namespace tenor::cuda::gemm
