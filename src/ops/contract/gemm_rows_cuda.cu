// The "rows" candidate on CUDA: at most 16 rows against a matrix that is read once, at the memory's speed.
//
// A block takes a strip of the matrix's columns; its eight warps split k, and where strips are few, so do the blocks of
// a cluster. Partial sums meet in shared memory in a fixed order. 16-bit operands go through the tensor cores: a sum
// does not care which k sits in which slot of a fragment, as long as both operands agree, so each lane loads 16
// neighbouring bytes of the matrix and uses them as they come. float32 is multiplied by FMAs.
#include <algorithm>

#include "src/cuda/launch.h"
#include "src/cuda/ptx/mbarrier.cuh"
#include "src/cuda/ptx/mma.cuh"
#include "src/cuda/reduce.cuh"
#include "src/cuda/vector.cuh"
#include "src/ops/contract/gemm_cuda.h"
#include "src/ops/contract/gemm_element.cuh"

namespace tenor::contract {
namespace {

namespace ptx = cuda::ptx;

constexpr int kWarps = 8, kThreads = 32 * kWarps;

/// Items [first, last) of `count` that this warp takes, of all warps of the cluster.
struct Share {
  int64_t first, last;
  __device__ Share(int64_t count, int clusters) {
    const int64_t warps = int64_t{clusters} * kWarps, each = (count + warps - 1) / warps;
    first = (int64_t{blockIdx.x} % clusters * kWarps + threadIdx.x / 32) * each;
    last = min(first + each, count);
  }
};

/// Eight neighbouring elements of two bytes, those past `valid` zero.
template <bool kAligned, class T>
__device__ __forceinline__ uint4 load_eight(const T* p, int64_t valid) {
  uint4 out{};
  if constexpr (kAligned) {
    if (valid > 0)
      asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
          : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
          : "l"(p));
  } else {
    uint32_t words[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) words[i] = i < valid ? __ldg(reinterpret_cast<const uint16_t*>(p) + i) : 0;
    out = {words[0] | words[1] << 16, words[2] | words[3] << 16, words[4] | words[5] << 16, words[6] | words[7] << 16};
  }
  return out;
}

/// Elements of a row of a, which may be read past k, as zeros there.
__device__ __forceinline__ uint32_t pair_below(uint32_t pair, int64_t left) {
  return left >= 2 ? pair : left == 1 ? pair & 0xFFFF : 0;
}
template <bool kAligned, class T>
__device__ __forceinline__ uint4 row_eight(const T* p, int64_t valid) {
  if (valid <= 0) return {};
  uint4 x = __ldg(reinterpret_cast<const uint4*>(p));
  if (!kAligned)
    x = {pair_below(x.x, valid), pair_below(x.y, valid - 2), pair_below(x.z, valid - 4), pair_below(x.w, valid - 6)};
  return x;
}
template <bool kAligned, class T>
__device__ __forceinline__ uint2 row_four(const T* p, int64_t valid) {
  if (valid <= 0) return {};
  uint2 x = __ldg(reinterpret_cast<const uint2*>(p));
  if (!kAligned || valid < 4) x = {pair_below(x.x, valid), pair_below(x.y, valid - 2)};
  return x;
}

/// Adds the warps' parts [kWarps][kRows * kCols], then the cluster's, each in order, and stores the strip from column
/// `first`.
template <int kRows, int kCols>
__device__ void finish(const DeviceGemm& p, float* parts, int64_t first, int64_t at, int clusters) {
  constexpr int kOutputs = kRows * kCols;
  __syncthreads();
  for (int o = threadIdx.x; o < kOutputs; o += kThreads) {
    float sum = parts[o];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) sum += parts[w * kOutputs + o];
    parts[o] = sum;
  }
  if (clusters > 1) ptx::cluster_sync();
  if (clusters == 1 || ptx::cluster_rank() == 0) {
    for (int o = threadIdx.x; o < kOutputs; o += kThreads) {
      const int64_t row = o / kCols, col = first + o % kCols;
      if (row >= p.m || col >= p.n) continue;
      float sum = parts[o];
      for (int r = 1; r < clusters; ++r) sum += ptx::cluster_load(parts + o, r);
      if (p.bias) sum += element<float>(p.bias, p.bias_dtype, row * p.bias_row + col * p.bias_col);
      set_element(p.c.data, p.c.dtype, at + row * p.c.row + col * p.c.col, sum);
    }
  }
  if (clusters > 1) ptx::cluster_sync();  // a block's parts stay until they have been read
  __syncthreads();
}

