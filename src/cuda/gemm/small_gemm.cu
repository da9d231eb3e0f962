// A block computes 32 x 32 of C: four warps of 16 x 16 by mma.sync, all of k that fits on its way at once through
// cp.async. No tensor maps, no clusters and no hand-over between warpgroups: what those cost first, larger products
// earn back and small ones do not. The bias is asked for before the products.
#include "src/cuda/allow.h"
#include "src/cuda/gemm/sm90_gemm_launch.cuh"
#include "src/cuda/gemm/small_gemm.h"
#include "src/cuda/ptx/async_copy.cuh"
#include "src/cuda/ptx/mma.cuh"

namespace tenor::cuda::gemm {
namespace {

constexpr int kRows = 32, kColumns = 32, kLines = kRows + kColumns;
constexpr int kWarpsDown = 2, kWarpsAcross = 2, kThreads = 32 * kWarpsDown * kWarpsAcross;
constexpr int kStages = 6, kStageBytes = kLines * kTileK * 2, kBytes = kStages * kStageBytes;

struct SmallShape {
  GemmShape out;
  const void *a, *b;
  int64_t stride_a, stride_b, batch_a[2], batch_b[2];
  bool pairs;  ///< two columns of C are stored at once
};

/// The place of 16 bytes of a line of 128 in a stage, turned so that eight lines lie in different banks.
__device__ __forceinline__ int chunk_place(int line, int chunk) { return line * 128 + ((chunk ^ (line & 7)) * 16); }

/// This thread's part of the loads: one piece of 16 bytes of every 16th line, A's rows first.
template <class T>
struct SmallLoader {
  static constexpr int kOwn = kLines * 8 / kThreads;
  const T* from[kOwn];   ///< null past the end
  const void* readable;  ///< what copies of nothing name
  int chunk, line, k;

  __device__ SmallLoader(const SmallShape& s, int row, int column, int z, int w)
      : readable(s.a), chunk(threadIdx.x % 8), line(threadIdx.x / 8), k(s.out.k) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int own = line + i * (kThreads / 8);
      const bool rows = own < kRows;
      const int at = rows ? row + own : column + own - kRows;
      const T* const base = rows ? static_cast<const T*>(s.a) + z * s.batch_a[0] + w * s.batch_a[1]
                                 : static_cast<const T*>(s.b) + z * s.batch_b[0] + w * s.batch_b[1];
      from[i] = at < (rows ? s.out.m : s.out.n) ? base + at * (rows ? s.stride_a : s.stride_b) + chunk * 8 : nullptr;
    }
  }
  __device__ __forceinline__ void load(unsigned char* stage, int step) const {
    const int bytes = min(max((k - step * kTileK - chunk * 8) * 2, 0), 16);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const bool some = from[i] && bytes > 0;
      ptx::async_copy_16_part(stage + chunk_place(line + i * (kThreads / 8), chunk),
                              some ? from[i] + step * kTileK : readable, some ? bytes : 0);
    }
  }
};

/// A step's products, k ascending.
template <class T>
__device__ __forceinline__ void multiply_step(float (&sums)[2][4], uint32_t stage) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int a = warp / kWarpsAcross * 16 + lane % 16, b = kRows + warp % kWarpsAcross * 16 + lane / 16 * 8 + lane % 8;
#pragma unroll
  for (int k = 0; k < kTileK / 16; ++k) {
    uint32_t x[4], y[4];
    ptx::ldmatrix_x4(x, stage + chunk_place(a, 2 * k + lane / 16));
    ptx::ldmatrix_x4(y, stage + chunk_place(b, 2 * k + (lane / 8 & 1)));
#pragma unroll
    for (int j = 0; j < 2; ++j) ptx::mma_m16n8k16<T>(sums[j], x[0], x[1], x[2], x[3], y[2 * j], y[2 * j + 1]);
  }
}

/// What a thread holds of a block's sums: elements (row + 8 i, column + 8 j) and their right neighbours.
struct OwnPlace {
  int row, column;
  __device__ OwnPlace(int first_row, int first_column)
      : row(first_row + static_cast<int>(threadIdx.x) / 32 / kWarpsAcross * 16 +
            static_cast<int>(threadIdx.x) % 32 / 4),
        column(first_column + static_cast<int>(threadIdx.x) / 32 % kWarpsAcross * 16 +
               static_cast<int>(threadIdx.x) % 4 * 2) {}
};

