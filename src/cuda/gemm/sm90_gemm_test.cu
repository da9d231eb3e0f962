// The Hopper GEMM against float64 sums, on odd and ragged shapes, with poisoned outputs; skipped where there is no such
// GPU.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "src/cuda/gemm/small_gemm.h"
#include "src/cuda/gemm/sm90_gemm.h"
#include "src/cuda/gemm/sm90_gemm_carry.cuh"
#include "src/cuda/gemm/sm90_testing.cuh"

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

constexpr int kSmall = -1;  ///< as a plan's tile: small_gemm()

/// Every way of computing an m x n product whose B lies so.
std::vector<GemmPlan> all_plans(bool b_outer, int m, int n) {
  const TileShape* tiles;
  const int count = sm90_gemm_tiles(b_outer, &tiles);
  std::vector<GemmPlan> plans;
  for (int tile = 0; tile < count; ++tile)
    for (bool turned : {false, true})
      for (bool split : {false, true})
        if (!turned || !b_outer) plans.push_back({tile, turned, split});
  if (!b_outer) plans.push_back({kSmall});
  if (!b_outer && m <= 64) plans.push_back({0, false, false, true});
  if (!b_outer && n <= 64) plans.push_back({0, true, false, true});
  return plans;
}

std::string text_of(const GemmPlan& plan) {
  if (plan.tile == kSmall) return "small";
  return "tile " + std::to_string(plan.tile) + (plan.turned ? " turned" : "") + (plan.split ? " split" : "") +
         (plan.rows ? " rows" : "");
}

/// Runs a plan with the workspace that it asks for.
void run(GemmProblem p, const GemmPlan& plan) {
  EXPECT_EQ(sm90_gemm_why_not(p), "");
  const size_t bytes = sm90_gemm_workspace(p, plan);
  EXPECT_EQ(bytes > 0, plan.split);
  if (bytes) {
    EXPECT_EQ(cudaMalloc(&p.workspace, bytes), cudaSuccess);
    EXPECT_EQ(cudaMemset(p.workspace, 0xAB, bytes), cudaSuccess);
  }
  EXPECT_EQ(plan.tile == kSmall ? small_gemm(p, nullptr) : sm90_gemm(p, plan, nullptr), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess) << text_of(plan);
  cudaFree(p.workspace);
}

