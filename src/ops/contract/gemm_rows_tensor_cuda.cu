// 16-bit operands of the "rows" candidate on CUDA, two rows and more, on the tensor cores.
//
// A sum does not care which k sits in which slot of a fragment, as long as both operands agree: each lane loads 16
// neighbouring bytes of the matrix and uses them as they come.
#include "src/cuda/ptx/mma.cuh"
#include "src/cuda/runtime.h"
#include "src/ops/contract/gemm_rows_cuda.cuh"

namespace tenor::contract {
namespace {

namespace ptx = cuda::ptx;

template <class T>
__device__ __forceinline__ uint4 words_of(const cuda::Pack<T, 8>& x) {
  uint4 words;
  memcpy(&words, &x, sizeof words);
  return words;
}

/// The matrix's columns contiguous, at most eight rows. A step of a warp is 64 of k, in whole lines of memory: lane 8q
/// + e holds elements 8e..8e+7 of column q of each four columns, and of row q of each four rows. A fragment's "rows"
/// (and "columns") are then two for each one, its halves of the 64; sums of like halves count, the others mean nothing.
template <class T, bool kAligned>
__global__ void __launch_bounds__(256, kAligned ? 4 : 2)
    tensor_dots_kernel(const __grid_constant__ DeviceGemm p, const __grid_constant__ RowsSplit split) {
  constexpr int kWarps = 8, kStep = 64, kFours = 4;
  using Parts = DenseParts<8, 4 * kFours>;
  __shared__ float parts[kWarps * Parts::kSize];
  int64_t at[3];
  if (!find_matrix(p, at)) return;
  const uint64_t policy = ptx::read_policy(split.read_once);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = lane % 8 * 8;
  const Range range(p.k, split);
  const int first = first_column(split, Parts::kCols);
  // Rows and columns past the end are read as ones before it, and not stored.
  const T *a = static_cast<const T*>(p.a.data) + at[0] + own, *low = row_or_last(a, p, lane / 8),
          *high = row_or_last(a, p, lane / 8 + 4);
  const int end = static_cast<int>(p.n) - 1, column = min(first + lane / 8, end), left = end - column;
  const T* columns = static_cast<const T*>(p.b.data) + at[1] + column * p.b.col + own;
  uint4 w[kFours];
  const auto load = [&](int64_t k) {
    const T* from = columns + k;
#pragma unroll
    for (int c = 0; c < kFours; ++c) {
      w[c] = words_of(load_matrix<kAligned>(from, range.last - k - own, policy));
      if (4 * (c + 1) <= left) from += 4 * p.b.col;
    }
  };
  float sums[kFours][4] = {};
  int64_t k = range.first + warp * kStep;
  load(k);
  for (; k < range.last; k += kWarps * kStep) {
    const uint4 x = words_of(load_row<kAligned>(low + k, range.last - k - own)),
                y = words_of(load_row<kAligned>(high + k, range.last - k - own));
#pragma unroll
    for (int c = 0; c < kFours; ++c) {
      ptx::mma_m16n8k16<T>(sums[c], x.x, y.x, x.y, y.y, w[c].x, w[c].y);
      ptx::mma_m16n8k16<T>(sums[c], x.z, y.z, x.w, y.w, w[c].z, w[c].w);
    }
    load(k + kWarps * kStep);
  }
  const int g = lane / 4, t = lane % 4;  // the fragment's row g is half g % 2 of row g / 2
#pragma unroll
  for (int c = 0; c < kFours; ++c)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = g % 2 ? sums[c][2 * h + 1] : sums[c][2 * h];
      sum += __shfl_xor_sync(~0u, sum, 4);
      if (g % 2 == 0) parts[warp * Parts::kSize + Parts::at(h * 4 + g / 2, c * 4 + t)] = sum;
    }
  finish<kWarps, Parts>(p, parts, first, at[2], split);
}

/// Elements j of two rows of eight, as a pair.
__device__ __forceinline__ uint32_t pair_of(const uint4& x, const uint4& y, int j) {
  const uint32_t u = j < 4 ? (j < 2 ? x.x : x.y) : (j < 6 ? x.z : x.w),
                 v = j < 4 ? (j < 2 ? y.x : y.y) : (j < 6 ? y.z : y.w);
  return __byte_perm(u, v, j % 2 ? 0x7632 : 0x5410);
}

/// Elements of a row of a, which may be read past k up to a multiple of eight, as zeros there.
__device__ __forceinline__ uint32_t pair_below(uint32_t pair, int64_t left) {
  return left >= 2 ? pair : left == 1 ? pair & 0xFFFF : 0;
}
template <class T>
__device__ __forceinline__ uint2 row_four(const T* p, int64_t valid) {
  if (valid <= 0) return {};
  const uint2 x = __ldg(reinterpret_cast<const uint2*>(p));
  return {pair_below(x.x, valid), pair_below(x.y, valid - 2)};
}

/// Of a strip of 64 columns where column 8g + j is column g of fragment j: fragments lie beside one another, and rows
/// so that a warp's stores meet no bank twice.
template <int kTheRows>
struct FragmentParts {
  static constexpr int kRows = kTheRows, kCols = 64, kPitch = 72, kSize = kRows * kPitch;
  static __device__ __forceinline__ int at(int row, int col) { return row * kPitch + col % 8 * 8 + col / 8; }
};

/// The matrix's rows contiguous. A step of a warp is 16 of k: lane 4g + t holds columns 8g..8g+7 of k 4t..4t+3.
template <class T, bool kHigh, int kWarps, bool kAligned>
__global__ void __launch_bounds__(32 * kWarps, 16 / kWarps)
    tensor_sums_kernel(const __grid_constant__ DeviceGemm p, const __grid_constant__ RowsSplit split) {
  using Parts = FragmentParts<kHigh ? 16 : 8>;
  constexpr int kStep = 16, kAhead = 2;
  extern __shared__ __align__(16) float parts[];
  const uint64_t policy = ptx::read_policy(split.read_once);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  int64_t at[3];
  if (!find_matrix(p, at)) return;
  const Range range(p.k, split);
  const int first = first_column(split, Parts::kCols);
  const T* a = static_cast<const T*>(p.a.data) + at[0] + t * 4;
  const T *low = row_or_last(a, p, g), *high = row_or_last(a, p, g + 8);
  const T* b = static_cast<const T*>(p.b.data) + at[1] + first + g * 8;
  const int cols = static_cast<int>(p.n) - first - g * 8;
  const T* column = b + (cols > 0 ? 0 : -g * 8);  // past the end: any that is there, and is not stored
  const auto load = [&](int64_t k, uint4(&w)[4]) {
    const int64_t row = k + t * 4;
    if (kAligned && k + kStep <= range.last) {
      const T* from = column + row * p.b.row;
#pragma unroll
      for (int i = 0; i < 4; ++i, from += p.b.row) w[i] = ptx::load_16(from, policy);
    } else {
      const T* from = b + row * p.b.row;
#pragma unroll
      for (int i = 0; i < 4; ++i, from += p.b.row)
        w[i] = words_of(load_matrix<kAligned>(from, row + i < range.last ? cols : 0, policy));
    }
  };
  float sums[8][4] = {};
  uint4 w[kAhead][4];
  const int64_t start = range.first + warp * kStep;
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(start + i * kWarps * kStep, w[i]);
  for (int64_t k = start; k < range.last; k += kAhead * kWarps * kStep) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t here = k + i * kWarps * kStep;
      if (here >= range.last) break;
      const int64_t valid = range.last - here - t * 4;
      const uint2 x = row_four(low + here, valid), y = kHigh ? row_four(high + here, valid) : uint2{};
#pragma unroll
      for (int j = 0; j < 8; ++j)
        ptx::mma_m16n8k16<T>(sums[j], x.x, y.x, x.y, y.y, pair_of(w[i][0], w[i][1], j), pair_of(w[i][2], w[i][3], j));
      load(here + kAhead * kWarps * kStep, w[i]);
    }
  }
  float* own = parts + warp * Parts::kSize + t * 2;
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int h = 0; h < (kHigh ? 2 : 1); ++h)
      *reinterpret_cast<float2*>(own + (g + h * 8) * Parts::kPitch + j * 8) = {sums[j][2 * h], sums[j][2 * h + 1]};
  finish<kWarps, Parts>(p, parts, first, at[2], split);
}