template <class T>
__device__ __forceinline__ void load_bias(float (&bias)[2][4], const GemmShape& out, const OwnPlace& own) {
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t row = min(own.row + i / 2 * 8, out.m - 1), column = min(own.column + j * 8 + i % 2, out.n - 1);
      bias[j][i] = bias_at<T>(out, row * out.bias_row + column * out.bias_column);
    }
}

/// Two neighbours of a row.
template <class T>
__device__ __forceinline__ void store_pair(const SmallShape& s, int64_t at, int columns, float left, float right) {
  if (s.pairs && columns > 1) {
    *reinterpret_cast<uint32_t*>(static_cast<T*>(s.out.c) + at) = pack<T>(left, right);
    return;
  }
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    if (e >= columns) continue;
    const int64_t place = at + e * s.out.column_c;
    if (s.out.float_result)
      static_cast<float*>(s.out.c)[place] = e ? right : left;
    else
      static_cast<T*>(s.out.c)[place] = static_cast<T>(e ? right : left);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) small_gemm_kernel(const __grid_constant__ SmallShape s) {
  extern __shared__ __align__(128) unsigned char raw[];
  const GemmShape& out = s.out;
  const int column = static_cast<int>(blockIdx.x) * kColumns, row = static_cast<int>(blockIdx.y) * kRows,
            z = static_cast<int>(blockIdx.z) % out.batch[0], w = static_cast<int>(blockIdx.z) / out.batch[0],
            steps = steps_of(out);
  const SmallLoader<T> loader(s, row, column, z, w);
  const auto load = [&](int step) {
    if (step < steps) loader.load(raw + step % kStages * kStageBytes, step);
    ptx::async_copy_commit();
  };
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) load(step);
  const OwnPlace own(row, column);
  float bias[2][4] = {}, sums[2][4] = {};
  if (out.bias) load_bias<T>(bias, out, own);
  for (int step = 0; step < steps; ++step) {
    ptx::async_copy_wait<kStages - 2>();
    __syncthreads();
    load(step + kStages - 1);
    multiply_step<T>(sums, ptx::shared_address(raw + step % kStages * kStageBytes));
  }
  const int64_t matrix = z * out.batch_c[0] + w * out.batch_c[1];
#pragma unroll
  for (int i = 0; i < 4; i += 2)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int own_row = own.row + i / 2 * 8, own_column = own.column + j * 8;
      if (own_row >= out.m) continue;
      store_pair<T>(s, matrix + own_row * out.stride_c + own_column * out.column_c, out.n - own_column,
                    out.bias ? sums[j][i] + bias[j][i] : sums[j][i],
                    out.bias ? sums[j][i + 1] + bias[j][i + 1] : sums[j][i + 1]);
    }
}

template <class T>
cudaError_t launch(const SmallShape& s, cudaStream_t stream) {
  if (const cudaError_t e = allow_shared(small_gemm_kernel<T>, kBytes); e != cudaSuccess) return e;
  const auto blocks = [](int count, int each) { return static_cast<unsigned>((count + each - 1) / each); };
  const dim3 grid(blocks(s.out.n, kColumns), blocks(s.out.m, kRows),
                  static_cast<unsigned>(s.out.batch[0] * s.out.batch[1]));
  small_gemm_kernel<T><<<grid, kThreads, kBytes, stream>>>(s);
  return cudaGetLastError();
}

}  // namespace

bool small_gemm_suits(const GemmProblem& p) {
  constexpr int kMostInner = 512;
  const int64_t blocks =
      int64_t{(p.m + kRows - 1) / kRows} * ((p.n + kColumns - 1) / kColumns) * p.batch[0] * p.batch[1];
  return !p.b_outer && p.m > 64 && p.n > 64 && p.k <= kMostInner && blocks <= 2 * multiprocessors();
}

cudaError_t small_gemm(const GemmProblem& p, cudaStream_t stream) {
  SmallShape s{};
  s.out = stores_of(p);
  s.a = p.a, s.b = p.b, s.stride_a = p.stride_a, s.stride_b = p.stride_b;
  for (int d = 0; d < 2; ++d) s.batch_a[d] = p.batch_a[d], s.batch_b[d] = p.batch_b[d];
  s.pairs = !p.float_result && p.column_c == 1 && reinterpret_cast<uintptr_t>(p.c) % 4 == 0 &&
            (p.m == 1 || p.stride_c % 2 == 0) && p.batch_c[0] % 2 == 0 && p.batch_c[1] % 2 == 0;
  return p.bfloat16 ? launch<__nv_bfloat16>(s, stream) : launch<__half>(s, stream);
}

}  // namespace tenor::cuda::gemm
