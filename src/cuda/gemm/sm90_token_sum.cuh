// One token's end of a mixture of experts, in the launch that makes its rows: the last block that has written some
// columns of all of them adds those up.
#pragma once

#include "src/cuda/gemm/sm90_gemm_store.cuh"
#include "src/cuda/gemm/sm90_grouped.h"

namespace tenor::cuda::gemm {

template <class T>
__device__ __forceinline__ float float_or(const void* x, bool is_float, int at) {
  return is_float ? static_cast<const float*>(x)[at] : static_cast<float>(static_cast<const T*>(x)[at]);
}

/// Column `column` of the sum; rows are read past L1, where other blocks' do not show.
template <class T>
__device__ __forceinline__ float token_sum(const GemmShape& c, const TokenSum& sum, int column) {
  float total = 0;
#pragma unroll 8
  for (int s = 0; s < sum.slots; ++s) {
    const auto* at = static_cast<const unsigned short*>(c.c) + sum.rows[s] * c.stride_c + column;
    const unsigned short bits = __ldcg(at);
    const auto y = static_cast<float>(*reinterpret_cast<const T*>(&bits));
    total = __fadd_rn(total, __fmul_rn(float_or<T>(sum.weights, sum.float_weights, s), y));
  }
  return sum.shared ? __fadd_rn(total, float_or<T>(sum.shared, sum.float_shared, column)) : total;
}

/// All threads of a block call it once their part of C is written. `ranges` rows of C are dealt to as many blocks each
/// (few_ranges), so that the blocks of a piece of the columns are as many as there are rows.
template <class T>
__device__ void finish_token(const GemmShape& c, const TokenSum& sum, int ranges) {
  __shared__ bool last;
  const int each = gridDim.x / ranges, piece = blockIdx.x % each;
  if (static_cast<int>(blockIdx.x) / each >= ranges) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(&sum.arrivals[piece], 1) == ranges - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  const int64_t n = c.n;
  const auto end = static_cast<int>(n * (piece + 1) / each);
  for (int column = static_cast<int>(n * piece / each) + threadIdx.x; column < end; column += blockDim.x)
    static_cast<T*>(sum.out)[column] = static_cast<T>(token_sum<T>(c, sum, column));
  if (threadIdx.x == 0) sum.arrivals[piece] = 0;
}

}  // namespace tenor::cuda::gemm
