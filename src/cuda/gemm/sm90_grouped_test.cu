// Grouped products against the Hopper GEMM group by group, bit for bit: ragged and empty groups, offsets of both
// widths, rows of no group left alone; skipped where there is no such GPU.
#include <cuda_bf16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "src/cuda/gemm/sm90_gemm.h"
#include "src/cuda/gemm/sm90_grouped.h"
#include "src/cuda/gemm/sm90_testing.cuh"

namespace tenor::cuda::gemm {
namespace {

using T = __nv_bfloat16;

class Sm90Grouped : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_hopper()) GTEST_SKIP() << "no Hopper GPU";
  }
};

std::vector<T> host_copy(const T* p, size_t count) {
  std::vector<T> x(count);
  EXPECT_EQ(cudaMemcpy(x.data(), p, count * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
  return x;
}

/// Offsets of groups of random sizes (many of them empty) up to `m` rows.
std::vector<int64_t> random_offsets(int groups, int m, unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<int64_t> offsets{0};
  for (int g = 0; g < groups; ++g) {
    const int64_t left = m - offsets.back(), size = rng() % 3 == 0 ? 0 : rng() % (2 * m / groups + 2);
    offsets.push_back(offsets.back() + std::min(size, left));
  }
  return offsets;
}

/// What the product of each group must be, by the GEMM; NaN where no group reaches.
std::vector<T> wanted(const GroupedProblem& p, const std::vector<int64_t>& offsets) {
  T* c = device_copy(std::vector<T>(size_t(p.m) * p.stride_c, static_cast<T>(NAN)));
  for (int g = 0; g < p.groups; ++g) {
    const int rows = static_cast<int>(offsets[g + 1] - offsets[g]);
    if (rows == 0) continue;
    const GemmProblem one{static_cast<const T*>(p.a) + offsets[g] * p.stride_a,
                          static_cast<const T*>(p.b) + g * p.group_b,
                          c + offsets[g] * p.stride_c,
                          rows,
                          p.n,
                          p.k,
                          p.stride_a,
                          p.stride_b,
                          p.stride_c,
                          true};
    EXPECT_EQ(sm90_gemm(one, nullptr), cudaSuccess);
  }
  const auto out = host_copy(c, size_t(p.m) * p.stride_c);
  cudaFree(c);
  return out;
}

constexpr GroupedPlan kPlans[] = {GroupedPlan::kAuto, GroupedPlan::kRows, GroupedPlan::kTiles, GroupedPlan::kWideTiles,
                                  GroupedPlan::kTallTiles};

/// C by that plan, NaN where nothing is written.
std::vector<T> result(const GroupedProblem& p, GroupedPlan plan, size_t count) {
  const std::vector<T> poison(count, static_cast<T>(NAN));
  EXPECT_EQ(cudaMemcpy(p.c, poison.data(), count * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(sm90_grouped(p, nullptr, plan), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return host_copy(static_cast<const T*>(p.c), count);
}

void check(int groups, int m, int n, int k, const std::vector<int64_t>& offsets, bool wide) {
  const int stride_k = (k + 7) / 8 * 8, stride_c = n % 16 == 0 ? n : n + 3;  // by TMA, and by threads
  T *a = device_copy(random_values<T>(size_t(m) * stride_k, 1)),
    *b = device_copy(random_values<T>(size_t(groups) * n * stride_k, 2)),
    *c = device_copy(std::vector<T>(size_t(m) * stride_c, static_cast<T>(NAN)));
  const std::vector<int32_t> narrow(offsets.begin(), offsets.end());
  int64_t* wide_at = device_copy(offsets);
  int32_t* narrow_at = device_copy(narrow);
  GroupedProblem p{a,        b,        c,        wide ? static_cast<void*>(wide_at) : narrow_at,
                   wide,     m,        n,        k,
                   groups,   stride_k, stride_k, int64_t{n} * stride_k,
                   stride_c, true};
  EXPECT_EQ(sm90_grouped_why_not(p), "");
  const auto want = wanted(p, offsets);
  for (GroupedPlan plan : kPlans) {
    const auto got = result(p, plan, want.size());
    int64_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const float x = got[i], y = want[i];
      wrong += std::isnan(y) ? !std::isnan(x) : std::memcmp(&got[i], &want[i], sizeof(T)) != 0;
    }
    EXPECT_EQ(wrong, 0) << groups << " groups, " << m << " " << n << " " << k << " " << wide << ", plan "
                        << static_cast<int>(plan);
  }
  for (void* x : {static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(c), static_cast<void*>(wide_at),
                  static_cast<void*>(narrow_at)})
    cudaFree(x);
}

TEST_F(Sm90Grouped, EachGroupIsTheProductAlone) {
  unsigned seed = 1;
  for (const auto& [groups, m, n, k] :
       {std::array{1, 1, 8, 8},
        {8, 16, 200, 264},
        {128, 40, 136, 72},
        {40, 900, 72, 136},
        {300, 300, 40, 64},
        {5, 1000, 520, 200},
        {3, 2000, 257, 72},
        {24, 5000, 1544, 136},  // many tiles a block, stored by threads, beside some that a warpgroup skips
        {16, 3000, 400, 328}})
    for (bool wide : {false, true}) check(groups, m, n, k, random_offsets(groups, m, seed++), wide);
}

/// silu(A gate^T) * (A up^T): close to that of the two products, and the same bits by every plan.
TEST_F(Sm90Grouped, SwiGlu) {
  unsigned seed = 50;
  for (const auto& [groups, m, n, k] : {std::array{1, 1, 8, 8},
                                        {8, 16, 200, 264},
                                        {40, 900, 72, 136},
                                        {5, 1000, 520, 200},
                                        {3, 700, 257, 72},
                                        {16, 3000, 400, 328}}) {
    const auto offsets = random_offsets(groups, m, seed++);
    const int stride_k = (k + 7) / 8 * 8;
    const size_t matrix = size_t(groups) * n * stride_k, count = size_t(m) * n;
    T *a = device_copy(random_values<T>(size_t(m) * stride_k, seed)), *b = device_copy(random_values<T>(2 * matrix, 2)),
      *c = device_copy(std::vector<T>(count));
    float* sums = device_copy(std::vector<float>(count, NAN));
    int64_t* at = device_copy(offsets);
    GroupedProblem p{a, b, c, at, true, m, n, k, groups, stride_k, stride_k, int64_t{n} * stride_k, n, true};
    std::vector<float> both[2] = {std::vector<float>(count), std::vector<float>(count)};
    for (int i = 0; i < 2; ++i) {
      GroupedProblem one = p;
      one.b = b + i * matrix, one.c = sums, one.float_result = true;
      EXPECT_EQ(sm90_grouped(one, nullptr), cudaSuccess);
      EXPECT_EQ(cudaMemcpy(both[i].data(), sums, count * sizeof(float), cudaMemcpyDeviceToHost), cudaSuccess);
    }
    p.up = b + matrix;
    const auto want = result(p, GroupedPlan::kAuto, count);
    for (size_t i = 0; i < static_cast<size_t>(offsets.back()) * n; ++i) {
      const float gate = both[0][i], exact = gate / (1 + std::exp(-gate)) * both[1][i];
      ASSERT_NEAR(static_cast<float>(want[i]), exact, 0.004f * std::abs(exact) + 1e-6f) << groups << " " << i;
    }
    for (GroupedPlan plan : kPlans)
      EXPECT_EQ(std::memcmp(result(p, plan, count).data(), want.data(), count * sizeof(T)), 0)
          << groups << " groups, " << m << " " << n << " " << k << ", plan " << static_cast<int>(plan);
    for (void* x : {static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(c), static_cast<void*>(sums),
                    static_cast<void*>(at)})
      cudaFree(x);
  }
}

TEST_F(Sm90Grouped, AllRowsInOneGroupAndNone) {
  for (int m : {7, 600, 2000}) {
    std::vector<int64_t> offsets(9, 0);
    check(8, m, 264, 136, offsets, true);  // no group has a row
    for (int g = 4; g < 9; ++g) offsets[g] = m;
    check(8, m, 264, 136, offsets, false);
  }
}

TEST_F(Sm90Grouped, OffsetsOutOfRangeStayInside) {
  const int m = 100, n = 64, k = 64, groups = 4;
  T *a = device_copy(random_values<T>(size_t{m} * k, 1)), *b = device_copy(random_values<T>(size_t{groups} * n * k, 2)),
    *c = device_copy(std::vector<T>(size_t{m} * n, static_cast<T>(NAN)));
  int64_t* offsets = device_copy(std::vector<int64_t>{-5, 40, 20, int64_t{1} << 40, 100});
  const GroupedProblem p{a, b, c, offsets, true, m, n, k, groups, k, k, int64_t{n} * k, n, true};
  EXPECT_EQ(sm90_grouped(p, nullptr), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (void* x : {static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(c), static_cast<void*>(offsets)})
    cudaFree(x);
}

}  // namespace
}  // namespace tenor::cuda::gemm