template <class T, bool kHigh, int kWarps, bool kAligned>
RowsChoice sums() {
  using Parts = FragmentParts<kHigh ? 16 : 8>;
  return {tensor_sums_kernel<T, kHigh, kWarps, kAligned>, kWarps, Parts::kCols, 0, kWarps * Parts::kSize * 4};
}

template <class T, bool kAligned>
RowsChoice choose(const DeviceGemm& p, bool dots) {
  if (dots) return {tensor_dots_kernel<T, kAligned>, 8, 16};
  // Where strips are few, one block of sixteen warps keeps as much under way as two of eight do elsewhere.
  if ((p.n + 63) / 64 * p.batch.count <= cuda::multiprocessors(p.device))
    return p.m <= 8 ? sums<T, false, 16, kAligned>() : sums<T, true, 16, kAligned>();
  return p.m <= 8 ? sums<T, false, 8, kAligned>() : sums<T, true, 8, kAligned>();
}

}  // namespace

RowsChoice choose_rows_tensor(const DeviceGemm& p, bool dots, bool aligned) {
  if (p.a.dtype == DType::kBFloat16)
    return aligned ? choose<BFloat16, true>(p, dots) : choose<BFloat16, false>(p, dots);
  return aligned ? choose<Float16, true>(p, dots) : choose<Float16, false>(p, dots);
}

}  // namespace tenor::contract
