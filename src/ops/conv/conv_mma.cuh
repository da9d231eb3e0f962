// What both portable kernels share: a block's product of two tiles in shared memory, by mma.sync.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "src/cuda/ptx/async_copy.cuh"
#include "src/cuda/ptx/mma.cuh"
#include "src/cuda/ptx/swizzle.cuh"

namespace tenor::conv::mma {

namespace ptx = tenor::cuda::ptx;

inline constexpr int kThreads = 256, kStages = 3;
inline constexpr int kRows = 128, kStep = 64;  ///< of a block's tile; products an element a step
inline constexpr int kOwnRows = 32;            ///< of a warp: four down, two across

/// A warp's sums: d[i][j] is mma's tile of rows 16 i and columns 8 j on.
template <int kColumns>
struct Sums {
  static constexpr int kAcross = kColumns / 16;
  float d[kOwnRows / 16][kAcross][4] = {};
};

/// Where a warp's part of the tile begins.
struct WarpPlace {
  int row, column;
};
template <int kColumns>
__device__ __forceinline__ WarpPlace warp_place() {
  const int warp = threadIdx.x / 32;
  return {warp % 4 * kOwnRows, warp / 4 * (kColumns / 2)};
}

/// Sums += one step. Of `kOuter` tiles the summed dim is outermost: lines of 64 rows (columns), the next 64 a tile of
/// kStep lines further on; else a line is a row (column) of kStep products.
template <class T, int kColumns, bool kOuter>
__device__ __forceinline__ void add_step(Sums<kColumns>& sums, const T* a, const T* b) {
  const WarpPlace own = warp_place<kColumns>();
  const int lane = threadIdx.x % 32;
  const uint32_t from_a = ptx::shared_address(a), from_b = ptx::shared_address(b);
#pragma unroll
  for (int k = 0; k < kStep / 16; ++k) {
    uint32_t left[kOwnRows / 16][4];
#pragma unroll
    for (int i = 0; i < kOwnRows / 16; ++i) {
      const int row = own.row + 16 * i;
      if constexpr (kOuter)
        ptx::ldmatrix_x4_transposed(left[i], from_a + ptx::swizzled_tile<kStep * 128>(16 * k + lane / 16 * 8 + lane % 8,
                                                                                      row / 8 + lane / 8 % 2));
      else
        ptx::ldmatrix_x4(left[i], from_a + ptx::swizzled_line(row + lane % 16, 2 * k + lane / 16));
    }
#pragma unroll
    for (int j = 0; j < Sums<kColumns>::kAcross; j += 2) {
      const int column = own.column + 8 * j;
      uint32_t right[4];
      if constexpr (kOuter)
        ptx::ldmatrix_x4_transposed(
            right, from_b + ptx::swizzled_tile<kStep * 128>(16 * k + lane % 16, column / 8 + lane / 16));
      else
        ptx::ldmatrix_x4(right, from_b + ptx::swizzled_line(column + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < kOwnRows / 16; ++i) {
        const uint32_t(&x)[4] = left[i];
        ptx::mma_m16n8k16<T>(sums.d[i][j], x[0], x[1], x[2], x[3], right[0], right[1]);
        ptx::mma_m16n8k16<T>(sums.d[i][j + 1], x[0], x[1], x[2], x[3], right[2], right[3]);
      }
    }
  }
}

}  // namespace tenor::conv::mma