/// Calls fn(first column, offsets) for the strips of all batches that this block takes.
template <int kCols, class F>
__device__ __forceinline__ void for_each_strip(const DeviceGemm& p, int clusters, F&& fn) {
  for (int64_t b = blockIdx.y; b < p.batch.count; b += gridDim.y) {
    int64_t at[3];
    cuda::offsets(p.batch, b, at);
    fn(int64_t{blockIdx.x} / clusters * kCols, at);
  }
}

/// 16-bit operands, the matrix's columns contiguous (k runs along memory). A step is 32 of k: lane 4g + t holds k
/// 8t..8t+7 of columns g and g + 8 and of rows g and, where kHigh, g + 8.
template <class T, bool kAligned, bool kHigh>
__global__ void __launch_bounds__(kThreads, 2) dots_kernel(const __grid_constant__ DeviceGemm p, int clusters) {
  constexpr int kCols = 16, kRows = kHigh ? 16 : 8, kAhead = 4;
  __shared__ float parts[kWarps * kRows * kCols];
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const Share share((p.k + 31) / 32, clusters);
  for_each_strip<kCols>(p, clusters, [&](int64_t first, const int64_t(&at)[3]) {
    const T* a = static_cast<const T*>(p.a.data) + at[0] + t * 8;
    const T* b = static_cast<const T*>(p.b.data) + at[1] + t * 8;
    // Rows and columns past the end are read as the last one, and not stored.
    const T *low = a + min(int64_t{g}, p.m - 1) * p.a.row, *high = a + min(int64_t{g + 8}, p.m - 1) * p.a.row;
    const T* column[2] = {b + min(first + g, p.n - 1) * p.b.col, b + min(first + g + 8, p.n - 1) * p.b.col};
    float sums[2][4] = {};
    for (int64_t step = share.first; step < share.last; step += kAhead) {
      uint4 w[kAhead][2], x[kAhead][2];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int64_t k = (step + i) * 32, valid = step + i < share.last ? p.k - k - t * 8 : 0;
        w[i][0] = load_eight<kAligned>(column[0] + k, valid), w[i][1] = load_eight<kAligned>(column[1] + k, valid);
        x[i][0] = row_eight<kAligned>(low + k, valid);
        x[i][1] = kHigh ? row_eight<kAligned>(high + k, valid) : uint4{};
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          ptx::mma_m16n8k16<T>(sums[c], x[i][0].x, x[i][1].x, x[i][0].y, x[i][1].y, w[i][c].x, w[i][c].y);
          ptx::mma_m16n8k16<T>(sums[c], x[i][0].z, x[i][1].z, x[i][0].w, x[i][1].w, w[i][c].z, w[i][c].w);
        }
    }
    float* own = parts + threadIdx.x / 32 * kRows * kCols;
#pragma unroll
    for (int c = 0; c < 2; ++c)
#pragma unroll
      for (int i = 0; i < (kHigh ? 4 : 2); ++i) own[(g + i / 2 * 8) * kCols + c * 8 + t * 2 + i % 2] = sums[c][i];
    finish<kRows, kCols>(p, parts, first, at[2], clusters);
  });
}

/// Elements j of two rows of eight, as a pair.
__device__ __forceinline__ uint32_t pair_of(const uint4& x, const uint4& y, int j) {
  const uint32_t u = j < 4 ? (j < 2 ? x.x : x.y) : (j < 6 ? x.z : x.w),
                 v = j < 4 ? (j < 2 ? y.x : y.y) : (j < 6 ? y.z : y.w);
  return __byte_perm(u, v, j % 2 ? 0x7632 : 0x5410);
}