/// The operands of a product on the device, rows of k and of the result padded by `pad`.
template <class T>
struct Product {
  int m, n, k, pad;
  T *a, *b;
  Product(int m, int n, int k, int pad, const std::vector<T>& a, const std::vector<T>& b)
      : m(m), n(n), k(k), pad(pad), a(device_copy(a)), b(device_copy(b)) {}
  ~Product() { cudaFree(a), cudaFree(b); }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  int64_t stride_k() const { return (k + 7) / 8 * 8 + pad; }
  int64_t stride_c() const { return (n + 7) / 8 * 8 + pad; }
  GemmProblem problem() const {
    return {a, b, nullptr, m, n, k, stride_k(), stride_k(), stride_c(), std::is_same_v<T, __nv_bfloat16>};
  }
  /// Its result under a plan, gaps included; everything poisoned with NaN before.
  std::vector<T> bits(const GemmPlan& plan) const {
    std::vector<T> c(m * stride_c());
    GemmProblem p = problem();
    EXPECT_EQ(cudaMalloc(&p.c, c.size() * sizeof(T)), cudaSuccess);
    cudaMemset(p.c, 0xFF, c.size() * sizeof(T));
    run(p, plan);
    EXPECT_EQ(cudaMemcpy(c.data(), p.c, c.size() * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    cudaFree(p.c);
    return c;
  }
  /// The usual choice's, checked against the reference.
  std::vector<T> checked() const {
    const std::vector<T> c = bits(sm90_gemm_choice(problem()));
    std::vector<double> want(int64_t{m} * n);
    double* dr = device_copy(want);
    reference<T><<<(int64_t{m} * n + 255) / 256, 256>>>(a, b, dr, m, n, k, stride_k(), stride_k());
    cudaMemcpy(want.data(), dr, want.size() * sizeof(double), cudaMemcpyDeviceToHost);
    cudaFree(dr);
    double error = 0, size = 0;
    int64_t unwritten = 0, spilled = 0;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < stride_c(); ++j) {
        const double got = static_cast<float>(c[i * stride_c() + j]), wanted = j < n ? want[i * n + j] : 0;
        spilled += j >= n && !std::isnan(got), unwritten += j < n && std::isnan(got);
        if (j < n) error += (got - wanted) * (got - wanted), size += wanted * wanted;
      }
    EXPECT_EQ(unwritten, 0) << m << " " << n << " " << k;
    EXPECT_EQ(spilled, 0) << m << " " << n << " " << k;
    EXPECT_LE(std::sqrt(error), std::sqrt(size) * (std::is_same_v<T, __half> ? 1.0 / 2048 : 1.0 / 256))
        << m << " " << n << " " << k;
    return c;
  }
};

template <class T>
void check_shapes() {
  const int shapes[][3] = {{1, 8, 8},         {1, 1, 1},         {3, 5, 7},        {64, 64, 64},
                           {127, 255, 63},    {128, 256, 64},    {129, 257, 65},   {256, 256, 256},
                           {300, 1000, 520},  {1000, 300, 4104}, {513, 2049, 129}, {4100, 520, 72},
                           {4100, 2100, 200}, {9, 1500, 1000},   {40, 140, 4104},  {200, 60, 264}};
  unsigned seed = 1;
  for (const auto& [m, n, k] : shapes)
    for (int pad : {0, 72}) {
      const int64_t stride = (k + 7) / 8 * 8 + pad;
      const auto a = random_values<T>(m * stride, seed++), b = random_values<T>(n * stride, seed++);
      const Product<T> product(m, n, k, pad, a, b);
      const auto bits = product.checked();
      for (const GemmPlan& plan : all_plans(false, m, n)) {
        const auto other = product.bits(plan);
        EXPECT_EQ(std::memcmp(bits.data(), other.data(), bits.size() * sizeof(T)), 0)
            << m << " " << n << " " << k << " " << text_of(plan);
      }
    }
}

TEST(Sm90Gemm, Bfloat16MatchesFloat64) {
  if (!has_hopper()) GTEST_SKIP() << "no Hopper GPU";
  check_shapes<__nv_bfloat16>();
}
TEST(Sm90Gemm, Float16MatchesFloat64) {
  if (!has_hopper()) GTEST_SKIP() << "no Hopper GPU";
  check_shapes<__half>();
}

TEST(Sm90Gemm, RowsDoNotDependOnTheBatch) {
  if (!has_hopper()) GTEST_SKIP() << "no Hopper GPU";
  using T = __nv_bfloat16;
  const int m = 700, n = 520, k = 1048;
  const auto a = random_values<T>(int64_t{m} * k, 5), b = random_values<T>(int64_t{n} * k, 6);
  const auto whole = Product<T>(m, n, k, 0, a, b).checked();
  for (int row : {0, 63, 64, 255, 256, 699}) {
    const std::vector<T> one(a.begin() + int64_t{row} * k, a.begin() + int64_t{row + 1} * k);
    const auto alone = Product<T>(1, n, k, 0, one, b).checked();
    EXPECT_EQ(std::memcmp(alone.data(), whole.data() + int64_t{row} * n, n * sizeof(T)), 0) << row;
  }
}

/// A batch whose B lies [k,n], with a bias, into float32 columns of a larger array: what every field is for.
template <class R>
std::vector<R> run_batch(GemmProblem p, size_t c_count, const GemmPlan& plan) {
  R* c = device_copy(std::vector<R>(c_count, static_cast<R>(NAN)));
  p.c = c;
  run(p, plan);
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
    const auto want = run_batch<T>(inner, size_t{3} * m * n, {});
    for (bool other : {false, true})
      for (const GemmPlan& plan : all_plans(other, m, n)) {
        const auto got = run_batch<T>(other ? outer : inner, size_t{3} * m * n, plan);
        EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(T)), 0)
            << "outer " << other << " " << text_of(plan);
      }
    const auto exact = run_batch<float>(wide, size_t{3} * m * n, {});
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

TEST(Sm90Gemm, PiecesMakeUpEveryTileOnce) {
  std::mt19937 rng(3);
  for (int i = 0; i < 2000; ++i) {
    const int clusters = 1 + rng() % 66, tiles = 1 + rng() % (5 * clusters), steps = 1 + rng() % 200;
    const int split = tiles > clusters && tiles % clusters ? clusters + tiles % clusters : 0;
    std::vector<std::vector<int>> owners(tiles, std::vector<int>(steps, -1));
    int least = INT32_MAX, most = 0;
    for (int c = 0; c < clusters; ++c) {
      Piece piece;
      int sum = 0;
      bool loaded = false;
      for (int k = 0; piece_of(k, tiles, split, steps, c, clusters, piece); ++k) {
        ASSERT_FALSE(loaded) << "what is taken over comes last";
        loaded = piece.first > 0;
        ASSERT_TRUE(piece.last == steps || k == 0) << "what is handed on comes first";
        for (int s = piece.first; s < piece.last; ++s) {
          ASSERT_EQ(owners.at(piece.tile).at(s), -1);
          owners[piece.tile][s] = c;
        }
        sum += piece.last - piece.first;
      }
      least = std::min(least, sum), most = std::max(most, sum);
    }
    if (split) EXPECT_LE(most - least, 1) << tiles << " tiles of " << steps << " steps on " << clusters << " clusters";
    for (const auto& tile : owners)
      for (int s = 0; s < steps; ++s) {
        ASSERT_GE(tile[s], 0);
        ASSERT_TRUE(s == 0 || tile[s] == tile[s - 1] || tile[s] == tile[s - 1] + 1);
      }
  }
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
