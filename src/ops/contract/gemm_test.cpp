// Every candidate on its own: right on any layout, deterministic, and where promised, the same bits whatever lies
// beside.
#include "src/ops/contract/gemm.h"

#include "src/ops/contract/contract_reference.h"
#include "src/ops/contract/gemm_blocked.h"
#include "tenor/contract.h"
#include "tenor/modes.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;
using contract::StrategyGuard;

constexpr int64_t kSizes[] = {1, 1, 2, 3, 5, 8, 13, 16, 31, 33, 48, 70, 100};

int64_t size_of(Draw& draw) { return kSizes[draw.upto(std::size(kSizes) - 1)]; }

/// x @ other under that candidate, or nothing where it declines the problem.
std::optional<Tensor> under(const std::string& strategy, const Tensor& x, const Tensor& other,
                            const ContractOptions& options = {}) {
  const StrategyGuard guard(strategy);
  try {
    return matmul(x, other, options);
  } catch (const UnsupportedError&) {
    return {};
  }
}

int64_t count(const std::string& strategy, int times) { return strategy == "reference" ? times / 4 : times; }

TEST(Gemm, EveryCandidateMatchesTheReferenceOnRandomShapesAndStrides) {
  for (const std::string& strategy : contract::gemm_strategies()) {
    Draw draw(7);
    int taken = 0;
    for (int i = 0; i < count(strategy, 160); ++i) {
      const DType dtype = kFloats[i % 4],
                  other_dtype = draw.upto(4) == 0 && dtype != float64 ? kFloats[draw.upto(2)] : dtype;
      const Dims batch = draw.upto(2) == 0 ? Dims{draw.upto(3), 2} : Dims{};
      Dims shape = batch, other_shape = batch;
      const int64_t m = size_of(draw), k = draw.upto(9) == 0 ? 600 : size_of(draw), n = size_of(draw);
      shape.push_back(m), shape.push_back(k), other_shape.push_back(k), other_shape.push_back(n);
      const Tensor a = draw.view(shape, dtype), b = draw.view(other_shape, other_dtype);
      const DType result = dtype == other_dtype ? dtype : float32;
      Dims out_shape = batch;
      out_shape.push_back(m), out_shape.push_back(n);
      const Tensor out = draw.poisoned(out_shape, result);
      if (!under(strategy, a, b, {.out = out})) continue;
      ++taken;
      const std::string labels = batch.empty() ? "" : "xy";
      const reference::Sum want = reference::contract({{a, labels + "ij"}, {b, labels + "jk"}}, labels + "ik");
      reference::expect_sum(
          out, want, k, dtype == float64 ? float64 : float32,
          strategy + " " + describe(a) + to_string(a.strides()) + " @ " + describe(b) + to_string(b.strides()));
    }
    if (strategy != "integer" && strategy != "tiles" && strategy != "vendor") {
      EXPECT_GT(taken, 5) << strategy;
    }
  }
}

/// The candidate that is asked before the other, of tiles and vendor.
std::string asked_first(Dims batch, int64_t m, int64_t k, int64_t n) {
  contract::GemmProblem p{.m = m, .n = n, .k = k, .batch = std::move(batch)};
  for (const contract::GemmCandidate& c : contract::gemm_candidates(p))
    if (std::string_view(c.name) == "tiles" || std::string_view(c.name) == "vendor") return c.name;
  return "";
}

TEST(Gemm, OneDnnComesBeforeTheTilesAtMiddleSizes) {
  EXPECT_EQ(asked_first({}, 128, 384, 1536), "vendor");
  EXPECT_EQ(asked_first({}, 8192, 768, 768), "vendor");
  EXPECT_EQ(asked_first({96}, 128, 64, 128), "vendor");
  EXPECT_EQ(asked_first({10000}, 128, 64, 128), "vendor");  // each of them is small
  EXPECT_EQ(asked_first({256}, 32, 32, 32), "vendor");
  EXPECT_EQ(asked_first({}, 64, 64, 64), "tiles");
  EXPECT_EQ(asked_first({}, 32, 4096, 4096), "tiles");
  EXPECT_EQ(asked_first({}, 1536, 384, 16), "tiles");
  EXPECT_EQ(asked_first({}, 4096, 4096, 4096), "tiles");
  EXPECT_EQ(asked_first({int64_t{1} << 40, 1 << 20}, 1 << 30, 1 << 30, 1 << 30), "tiles");  // beyond 64 bits
}

