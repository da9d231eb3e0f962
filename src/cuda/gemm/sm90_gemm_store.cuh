// How the Hopper GEMM writes C: bias, rounding, and a store by TMA or, where TMA cannot, by threads.
#pragma once

#include <cuda.h>

#include "src/cuda/gemm/sm90_gemm_carry.cuh"
#include "src/cuda/ptx/tma.cuh"
#include "src/cuda/ptx/wgmma.cuh"

namespace tenor::cuda::gemm {

namespace ptx = tenor::cuda::ptx;

inline constexpr int kTileM = 128, kTileK = 64;
inline constexpr int kConsumers = 2;  ///< warpgroups that compute, of most kernels

/// Columns of a box of C that TMA stores: a swizzled line of 128 bytes, or 64.
template <int kColumns>
inline constexpr int kStoreColumns = kColumns % 64 == 0 ? 64 : 32;
inline constexpr int kStaging = 64 * 64;  ///< elements of a warpgroup's box on its way out, where C may lie turned
inline constexpr int kTurnedBoxes = 8;    ///< boxes of eight lines in it, and threads that store one each

/// What a launch needs. Tiles count clusters.
struct GemmShape {
  int m, n, k;
  int tiles_m, tiles_n;
  int split;  ///< tiles that are dealt by steps (sm90_gemm_carry.cuh)
  CarrySpace carry;
  int batch[2];
  bool shared_a[2], shared_b[2];  ///< one matrix for that dim of the batch
  bool tma_store;                 ///< C has the operands' dtype and lies as TMA asks
  bool turned;                    ///< it lies so with its columns along memory's rows
  bool float_result, bias_float;
  void* c;
  int64_t stride_c, column_c, batch_c[2];
  const void* bias;
  int64_t bias_row, bias_column;
};

__device__ __forceinline__ int steps_of(const GemmShape& shape) { return (shape.k + kTileK - 1) / kTileK; }

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

/// Until the box before the last (or `all`) that the warpgroup's first `threads` stored has left its place.
__device__ __forceinline__ void wait_for_staging(bool all, int threads, int barrier) {
  if (threadIdx.x % 128 < threads) {
    if (all)
      ptx::tma_store_wait_read<0>();
    else
      ptx::tma_store_wait_read<1>();
  }
  warpgroup_sync(barrier);
}

/// Rows of a box that has been rounded, below `rows`, to C by threads, 16 bytes at a time: where TMA would write rows
/// of another group.
template <class T, int kBox>
__device__ __forceinline__ void store_box_rows(const T* box, const GemmShape& shape, int rows, int y, int x) {
  constexpr int kChunks = kBox / 8;
  for (int i = threadIdx.x % 128; i < rows * kChunks; i += 128) {
    const int row = i / kChunks, chunk = i % kChunks, swizzle = kBox == 64 ? row & 7 : row >> 1 & 3;
    if (x + chunk * 8 >= shape.n) continue;
    *reinterpret_cast<uint4*>(static_cast<T*>(shape.c) + (y + row) * shape.stride_c + x + chunk * 8) =
        *reinterpret_cast<const uint4*>(box + row * kBox + (chunk ^ swizzle) * 8);
  }
}

/// Rounds 64 x kColumns accumulators, the first of d, to T and stores them through shared memory, two boxes in turn; of
/// kRagged tiles the first `rows` only.
template <class T, int kColumns, bool kRagged, int kBoxSize, int kCount>
__device__ void store_rounded(T (&staging)[2][kBoxSize], const float (&d)[kCount], const GemmShape& shape,
                              const CUtensorMap& map, int rows, int y, int x, int z, int w, int barrier) {
  constexpr int kBox = kStoreColumns<kColumns>, kChunks = kBox / 8;
  const int lane = threadIdx.x % 32, matrix = lane / 8, row = threadIdx.x % 128 / 32 * 16 + (matrix & 1) * 8 + lane % 8;
  const int swizzle = kBox == 64 ? row & 7 : row >> 1 & 3;
#pragma unroll
  for (int box = 0; box < kColumns / kBox; ++box) {
    // The box before the last has left its place; the first of an odd count takes the last's.
    constexpr bool kOdd = kColumns / kBox % 2;
    wait_for_staging(kOdd && box == 0, 1, barrier);
#pragma unroll
    for (int pair = 0; pair < kChunks / 2; ++pair) {  // two groups of 8 columns a stmatrix
      const int j = 4 * (box * kChunks + pair * 2);
      T* line = staging[box % 2] + row * kBox + (((pair * 2 + (matrix >> 1)) ^ swizzle) * 8);
      ptx::stmatrix_x4(line, pack<T>(d[j], d[j + 1]), pack<T>(d[j + 2], d[j + 3]), pack<T>(d[j + 4], d[j + 5]),
                       pack<T>(d[j + 6], d[j + 7]));
    }
    ptx::fence_async_proxy();
    warpgroup_sync(barrier);
    const bool whole = !kRagged || rows >= 64;
    if (!whole) store_box_rows<T, kBox>(staging[box % 2], shape, rows, y, x + box * kBox);
    if (threadIdx.x % 128 == 0) {
      if (whole) ptx::tma_store_4d(&map, staging[box % 2], x + box * kBox, y, z, w);
      ptx::tma_store_commit();  // an empty group too: boxes are waited for by their number
    }
  }
}

/// Likewise where C's memory has the tile's columns as rows: eight of them a box, 64 columns in turn.
template <class T, int kColumns, int kCount>
__device__ void store_turned(T (&staging)[2][kStaging], const float (&d)[kCount], const CUtensorMap& map, int y, int x,
                             int z, int w, int barrier) {
  constexpr int kLast = kColumns / 8 - 1;
  constexpr bool kOdd = (kLast / 8 + 1) % 2;
  const int line = threadIdx.x % 8, chunk = threadIdx.x % 128 / 32 * 2 + threadIdx.x % 16 / 8, own = threadIdx.x % 128;
#pragma unroll
  for (int j = 0; j <= kLast; ++j) {  // eight of the tile's columns
    T* piece = staging[j / 8 % 2];
    if (j % 8 == 0) wait_for_staging(kOdd && j == 0, kTurnedBoxes, barrier);
    ptx::stmatrix_x2_turned(piece + (j % 8 * 8 + line) * 64 + (chunk ^ line) * 8, pack<T>(d[4 * j], d[4 * j + 1]),
                            pack<T>(d[4 * j + 2], d[4 * j + 3]));
    if (j % 8 < 7 && j < kLast) continue;
    ptx::fence_async_proxy();
    warpgroup_sync(barrier);
    if (own < kTurnedBoxes) {
      if (own <= j % 8) ptx::tma_store_4d(&map, piece + own * 8 * 64, y, x + (j / 8 * 8 + own) * 8, z, w);
      ptx::tma_store_commit();
    }
  }
}

/// Adds its bias to one element and stores it, wherever it lies.
template <class T>
__device__ __forceinline__ void store_element(float sum, const GemmShape& shape, int row, int column, int z, int w) {
  if (shape.bias) sum += bias_at<T>(shape, row * shape.bias_row + column * shape.bias_column);
  const int64_t at = z * shape.batch_c[0] + w * shape.batch_c[1] + row * shape.stride_c + column * shape.column_c;
  if (shape.float_result)
    static_cast<float*>(shape.c)[at] = sum;
  else
    static_cast<T*>(shape.c)[at] = static_cast<T>(sum);
}

/// Stores accumulators element by element, rows below `last` only: C of any strides, of T or float32, rows that end
/// inside 16 bytes.
template <class T, int kColumns, int kCount>
__device__ void store_elements(const float (&d)[kCount], const GemmShape& shape, int last, int y, int x, int z, int w) {
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    const int row = y + accumulator_row(i), column = x + accumulator_column(i);
    if (row >= last || column >= shape.n) continue;
    const int64_t at = z * shape.batch_c[0] + w * shape.batch_c[1] + row * shape.stride_c + column * shape.column_c;
    if (shape.float_result)
      static_cast<float*>(shape.c)[at] = d[i];
    else
      static_cast<T*>(shape.c)[at] = static_cast<T>(d[i]);
  }
}

/// Stores a warpgroup's tile, whose first element is (y, x); rows from `last` on are not C's or, of kRagged tiles, may
/// be another group's.
template <class T, int kColumns, bool kRagged, int kBoxSize, int kCount>
__device__ void store_tile(T (&staging)[2][kBoxSize], float (&d)[kCount], const GemmShape& shape,
                           const CUtensorMap& map, int last, int y, int x, int z, int w, int barrier) {
  if (shape.bias) add_bias<T>(d, shape, y, x);
  if constexpr (kBoxSize == kStaging)
    if (shape.tma_store && shape.turned) return store_turned<T, kColumns>(staging, d, map, y, x, z, w, barrier);
  if constexpr (kColumns % 32 == 0)
    if (shape.tma_store)
      return store_rounded<T, kColumns, kRagged>(staging, d, shape, map, min(last - y, 64), y, x, z, w, barrier);
  store_elements<T, kColumns>(d, shape, last, y, x, z, w);
}

}  // namespace tenor::cuda::gemm
