// The Hopper GEMM against float64 sums, on odd and ragged shapes, with poisoned outputs; skipped where there is no such
// GPU.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "src/cuda/gemm/sm90_gemm.h"

namespace tenor::cuda::gemm {
namespace {

template <class T>
__global__ void reference(const T* a, const T* b, double* c, int m, int n, int k, int64_t sa, int64_t sb) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= int64_t{m} * n) return;
  const int64_t row = i / n, column = i % n;
  double sum = 0;
  for (int j = 0; j < k; ++j)
    sum += static_cast<double>(static_cast<float>(a[row * sa + j])) * static_cast<float>(b[column * sb + j]);
  c[i] = sum;
}

template <class T>
T* device_copy(const std::vector<T>& host) {
  T* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, host.size() * sizeof(T)), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(p, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  return p;
}

template <class T>
std::vector<T> random_values(size_t count, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<T> x(count);
  for (T& v : x) v = static_cast<T>(normal(rng));
  return x;
}

bool has_hopper() {
  int devices = 0, major = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return false;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  return major == 9;
}

/// C of one problem under a tile (-1: the usual choice), poisoned with NaN before, checked against the reference;
/// returns its bits.
template <class T>
std::vector<T> run_and_check(int m, int n, int k, int pad, const std::vector<T>& a, const std::vector<T>& b,
                             bool bfloat16, int tile = -1) {
  const int64_t sa = (k + 7) / 8 * 8 + pad, sb = sa, sc = (n + 7) / 8 * 8 + pad;
  T *da = device_copy(a), *db = device_copy(b), *dc = device_copy(std::vector<T>(m * sc, static_cast<T>(NAN)));
  double* dr = device_copy(std::vector<double>(int64_t{m} * n));
  reference<T><<<(int64_t{m} * n + 255) / 256, 256>>>(da, db, dr, m, n, k, sa, sb);
  const GemmProblem p{da, db, dc, m, n, k, sa, sb, sc, bfloat16};
  EXPECT_EQ(sm90_gemm_why_not(p), "");
  EXPECT_EQ(tile < 0 ? sm90_gemm(p, nullptr) : sm90_gemm_with(p, tile, nullptr), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  std::vector<T> c(m * sc);
  std::vector<double> want(int64_t{m} * n);
  cudaMemcpy(c.data(), dc, c.size() * sizeof(T), cudaMemcpyDeviceToHost);
  cudaMemcpy(want.data(), dr, want.size() * sizeof(double), cudaMemcpyDeviceToHost);
  double error = 0, size = 0;
  int64_t unwritten = 0, spilled = 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < sc; ++j) {
      const double got = static_cast<float>(c[i * sc + j]);
      if (j >= n) {
        spilled += !std::isnan(got);
      } else if (std::isnan(got)) {
        ++unwritten;
      } else {
        error += std::pow(got - want[i * n + j], 2), size += std::pow(want[i * n + j], 2);
      }
    }
  EXPECT_EQ(unwritten, 0) << m << " " << n << " " << k;
  EXPECT_EQ(spilled, 0) << m << " " << n << " " << k;
  EXPECT_LE(std::sqrt(error), std::sqrt(size) * (bfloat16 ? 1.0 / 256 : 1.0 / 2048)) << m << " " << n << " " << k;
  for (void* x : {static_cast<void*>(da), static_cast<void*>(db), static_cast<void*>(dc), static_cast<void*>(dr)})
    cudaFree(x);
  return c;
}

template <class T>
void check_shapes(bool bfloat16) {
  const int shapes[][3] = {{1, 8, 8},        {1, 1, 1},         {3, 5, 7},        {64, 64, 64},
                           {127, 255, 63},   {128, 256, 64},    {129, 257, 65},   {256, 256, 256},
                           {300, 1000, 520}, {1000, 300, 4104}, {513, 2049, 129}, {4100, 520, 72}};
  unsigned seed = 1;
  const TileShape* tiles;
  const int count = sm90_gemm_tiles(false, &tiles);
  for (const auto& [m, n, k] : shapes)
    for (int pad : {0, 72}) {
      const int64_t stride = (k + 7) / 8 * 8 + pad;
      const auto a = random_values<T>(m * stride, seed++), b = random_values<T>(n * stride, seed++);
      const auto bits = run_and_check<T>(m, n, k, pad, a, b, bfloat16);
      for (int tile = 0; tile < count; ++tile) {
        const auto other = run_and_check<T>(m, n, k, pad, a, b, bfloat16, tile);
        EXPECT_EQ(std::memcmp(bits.data(), other.data(), bits.size() * sizeof(T)), 0)
            << m << " " << n << " " << k << " tile of " << tiles[tile].columns << " columns";
      }
    }
}

TEST(Sm90Gemm, Bfloat16MatchesFloat64) {
  if (!has_hopper()) GTEST_SKIP() << "no Hopper GPU";
  check_shapes<__nv_bfloat16>(true);
}
TEST(Sm90Gemm, Float16MatchesFloat64) {
  if (!has_hopper()) GTEST_SKIP() << "no Hopper GPU";
  check_shapes<__half>(false);
}