TEST(Gemm, EveryCandidateAddsTheBiasBeforeTheRounding) {
  for (const std::string& strategy : contract::gemm_strategies()) {
    Draw draw(9);
    for (int i = 0; i < count(strategy, 60); ++i) {
      const DType dtype = kFloats[i % 4];
      const int64_t m = size_of(draw), k = size_of(draw), n = size_of(draw);
      const Tensor x = draw.view({m, k}, dtype), w = draw.view({n, k}, dtype), bias = draw.view({n}, dtype);
      const StrategyGuard guard(strategy);
      Tensor y;
      try {
        y = linear(x, w, bias);
      } catch (const UnsupportedError&) {
        continue;
      }
      reference::Sum want = reference::contract({{x, "ij"}, {w, "kj"}}, "ik");
      const std::vector<double> added = values(bias);
      for (size_t e = 0; e < want.values.size(); ++e) {
        want.values[e] += added[e % static_cast<size_t>(n)];
        want.magnitudes[e] += std::abs(added[e % static_cast<size_t>(n)]);
      }
      reference::expect_sum(y, want, k, dtype == float64 ? float64 : float32, strategy + " linear " + describe(x));
    }
  }
}

TEST(Gemm, ErrorOfLongSumsStaysWithinTheBoundsOfTheDesign) {
  for (const std::string& strategy : contract::gemm_strategies())
    for (DType dtype : {float32, bfloat16, float16}) {
      Draw draw(11);
      const Tensor a = draw.dense({5, 5000}, dtype), b = draw.dense({5000, 7}, dtype);
      const auto y = under(strategy, a, b);
      if (!y) continue;
      const double bound = dtype == bfloat16 ? 0x1p-8 : dtype == float16 ? 0x1p-11 : 0x1p-19;
      EXPECT_LT(reference::frobenius_error(*y, reference::contract({{a, "ij"}, {b, "jk"}}, "ik")), bound)
          << strategy << " " << name(dtype);
    }
}

/// a @ b as one chain of multiplications and additions, each rounded to T.
template <class T>
Tensor unfused(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = values(a), y = values(b);
  const int64_t m = a.shape(0), k = a.shape(1), n = b.shape(1);
  std::vector<double> sums;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      T sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += static_cast<T>(x[i * k + l]) * static_cast<T>(y[l * n + j]);
      sums.push_back(static_cast<double>(sum));
    }
  return tensor_of({m, n}, a.dtype(), sums);
}

TEST(Gemm, BlockedIsOneChainOfFmasBitForBit) {
  Draw draw(13);
  for (int i = 0; i < 24; ++i) {
    const DType dtype = kFloats[i % 4];
    const int64_t m = size_of(draw), k = draw.coin() ? 700 : size_of(draw), n = size_of(draw);
    const Tensor a = draw.view({m, k}, dtype), b = draw.view({k, n}, dtype);
    const bool fused = cpu::block_shape(float32).fused;
    const Tensor want = fused              ? *under("reference", a, b)
                        : dtype == float64 ? unfused<double>(a, b)
                                           : unfused<float>(a, b);
    EXPECT_TRUE(same_bits(*under("blocked", a, b), want)) << describe(a) << describe(b);
  }
}

TEST(Gemm, BitsDoNotDependOnTheThreadCountWhereKernelsAreOurs) {
  Draw draw(17);
  for (const std::string& strategy : contract::gemm_strategies()) {
    if (strategy == "vendor") continue;
    for (DType dtype : {float32, bfloat16, float16, float64, int32}) {
      const Tensor a = draw.dense({37, 300}, dtype), b = draw.dense({300, 95}, dtype), row = select(a, 0, 3);
      std::optional<Tensor> wide, narrow, alone;
      {
        const Threads one(1);
        narrow = under(strategy, a, b), alone = under(strategy, row, b);
      }
      {
        const Threads many(5);
        wide = under(strategy, a, b);
        if (alone) {
          EXPECT_TRUE(same_bits(*alone, *under(strategy, row, b))) << strategy;
        }
      }
      if (narrow) {
        EXPECT_TRUE(same_bits(*narrow, *wide)) << strategy << " " << name(dtype);
      }
    }
  }
}

TEST(Gemm, ChainsOfFewRowsMeetInOneOrder) {
  Draw draw(29);
  for (DType dtype : kFloats)
    for (int64_t m : {1, 8}) {
      const Tensor a = draw.dense({6, m, 1100}, dtype), b = draw.dense({6, 1100, 700}, dtype);
      std::optional<Tensor> all;
      {
        const Threads one(1);
        all = under("rows", a, b);
      }
      if (!all) continue;
      const Tensor whole = filled({m, 1100}, dtype, [&](int64_t) { return draw.upto(6) - 3; }),  // whose sums are exact
          matrix = filled({1100, 700}, dtype, [&](int64_t) { return draw.upto(6) - 3; });
      EXPECT_TRUE(same_bits(*under("rows", whole, matrix), *under("reference", whole, matrix))) << name(dtype);
      for (int threads : {1, 5, 7}) {  // matrices on a thread each, and one matrix on all
        const Threads use(threads);
        EXPECT_TRUE(same_bits(*under("rows", a, b), *all)) << name(dtype) << " " << threads;
        for (int64_t i : {0, 5})
          EXPECT_TRUE(same_bits(*under("rows", select(a, 0, i), select(b, 0, i)), select(*all, 0, i))) << name(dtype);
      }
    }
}

