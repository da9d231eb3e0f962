// float32 of the "rows" candidate on CUDA, by FMAs.
#include <cstdint>

#include "src/cuda/reduce.cuh"
#include "src/ops/contract/gemm_rows_cuda.cuh"

namespace tenor::contract {
namespace {

/// Four neighbouring floats, those past `valid` zero.
template <bool kAligned>
__device__ __forceinline__ float4 load_four(const float* p, int64_t valid) {
  if (valid <= 0) return {};
  if (kAligned && valid >= 4) return __ldg(reinterpret_cast<const float4*>(p));
  return {__ldg(p), valid > 1 ? __ldg(p + 1) : 0, valid > 2 ? __ldg(p + 2) : 0, valid > 3 ? __ldg(p + 3) : 0};
}

/// float32, the matrix's columns contiguous. A step is 128 of k, four a lane, of eight columns.
template <int kRows, bool kAligned>
__global__ void __launch_bounds__(kThreads) float_dots_kernel(const __grid_constant__ DeviceGemm p, int clusters) {
  constexpr int kCols = 8;
  __shared__ float parts[kWarps * kRows * kCols];
  const int lane = threadIdx.x % 32;
  const Share share((p.k + 127) / 128, clusters);
  for_each_strip<kCols>(p, clusters, [&](int64_t first, const int64_t(&at)[3]) {
    const float *a = static_cast<const float*>(p.a.data) + at[0], *b = static_cast<const float*>(p.b.data) + at[1];
    float sums[kRows][kCols] = {};
    for (int64_t step = share.first; step < share.last; ++step) {
      const int64_t k = step * 128 + lane * 4;
      float4 w[kCols];
#pragma unroll
      for (int c = 0; c < kCols; ++c) w[c] = load_four<kAligned>(b + min(first + c, p.n - 1) * p.b.col + k, p.k - k);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float4 x = load_four<true>(a + min(int64_t{r}, p.m - 1) * p.a.row + k, p.k - k);
#pragma unroll
        for (int c = 0; c < kCols; ++c) {
          float& s = sums[r][c];
          s = fmaf(x.x, w[c].x, s), s = fmaf(x.y, w[c].y, s), s = fmaf(x.z, w[c].z, s), s = fmaf(x.w, w[c].w, s);
        }
      }
    }
#pragma unroll
    for (int o = 0; o < kRows * kCols; ++o) {
      const float sum = cuda::warp_reduce(sums[o / kCols][o % kCols], [](float u, float v) { return u + v; });
      if (lane == o % 32) parts[threadIdx.x / 32 * kRows * kCols + o] = sum;
    }
    finish<kRows, kCols>(p, parts, first, at[2], clusters);
  });
}

/// float32, the matrix's rows contiguous: a lane holds four columns, a step is four of k.
template <int kRows, bool kAligned>
__global__ void __launch_bounds__(kThreads) float_sums_kernel(const __grid_constant__ DeviceGemm p, int clusters) {
  constexpr int kCols = 128;
  __shared__ float parts[kWarps * kRows * kCols];
  const int lane = threadIdx.x % 32;
  const Share share((p.k + 3) / 4, clusters);
  for_each_strip<kCols>(p, clusters, [&](int64_t first, const int64_t(&at)[3]) {
    const float *a = static_cast<const float*>(p.a.data) + at[0],
                *b = static_cast<const float*>(p.b.data) + at[1] + first + lane * 4;
    const int64_t cols = p.n - first - lane * 4;
    float sums[kRows][4] = {};
#pragma unroll 2
    for (int64_t step = share.first; step < share.last; ++step) {
      const int64_t k = step * 4, valid = p.k - k;
      float4 w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) w[i] = load_four<kAligned>(b + (k + i) * p.b.row, i < valid ? cols : 0);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float4 x = load_four<true>(a + min(int64_t{r}, p.m - 1) * p.a.row + k, valid);
        const float xs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float(&s)[4] = sums[r];
          s[0] = fmaf(xs[i], w[i].x, s[0]), s[1] = fmaf(xs[i], w[i].y, s[1]), s[2] = fmaf(xs[i], w[i].z, s[2]),
          s[3] = fmaf(xs[i], w[i].w, s[3]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) parts[(threadIdx.x / 32 * kRows + r) * kCols + lane * 4 + i] = sums[r][i];
    finish<kRows, kCols>(p, parts, first, at[2], clusters);
  });
}

template <bool kAligned>
RowsChoice choose(const DeviceGemm& p, bool dots) {
  if (dots) return {p.m > 1 ? float_dots_kernel<4, kAligned> : float_dots_kernel<1, kAligned>, 8};
  return {p.m > 4   ? float_sums_kernel<8, kAligned>
          : p.m > 1 ? float_sums_kernel<4, kAligned>
                    : float_sums_kernel<1, kAligned>,
          128};
}

}  // namespace

RowsChoice choose_rows_float(const DeviceGemm& p, bool dots, bool aligned) {
  return aligned ? choose<true>(p, dots) : choose<false>(p, dots);
}

}  // namespace tenor::contract
