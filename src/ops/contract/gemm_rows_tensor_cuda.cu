// 16-bit operands of the "rows" candidate on CUDA, on the tensor cores.
//
// A sum does not care which k sits in which slot of a fragment, as long as both operands agree: each lane copies 16
// neighbouring bytes of the matrix and uses them as they come. Aligned matrices stream through rings of asynchronous
// copies, one a warp; a lane reads back only what it copied itself, so no barrier slows them. Others are loaded by
// element.
#include "src/cuda/ptx/async_copy.cuh"
#include "src/cuda/ptx/mma.cuh"
#include "src/ops/contract/gemm_rows_cuda.cuh"

namespace tenor::contract {
namespace {

namespace ptx = cuda::ptx;

/// Elements j of two rows of eight, as a pair.
__device__ __forceinline__ uint32_t pair_of(const uint4& x, const uint4& y, int j) {
  const uint32_t u = j < 4 ? (j < 2 ? x.x : x.y) : (j < 6 ? x.z : x.w),
                 v = j < 4 ? (j < 2 ? y.x : y.y) : (j < 6 ? y.z : y.w);
  return __byte_perm(u, v, j % 2 ? 0x7632 : 0x5410);
}

/// Elements of a row of a, which may be read past k, as zeros there.
__device__ __forceinline__ uint32_t pair_below(uint32_t pair, int64_t left) {
  return left >= 2 ? pair : left == 1 ? pair & 0xFFFF : 0;
}

/// Where lane 4g + t finds rows g and g + 8 of a, the last row standing in for those past it.
template <class T>
struct FewRows {
  const T *low, *high;
  __device__ FewRows(const DeviceGemm& p, int64_t at, int first) {
    const int g = threadIdx.x % 32 / 4;
    const T* a = static_cast<const T*>(p.a.data) + at + first;
    low = a + min(int64_t{g}, p.m - 1) * p.a.row, high = a + min(int64_t{g + 8}, p.m - 1) * p.a.row;
  }
};

/// Writes this warp's sums of the j-th fragment; place(column of the fragment) is the column in the strip.
template <bool kHigh, int kCols, class F>
__device__ __forceinline__ void put_sums(float* parts, const float (&sums)[4], F&& place) {
  constexpr int kRows = kHigh ? 16 : 8;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float* own = parts + threadIdx.x / 32 * kRows * kCols;
#pragma unroll
  for (int i = 0; i < (kHigh ? 4 : 2); ++i) own[(g + i / 2 * 8) * kCols + place(t * 2 + i % 2)] = sums[i];
}

/// One step's operands of a lane, in its warp's ring.
template <int kMatrix, int kRowsOf>
struct Slot {
  uint4 matrix[kMatrix][32];
  uint4 rows[kRowsOf][32];
};

/// Runs `multiply` over this warp's steps, each `copy`d kSteps ahead.
template <int kSteps, class Ring, class Copy, class Multiply>
__device__ __forceinline__ void stream(Ring* ring, const Share& share, Copy&& copy, Multiply&& multiply) {
  for (int i = 0; i < kSteps; ++i) {
    copy(share.first + i, ring[i]);
    ptx::async_copy_commit();
  }
  int at = 0;
  for (int64_t step = share.first; step < share.last; ++step) {
    ptx::async_copy_wait<kSteps - 1>();
    multiply(ring[at]);
    copy(step + kSteps, ring[at]);
    ptx::async_copy_commit();
    at = at + 1 == kSteps ? 0 : at + 1;
  }
  ptx::async_copy_wait<0>();
}

/// The matrix's columns contiguous (k runs along memory). A step is 32 of k: lane 4g + t holds k 8t..8t+7 of columns g
/// and g + 8 and of rows g and, where kHigh, g + 8.
template <class T, bool kHigh>
struct Dots {
  static constexpr int kCols = 16, kRows = kHigh ? 16 : 8, kSteps = kHigh ? 6 : 5, kBlocks = kHigh ? 2 : 3;
  using Ring = Slot<2, kHigh ? 2 : 1>;
  static constexpr int kShared = kWarps * kSteps * sizeof(Ring);
  static_assert(kShared >= kWarps * kRows * kCols * 4);
};

template <class T, bool kHigh>
__global__ void __launch_bounds__(kThreads, Dots<T, kHigh>::kBlocks)
    dots_kernel(const __grid_constant__ DeviceGemm p, int clusters) {
  using D = Dots<T, kHigh>;
  extern __shared__ __align__(16) unsigned char raw[];
  auto* ring = reinterpret_cast<typename D::Ring*>(raw) + threadIdx.x / 32 * D::kSteps;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const Share share((p.k + 31) / 32, clusters);
  for_each_strip<D::kCols>(p, clusters, [&](int64_t first, const int64_t(&at)[3]) {
    const FewRows<T> a(p, at[0], t * 8);
    const T* b = static_cast<const T*>(p.b.data) + at[1] + t * 8;
    const T* column[2] = {b + min(first + g, p.n - 1) * p.b.col, b + min(first + g + 8, p.n - 1) * p.b.col};
    float sums[2][4] = {};
    const auto copy = [&](int64_t step, typename D::Ring& slot) {
      if (step >= share.last) return;
      const int64_t k = step * 32;
      const bool valid = k + t * 8 < p.k;  // k is a multiple of 8
#pragma unroll
      for (int c = 0; c < 2; ++c) ptx::async_copy_16_once(&slot.matrix[c][lane], column[c] + (valid ? k : 0), valid);
      ptx::async_copy_16(&slot.rows[0][lane], a.low + (valid ? k : 0), valid);
      if constexpr (kHigh) ptx::async_copy_16(&slot.rows[1][lane], a.high + (valid ? k : 0), valid);
    };
    stream<D::kSteps>(ring, share, copy, [&](const typename D::Ring& slot) {
      const uint4 low = slot.rows[0][lane], high = kHigh ? slot.rows[kHigh][lane] : uint4{};
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const uint4 w = slot.matrix[c][lane];
        ptx::mma_m16n8k16<T>(sums[c], low.x, high.x, low.y, high.y, w.x, w.y);
        ptx::mma_m16n8k16<T>(sums[c], low.z, high.z, low.w, high.w, w.z, w.w);
      }
    });
    __syncthreads();  // the rings become the place of the parts
    auto* parts = reinterpret_cast<float*>(raw);
#pragma unroll
    for (int c = 0; c < 2; ++c) put_sums<kHigh, D::kCols>(parts, sums[c], [&](int j) { return c * 8 + j; });
    finish<D::kRows, D::kCols>(p, parts, first, at[2], clusters);
  });
}

/// The matrix's rows contiguous. A step is 16 of k: lane 4g + t holds columns 8g..8g+7 of k 4t..4t+3, so that column 8g
/// + j is column g of the j-th fragment.
template <class T, bool kHigh>
struct Sums {
  static constexpr int kCols = 64, kRows = kHigh ? 16 : 8, kSteps = 4, kBlocks = 2;
  struct Ring {
    uint4 matrix[4][32];
    uint2 rows[kHigh ? 2 : 1][32];
  };
  static constexpr int kShared = kWarps * kSteps * sizeof(Ring);
  static_assert(kShared >= kWarps * kRows * kCols * 4);
};

template <class T, bool kHigh>
__global__ void __launch_bounds__(kThreads, Sums<T, kHigh>::kBlocks)
    sums_kernel(const __grid_constant__ DeviceGemm p, int clusters) {
  using S = Sums<T, kHigh>;
  extern __shared__ __align__(16) unsigned char raw[];
  auto* ring = reinterpret_cast<typename S::Ring*>(raw) + threadIdx.x / 32 * S::kSteps;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const Share share((p.k + 15) / 16, clusters);
  for_each_strip<S::kCols>(p, clusters, [&](int64_t first, const int64_t(&at)[3]) {
    const FewRows<T> a(p, at[0], t * 4);
    const bool inside = first + g * 8 < p.n;  // n is a multiple of 8
    const T* b = static_cast<const T*>(p.b.data) + at[1] + (inside ? first + g * 8 : 0);
    float sums[8][4] = {};
    const auto copy = [&](int64_t step, typename S::Ring& slot) {
      if (step >= share.last) return;
      const int64_t k = step * 16 + t * 4, left = p.k - k;
#pragma unroll
      for (int r = 0; r < 4; ++r)
        ptx::async_copy_16_once(&slot.matrix[r][lane], b + (r < left ? k + r : 0) * p.b.row, inside && r < left);
      // a's rows may be read past k up to a multiple of 8; what is there is cut off below.
      ptx::async_copy_8(&slot.rows[0][lane], a.low + (left > 0 ? step * 16 : 0), left > 0);
      if constexpr (kHigh) ptx::async_copy_8(&slot.rows[1][lane], a.high + (left > 0 ? step * 16 : 0), left > 0);
    };
    int64_t left = p.k - share.first * 16 - t * 4;
    stream<S::kSteps>(ring, share, copy, [&](const typename S::Ring& slot) {
      uint2 low = slot.rows[0][lane], high = kHigh ? slot.rows[kHigh][lane] : uint2{};
      if (left < 4) {
        low = {pair_below(low.x, left), pair_below(low.y, left - 2)},
        high = {pair_below(high.x, left), pair_below(high.y, left - 2)};
      }
      left -= 16;
      const uint4 w[4] = {slot.matrix[0][lane], slot.matrix[1][lane], slot.matrix[2][lane], slot.matrix[3][lane]};
#pragma unroll
      for (int j = 0; j < 8; ++j)
        ptx::mma_m16n8k16<T>(sums[j], low.x, high.x, low.y, high.y, pair_of(w[0], w[1], j), pair_of(w[2], w[3], j));
    });
    __syncthreads();
    auto* parts = reinterpret_cast<float*>(raw);
#pragma unroll
    for (int j = 0; j < 8; ++j) put_sums<kHigh, S::kCols>(parts, sums[j], [&](int column) { return column * 8 + j; });
    finish<S::kRows, S::kCols>(p, parts, first, at[2], clusters);
  });
}

/// Eight neighbouring elements of two bytes at any address, those past `valid` zero.
template <class T>
__device__ __forceinline__ uint4 load_eight(const T* p, int64_t valid) {
  uint32_t words[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) words[i] = i < valid ? __ldg(reinterpret_cast<const uint16_t*>(p) + i) : 0;
  return {words[0] | words[1] << 16, words[2] | words[3] << 16, words[4] | words[5] << 16, words[6] | words[7] << 16};
}
template <class T>
__device__ __forceinline__ uint4 row_eight(const T* p, int64_t valid) {
  if (valid <= 0) return {};
  const uint4 x = __ldg(reinterpret_cast<const uint4*>(p));
  return {pair_below(x.x, valid), pair_below(x.y, valid - 2), pair_below(x.z, valid - 4), pair_below(x.w, valid - 6)};
}
template <class T>
__device__ __forceinline__ uint2 row_four(const T* p, int64_t valid) {
  if (valid <= 0) return {};
  const uint2 x = __ldg(reinterpret_cast<const uint2*>(p));
  return {pair_below(x.x, valid), pair_below(x.y, valid - 2)};
}

/// As dots_kernel, of a matrix whose columns start anywhere.
template <class T, bool kHigh>
__global__ void __launch_bounds__(kThreads, 2) loose_dots_kernel(const __grid_constant__ DeviceGemm p, int clusters) {
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
        w[i][0] = load_eight(column[0] + k, valid), w[i][1] = load_eight(column[1] + k, valid);
        x[i][0] = row_eight(low + k, valid);
        x[i][1] = kHigh ? row_eight(high + k, valid) : uint4{};
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

/// As sums_kernel, of a matrix whose rows start anywhere.
template <class T, bool kHigh>
__global__ void __launch_bounds__(kThreads, 2) loose_sums_kernel(const __grid_constant__ DeviceGemm p, int clusters) {
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
        for (int r = 0; r < 4; ++r) w[i][r] = load_eight(b + (k + r) * p.b.row, r < valid ? cols : 0);
        x[i][0] = row_four(low + (step + i) * 16, valid);
        x[i][1] = kHigh ? row_four(high + (step + i) * 16, valid) : uint2{};
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

template <class T, bool kHigh>
RowsChoice choose(bool dots, bool aligned) {
  using D = Dots<T, kHigh>;
  using S = Sums<T, kHigh>;
  if (!aligned)
    return dots ? RowsChoice{loose_dots_kernel<T, kHigh>, D::kCols} : RowsChoice{loose_sums_kernel<T, kHigh>, S::kCols};
  if (dots) return {dots_kernel<T, kHigh>, D::kCols, D::kShared};
  return {sums_kernel<T, kHigh>, S::kCols, S::kShared};
}
template <class T>
RowsChoice choose(const DeviceGemm& p, bool dots, bool aligned) {
  return p.m > 8 ? choose<T, true>(dots, aligned) : choose<T, false>(dots, aligned);
}

}  // namespace

RowsChoice choose_rows_tensor(const DeviceGemm& p, bool dots, bool aligned) {
  return p.a.dtype == DType::kBFloat16 ? choose<BFloat16>(p, dots, aligned) : choose<Float16>(p, dots, aligned);
}

}  // namespace tenor::contract