TEST(Gemm, TheSameCallGivesTheSameBits) {
  Draw draw(19);
  for (const std::string& strategy : contract::gemm_strategies())
    for (DType dtype : kFloats) {
      const Tensor a = draw.dense({3, 64, 200}, dtype), b = draw.dense({3, 200, 40}, dtype);
      const auto first = under(strategy, a, b);
      for (int i = 0; first && i < 4; ++i)
        EXPECT_TRUE(same_bits(*first, *under(strategy, a, b))) << strategy << " " << name(dtype);
    }
}

TEST(Gemm, BatchInvariantRowsAreTheSameAloneAndAnywhere) {
  const BatchInvariantGuard guard;
  Draw draw(23);
  for (DType dtype : kFloats)
    for (int64_t k : {1, 31, 64, 777}) {
      const int64_t n = 75;
      const Tensor x = draw.view({65, k}, dtype), w = draw.view({n, k}, dtype), all = linear(x, w);
      for (int64_t at : {0, 1, 15, 16, 40, 64}) {
        const Tensor row = narrow(x, 0, at, 1), want = narrow(all, 0, at, 1);
        EXPECT_TRUE(same_bits(linear(row, w), want)) << name(dtype) << " row " << at << " of k = " << k;
        EXPECT_TRUE(same_bits(matmul(select(x, 0, at), transpose(w, 0, 1)), select(all, 0, at)))
            << name(dtype) << " as a vector";
        const Tensor copied = row.contiguous();
        EXPECT_TRUE(same_bits(linear(expand(copied, {9, k}), w), expand(want, {9, n}))) << name(dtype) << " repeated";
        EXPECT_TRUE(same_bits(matmul(expand(copied, {3, 1, k}), expand(transpose(w, 0, 1), {3, k, n})),
                              expand(want, {3, 1, n})))
            << name(dtype) << " in a batch";
      }
      EXPECT_TRUE(same_bits(linear(narrow(x, 0, 7, 33), w), narrow(all, 0, 7, 33))) << name(dtype);
      EXPECT_TRUE(same_bits(matmul(w, transpose(x, 0, 1)), transpose(all, 0, 1))) << name(dtype) << " transposed";
    }
}

TEST(Gemm, OffsetsBeyondTwoToTheThirtyOne) {
  // Rows 2^31 elements apart in address space that is mapped but, but for a few pages, never touched.
  const int64_t step = (int64_t(1) << 31) + 5;
  Tensor wide;
  try {
    wide = Tensor::empty({step + 8}, bfloat16);
  } catch (const OutOfMemoryError&) {
    GTEST_SKIP() << "no address space of 4 GiB";
  }
  const Tensor x = wide.with_layout({2, 3}, {step, 1}, 0), other = tensor_of({3, 2}, bfloat16, {1, 2, 3, 4, 5, 6});
  assign(x, {1, 2, 3, 4, 5, 6});
  for (const std::string& strategy : contract::gemm_strategies())
    if (const auto y = under(strategy, x, other)) {
      EXPECT_EQ(values(*y), (std::vector<double>{22, 28, 49, 64})) << strategy;
    }
  if (const auto y = under("auto", transpose(other, 0, 1), transpose(x, 0, 1))) {
    EXPECT_EQ(values(*y), (std::vector<double>{22, 49, 28, 64}));
  }
  empty_cache();
}

TEST(Gemm, NanAndInfinityPropagateAndStayInTheirRows) {
  for (const std::string& strategy : contract::gemm_strategies())
    for (DType dtype : kFloats) {
      Draw draw(29);
      const Tensor a = draw.dense({20, 40}, dtype), b = draw.dense({40, 21}, dtype);
      const auto clean = under(strategy, a, b);
      if (!clean) continue;
      std::vector<double> v = values(a);
      v[3 * 40 + 7] = kNan, v[5 * 40 + 1] = kInf;
      const std::vector<double> y = values(*under(strategy, tensor_of({20, 40}, dtype, v), b)), want = values(*clean),
                                column = values(b);
      for (size_t i = 0; i < y.size(); ++i) {
        const size_t row = i / 21;
        if (row == 3)
          EXPECT_TRUE(std::isnan(y[i])) << strategy;
        else if (row == 5)
          EXPECT_EQ(y[i], column[21 + i % 21] > 0 ? kInf : -kInf) << strategy;
        else
          EXPECT_EQ(y[i], want[i]) << strategy << " " << name(dtype) << " row " << row;
      }
    }
}

TEST(Gemm, UnknownStrategiesAreErrors) {
  const StrategyGuard guard("fast");
  EXPECT_THROW(matmul(full({2, 2}, float32, 1), full({2, 2}, float32, 1)), ValueError);
}

}  // namespace
}  // namespace tenor