TEST(Sm90Gemm, RowsDoNotDependOnTheBatch) {
  if (!has_hopper()) GTEST_SKIP() << "no Hopper GPU";
  using T = __nv_bfloat16;
  const int m = 700, n = 520, k = 1048;
  const auto a = random_values<T>(int64_t{m} * k, 5), b = random_values<T>(int64_t{n} * k, 6);
  const auto whole = run_and_check<T>(m, n, k, 0, a, b, true);
  for (int row : {0, 63, 64, 255, 256, 699}) {
    const std::vector<T> one(a.begin() + int64_t{row} * k, a.begin() + int64_t{row + 1} * k);
    const auto alone = run_and_check<T>(1, n, k, 0, one, b, true);
    EXPECT_EQ(std::memcmp(alone.data(), whole.data() + int64_t{row} * n, n * sizeof(T)), 0) << row;
  }
}

/// A batch whose B lies [k,n], with a bias, into float32 columns of a larger array: what every field is for.
template <class R>
std::vector<R> run_batch(GemmProblem p, size_t c_count, int tile) {
  R* c = device_copy(std::vector<R>(c_count, static_cast<R>(NAN)));
  p.c = c;
  EXPECT_EQ(sm90_gemm_why_not(p), "");
  EXPECT_EQ(sm90_gemm_with(p, tile, nullptr), cudaSuccess);
  std::vector<R> out(c_count);
  EXPECT_EQ(cudaMemcpy(out.data(), c, c_count * sizeof(R), cudaMemcpyDeviceToHost), cudaSuccess);
  cudaFree(c);
  return out;
}

TEST(Sm90Gemm, BatchesBiasesAndTheOtherLayoutOfB) {
  if (!has_hopper()) GTEST_SKIP() << "no Hopper GPU";
  using T = __nv_bfloat16;
  const int batch = 3, m = 150, n = 328, k = 200;
  const auto a = random_values<T>(int64_t{batch} * m * k, 7), b = random_values<T>(int64_t{batch} * k * n, 8),
             bias = random_values<T>(n, 9);
  std::vector<T> turned(b.size());  // [n,k] for each [k,n]
  for (int z = 0; z < batch; ++z)
    for (int j = 0; j < n; ++j)
      for (int i = 0; i < k; ++i) turned[(int64_t{z} * n + j) * k + i] = b[(int64_t{z} * k + i) * n + j];
  T *da = device_copy(a), *db = device_copy(b), *dt = device_copy(turned), *dbias = device_copy(bias);
  for (int along : {0, 1}) {
    GemmProblem inner{da, dt, nullptr, m, n, k, k, k, n, true};
    inner.batch[along] = batch, inner.batch_a[along] = int64_t{m} * k, inner.batch_b[along] = int64_t{n} * k,
    inner.batch_c[along] = int64_t{m} * n;
    inner.bias = dbias;
    GemmProblem outer = inner;
    outer.b = db, outer.b_outer = true, outer.stride_b = n;
    GemmProblem wide = inner;  // float32, transposed
    wide.float_result = true, wide.stride_c = 1, wide.column_c = m;
    const auto want = run_batch<T>(inner, size_t{3} * m * n, 0);
    for (bool other : {false, true}) {
      const TileShape* tiles;
      for (int tile = 0; tile < sm90_gemm_tiles(other, &tiles); ++tile) {
        const auto got = run_batch<T>(other ? outer : inner, size_t{3} * m * n, tile);
        EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(T)), 0)
            << "outer " << other << " tile " << tile;
      }
    }
    const auto exact = run_batch<float>(wide, size_t{3} * m * n, 0);
    double worst = 0;
    for (int z = 0; z < batch; ++z)
      for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
          double sum = static_cast<float>(bias[j]);
          for (int t = 0; t < k; ++t)
            sum += double(static_cast<float>(a[(int64_t{z} * m + i) * k + t])) *
                   static_cast<float>(b[(int64_t{z} * k + t) * n + j]);
          const float got = exact[int64_t{z} * m * n + int64_t{j} * m + i];
          worst = std::max(worst, std::abs(got - sum));
          EXPECT_EQ(static_cast<float>(static_cast<T>(got)), static_cast<float>(want[(int64_t{z} * m + i) * n + j]));
        }
    EXPECT_LT(worst, 1e-4);
  }
  for (T* x : {da, db, dt, dbias}) cudaFree(x);
}

TEST(Sm90Gemm, SaysWhyItDeclines) {
  alignas(16) static char memory[64];
  const GemmProblem good{memory, memory, memory, 1, 8, 8, 8, 8, 8, true};
  EXPECT_EQ(sm90_gemm_why_not(good), "");
  GemmProblem p = good;
  p.a = memory + 2;
  EXPECT_NE(sm90_gemm_why_not(p).find("16 bytes"), std::string::npos);
  p = good;
  p.n = 2, p.stride_b = 9;
  EXPECT_NE(sm90_gemm_why_not(p).find("stride"), std::string::npos);
  p = good;
  p.k = 0;
  EXPECT_NE(sm90_gemm_why_not(p).find("empty"), std::string::npos);
}

}  // namespace
}  // namespace tenor::cuda::gemm