/// 16-bit operands, the matrix's rows contiguous. A step is 16 of k: lane 4g + t holds columns 8g..8g+7 of k 4t..4t+3,
/// so that column 8g + j is column g of the j-th fragment.
template <class T, bool kAligned, bool kHigh>
__global__ void __launch_bounds__(kThreads, 2) sums_kernel(const __grid_constant__ DeviceGemm p, int clusters) {
  constexpr int kCols = 64, kRows = kHigh ? 16 : 8, kAhead = 2;
  __shared__ float parts[kWarps * kRows * kCols];
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const Share share((p.k + 15) / 16, clusters);
  for_each_strip<kCols>(p, clusters, [&](int64_t first, const int64_t(&at)[3]) {
    const T* a = static_cast<const T*>(p.a.data) + at[0] + t * 4;
    const T *low = a + min(int64_t{g}, p.m - 1) * p.a.row, *high = a + min(int64_t{g + 8}, p.m - 1) * p.a.row;
    const T* b = static_cast<const T*>(p.b.data) + at[1] + first + g * 8;
    const int64_t cols = p.n - first - g * 8;
    float sums[8][4] = {};
    for (int64_t step = share.first; step < share.last; step += kAhead) {
      uint4 w[kAhead][4];
      uint2 x[kAhead][2];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int64_t k = (step + i) * 16 + t * 4, valid = step + i < share.last ? p.k - k : 0;
#pragma unroll
        for (int r = 0; r < 4; ++r) w[i][r] = load_eight<kAligned>(b + (k + r) * p.b.row, r < valid ? cols : 0);
        x[i][0] = row_four<kAligned>(low + (step + i) * 16, valid);
        x[i][1] = kHigh ? row_four<kAligned>(high + (step + i) * 16, valid) : uint2{};
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j)
          ptx::mma_m16n8k16<T>(sums[j], x[i][0].x, x[i][1].x, x[i][0].y, x[i][1].y, pair_of(w[i][0], w[i][1], j),
                               pair_of(w[i][2], w[i][3], j));
    }
    float* own = parts + threadIdx.x / 32 * kRows * kCols;
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int i = 0; i < (kHigh ? 4 : 2); ++i) own[(g + i / 2 * 8) * kCols + (t * 2 + i % 2) * 8 + j] = sums[j][i];
    finish<kRows, kCols>(p, parts, first, at[2], clusters);
  });
}

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

using Kernel = void (*)(DeviceGemm, int);

/// A kernel and the columns of its strips.
struct Choice {
  Kernel kernel;
  int cols;
};

/// Whether the matrix's unit-stride runs, `length` long, `step` apart, start and end at multiples of 16 bytes.
bool matrix_aligned(const DeviceGemm& p, int64_t length, int64_t step, int64_t steps) {
  const int64_t unit = 16 / static_cast<int64_t>(item_size(p.b.dtype));
  bool aligned =
      reinterpret_cast<uintptr_t>(p.b.data) % 16 == 0 && length % unit == 0 && (steps == 1 || step % unit == 0);
  for (int d = 0; d < p.batch.ndim; ++d) aligned = aligned && p.batch.stride[1][d] % unit == 0;
  return aligned;
}

template <class T, bool kAligned>
Choice choose_tensor(const DeviceGemm& p, bool dots) {
  if (dots) return {p.m > 8 ? dots_kernel<T, kAligned, true> : dots_kernel<T, kAligned, false>, 16};
  return {p.m > 8 ? sums_kernel<T, kAligned, true> : sums_kernel<T, kAligned, false>, 64};
}
template <bool kAligned>
Choice choose_float(const DeviceGemm& p, bool dots) {
  if (dots)
    return {p.m > 4   ? float_dots_kernel<8, kAligned>
            : p.m > 1 ? float_dots_kernel<4, kAligned>
                      : float_dots_kernel<1, kAligned>,
            8};
  return {p.m > 4   ? float_sums_kernel<8, kAligned>
          : p.m > 1 ? float_sums_kernel<4, kAligned>
                    : float_sums_kernel<1, kAligned>,
          128};
}
template <bool kAligned>
Choice choose_kernel(const DeviceGemm& p, bool dots) {
  if (p.a.dtype == DType::kFloat32) return choose_float<kAligned>(p, dots);
  return p.a.dtype == DType::kBFloat16 ? choose_tensor<BFloat16, kAligned>(p, dots)
                                       : choose_tensor<Float16, kAligned>(p, dots);
}

}  // namespace

void few_rows_cuda(const DeviceGemm& p) {
  const cuda::DeviceGuard guard(p.device);
  const bool dots = p.b.row == 1;
  const bool aligned = dots ? matrix_aligned(p, p.k, p.b.col, p.n) : matrix_aligned(p, p.n, p.b.row, p.k);
  const Choice choice = aligned ? choose_kernel<true>(p, dots) : choose_kernel<false>(p, dots);
  const int64_t strips = (p.n + choice.cols - 1) / choice.cols, batches = std::min<int64_t>(p.batch.count, 65535);
  // Blocks of a cluster share a strip where there are too few strips to fill the chip and k is long enough.
  int clusters = 1;
  while (clusters < 8 && strips * batches * clusters * 2 < 3 * cuda::multiprocessors(p.device) &&
         p.k >= int64_t{1024} * clusters)
    clusters *= 2;
  const cuda::Grid grid{dim3(static_cast<unsigned>(strips * clusters), static_cast<unsigned>(batches)), kThreads, 0,
                        clusters};
  cuda::launch("matmul", choice.kernel, grid, p.device, p, clusters);
}

}  // namespace tenor::contract
