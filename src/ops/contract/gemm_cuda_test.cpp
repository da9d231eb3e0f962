// Every CUDA candidate on its own: right on any layout, deterministic, and where promised, the same bits whatever lies
// beside.
#include <array>
#include <atomic>
#include <thread>

#include "src/core/output.h"
#include "src/cuda/testing.h"
#include "src/ops/contract/contract_reference.h"
#include "src/ops/contract/gemm.h"
#include "tenor/contract.h"
#include "tenor/elementwise.h"
#include "tenor/modes.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;
using contract::StrategyGuard;

class GemmCuda : public CudaTest {};

constexpr int64_t kSizes[] = {1, 2, 3, 8, 15, 16, 17, 33, 64, 70, 100, 129, 200};
constexpr int64_t kDepths[] = {1, 2, 7, 8, 31, 64, 100, 256, 257, 300, 520, 1000, 1024, 4099};

std::vector<std::string> strategies() { return contract::gemm_strategies(DeviceType::kCuda); }

Tensor magnitude(const Tensor& x) {
  std::vector<double> v = values(x);
  for (double& e : v) e = std::abs(e);
  return tensor_of(x.shape(), float64, v);
}

/// What a @ b must be, from CPU operands, by float64 arithmetic.
reference::Sum wanted(const Tensor& a, const Tensor& b) {
  const Tensor sums = matmul(a.to(float64), b.to(float64));
  return {values(sums), values(matmul(magnitude(a), magnitude(b))), sums.shape()};
}

/// x @ other of CPU operands, computed on the GPU under that candidate; nothing where it declines the problem.
std::optional<Tensor> under(const std::string& strategy, const Tensor& x, const Tensor& other,
                            const ContractOptions& options = {}) {
  const StrategyGuard guard(strategy);
  try {
    return on_cpu(matmul(on_gpu(x), on_gpu(other), options));
  } catch (const UnsupportedError&) {
    return {};
  }
}

TEST_F(GemmCuda, EveryCandidateMatchesTheReferenceOnRandomShapesAndStrides) {
  for (const std::string& strategy : strategies()) {
    Draw draw(7);
    int taken = 0;
    for (int i = 0; i < 220; ++i) {
      const DType dtype = kFloats[i % 4],
                  other_dtype = draw.upto(6) == 0 && dtype != float64 ? kFloats[draw.upto(2)] : dtype;
      const Dims batch = draw.upto(2) == 0 ? Dims{draw.upto(3), 2} : Dims{};
      const bool narrow_rows = draw.coin(), narrow_cols = !narrow_rows && draw.coin();
      const int64_t m = narrow_rows ? draw.upto(15) + 1 : kSizes[draw.upto(12)], k = kDepths[draw.upto(13)],
                    n = narrow_cols ? draw.upto(15) + 1 : kSizes[draw.upto(12)];
      Dims shape = batch, other_shape = batch, out_shape = batch;
      shape.push_back(m), shape.push_back(k), other_shape.push_back(k), other_shape.push_back(n),
          out_shape.push_back(m), out_shape.push_back(n);
      const bool plain = draw.coin();
      const Tensor a = plain ? draw.dense(shape, dtype) : draw.view(shape, dtype),
                   b = plain ? draw.dense(other_shape, other_dtype) : draw.view(other_shape, other_dtype);
      const DType result =
          dtype == other_dtype && draw.upto(4) > 0 ? dtype : promote(promote(dtype, other_dtype), float32);
      const Tensor out = on_gpu(plain ? full(out_shape, result, kNan) : draw.poisoned(out_shape, result));
      const auto got = under(strategy, a, b, {.dtype = result, .out = out});
      if (!got) continue;
      ++taken;
      reference::expect_sum(*got, wanted(a, b), k, dtype == float64 ? float64 : float32,
                            strategy + " " + to_string(a.shape()) + to_string(a.strides()) + " @ " +
                                to_string(b.shape()) + to_string(b.strides()) + " " + std::string(name(dtype)));
      if (HasFatalFailure()) return;
    }
    EXPECT_GE(taken, strategy == "simple" ? 220 : strategy == "vendor" ? 0 : 20) << strategy;
  }
}

/// What a @ b must be, from operands on the GPU, by the float64 chains of "simple".
reference::Sum wanted_on_gpu(const Tensor& a, const Tensor& b) {
  const StrategyGuard guard("simple");
  const Tensor x = a.to(float64), y = b.to(float64), sums = on_cpu(matmul(x, y));
  return {values(sums), values(on_cpu(matmul(abs(x), abs(y)))), sums.shape()};
}

/// A matrix [batch, k, n] on the GPU whose rows or columns are contiguous, at multiples of 16 bytes or one element
/// past.
Tensor few_rows_matrix(Draw& draw, const Dims& shape, DType dtype, bool along_k, bool loose) {
  const int64_t batch = shape[0], k = shape[1] + loose, n = shape[2] + loose;
  const Tensor whole =
      along_k ? transpose(on_gpu(draw.dense({batch, n, k}, dtype)), 1, 2) : on_gpu(draw.dense({batch, k, n}, dtype));
  return narrow(narrow(whole, 1, loose, shape[1]), 2, loose, shape[2]);
}

TEST_F(GemmCuda, FewRowsMatchFloat64WhateverTheSplit) {
  Draw draw(37);
  int taken = 0;
  for (DType dtype : kFloats)
    for (const Dims& shape :
         {Dims{1, 256, 3}, {3, 257, 130}, {1, 1000, 40}, {1, 4099, 17}, {1, 9000, 64}, {2, 2056, 1100}, {1, 520, 9001}})
      for (bool along_k : {false, true})
        for (bool loose : {false, true}) {
          const int64_t batch = shape[0], k = shape[1], n = shape[2];
          const Tensor w = few_rows_matrix(draw, shape, dtype, along_k, loose),
                       all = on_gpu(draw.dense({batch, 16, k}, dtype));
          const reference::Sum want = wanted_on_gpu(all, w);
          for (int64_t rows : {1, 2, 3, 4, 5, 8, 9, 16}) {
            const std::string what = to_string(w.shape()) + to_string(w.strides()) + " " + std::string(name(dtype)) +
                                     ", " + std::to_string(rows) + " rows";
            const Tensor x = narrow(all, 1, 0, rows), out = on_gpu(full({batch, rows, n}, dtype, kNan));
            const StrategyGuard guard("rows");
            try {
              matmul(x, w, {.out = out});
            } catch (const UnsupportedError&) {
              continue;
            }
            ++taken;
            reference::Sum own{{}, {}, {batch, rows, n}};
            for (int64_t b = 0; b < batch; ++b)
              for (int64_t e = 0; e < rows * n; ++e)
                for (auto [from, to] : {std::pair{&want.values, &own.values}, {&want.magnitudes, &own.magnitudes}})
                  to->push_back((*from)[static_cast<size_t>(b * 16 * n + e)]);
            reference::expect_sum(on_cpu(out), own, k, dtype == float64 ? float64 : float32, what);
            if (rows == n) continue;  // either may be the matrix
            const Tensor turned = matmul(transpose(w, 1, 2), transpose(x, 1, 2));
            EXPECT_TRUE(same_bits(on_cpu(transpose(turned, 1, 2)), on_cpu(out))) << what << ", turned";
            if (HasFatalFailure()) return;
          }
        }
  EXPECT_GT(taken, 500);
}

/// Few rows against many contiguous columns of any length, which kernels of their own take: results, the bias, what is
/// past the last column, the same bits each time.
TEST_F(GemmCuda, FewRowsOfManyColumns) {
  Draw draw(38);
  const StrategyGuard guard("rows");
  for (const DType dtype : {bfloat16, float16, float32})
    for (const auto& [k, n] : {std::pair<int64_t, int64_t>{1032, 2113},
                               {2056, 2113},
                               {3000, 1061},
                               {4096, 1061},
                               {4104, 601},
                               {8200, 601}}) {
      const Tensor w = on_gpu(draw.dense({n, k}, dtype)), all = on_gpu(draw.dense({8, k}, dtype)),
                   bias = on_gpu(draw.dense({n}, float32)), matrix = transpose(w, 0, 1);
      const reference::Sum want = wanted_on_gpu(all, matrix);
      for (const int64_t rows : {1, 2, 8}) {
        if (rows > (dtype == float32 ? 2 : 8)) continue;
        const std::string what = std::string(name(dtype)) + " " + to_string(Dims{rows, k, n});
        const Tensor x = narrow(all, 0, 0, rows), guarded = on_gpu(full({rows + 1, n}, dtype, 7)),
                     out = narrow(guarded, 0, 0, rows);
        linear(x, w, {}, {.out = out});
        reference::Sum own{{}, {}, {rows, n}};
        own.values.assign(want.values.begin(), want.values.begin() + rows * n);
        own.magnitudes.assign(want.magnitudes.begin(), want.magnitudes.begin() + rows * n);
        reference::expect_sum(on_cpu(out), own, k, float32, what);
        EXPECT_EQ(values(on_cpu(narrow(guarded, 0, rows, 1))), std::vector<double>(static_cast<size_t>(n), 7))
            << what << ": written past the last row";
        EXPECT_TRUE(same_bits(on_cpu(linear(x, w)), on_cpu(out))) << what << ", again";
        const Tensor sums = linear(x, w, {}, {.dtype = float32}),
                     biased = linear(x, w, bias.to(dtype), {.dtype = float32});
        EXPECT_TRUE(same_bits(on_cpu(add(sums, bias.to(dtype).to(float32))), on_cpu(biased))) << what << ", bias";
        if (HasFatalFailure()) return;
      }
    }
}

TEST_F(GemmCuda, EveryCandidateAddsTheBiasBeforeTheRounding) {
  for (const std::string& strategy : strategies()) {
    Draw draw(9);
    for (int i = 0; i < 80; ++i) {
      const DType dtype = kFloats[i % 4], bias_dtype = draw.upto(3) == 0 && dtype != float64 ? float32 : dtype;
      const int64_t m = draw.coin() ? draw.upto(15) + 1 : kSizes[draw.upto(12)], k = kDepths[draw.upto(12)],
                    n = kSizes[draw.upto(12)];
      const Tensor x = draw.dense({m, k}, dtype), w = draw.dense({n, k}, dtype), bias = draw.view({n}, bias_dtype);
      Tensor y;
      try {
        const StrategyGuard guard(strategy);
        y = on_cpu(linear(on_gpu(x), on_gpu(w), on_gpu(bias)));
      } catch (const UnsupportedError&) {
        continue;
      }
      reference::Sum want = wanted(x, transpose(w, 0, 1));
      const std::vector<double> added = values(bias);
      for (size_t e = 0; e < want.values.size(); ++e) {
        want.values[e] += added[e % static_cast<size_t>(n)];
        want.magnitudes[e] += std::abs(added[e % static_cast<size_t>(n)]);
      }
      reference::expect_sum(
          y, want, k, dtype == float64 ? float64 : float32,
          strategy + " linear " + to_string(x.shape()) + to_string(w.shape()) + std::string(name(dtype)));
    }
  }
}

TEST_F(GemmCuda, ErrorOfLongSumsStaysWithinTheBoundsOfTheDesign) {
  for (const std::string& strategy : strategies())
    for (DType dtype : {float32, bfloat16, float16}) {
      Draw draw(11);
      const Tensor a = draw.dense({5, 5000}, dtype), b = draw.dense({5000, 40}, dtype);
      const auto y = under(strategy, a, b);
      if (!y) continue;
      const double bound = dtype == bfloat16 ? 0x1p-8 : dtype == float16 ? 0x1p-11 : 0x1p-19;
      EXPECT_LT(reference::frobenius_error(*y, wanted(a, b)), bound) << strategy << " " << name(dtype);
    }
}

TEST_F(GemmCuda, SimpleIsOneChainOfFmasBitForBit) {
  Draw draw(13);
  for (int i = 0; i < 24; ++i) {
    const DType dtype = kFloats[i % 4];
    const bool large = i >= 20;  // the wider tile
    const int64_t m = large ? 1500 : kSizes[draw.upto(12)], k = large ? 40 : kDepths[draw.upto(11)],
                  n = large ? 1600 : kSizes[draw.upto(12)];
    const Tensor a = draw.view({m, k}, dtype), b = draw.view({k, n}, dtype);
    const auto chain = [&] {
      const StrategyGuard guard("blocked");
      return matmul(a, b);
    };
    EXPECT_TRUE(same_bits(*under("simple", a, b), chain())) << describe(a) << describe(b);
  }
}

TEST_F(GemmCuda, TheSameCallGivesTheSameBits) {
  Draw draw(19);
  for (const std::string& strategy : strategies())
    for (DType dtype : kFloats)
      for (const auto& [m, k, n] : {std::array<int64_t, 3>{64, 200, 40}, {3, 9000, 20}, {130, 4096, 260}}) {
        const Tensor a = draw.dense({2, m, k}, dtype), b = draw.dense({2, k, n}, dtype);
        const auto first = under(strategy, a, b);
        for (int i = 0; first && i < 3; ++i)
          EXPECT_TRUE(same_bits(*first, *under(strategy, a, b))) << strategy << " " << name(dtype);
      }
}

TEST_F(GemmCuda, BatchInvariantRowsAreTheSameAloneAndAnywhere) {
  const BatchInvariantGuard guard;
  Draw draw(23);
  for (DType dtype : kFloats)
    for (int64_t k : {1, 31, 64, 777, 1024})
      for (int64_t n : {75, 1000}) {
        const Tensor cx = draw.view({333, k}, dtype), cw = draw.view({n, k}, dtype);
        const Tensor x = on_gpu(cx), w = on_gpu(cw), all = linear(x, w), host = on_cpu(all);
        reference::expect_sum(host, wanted(cx, transpose(cw, 0, 1)), k, dtype == float64 ? float64 : float32,
                              "invariant");
        for (int64_t at : {0, 1, 15, 16, 130, 332}) {
          const Tensor row = narrow(x, 0, at, 1), want = on_cpu(narrow(host, 0, at, 1));
          EXPECT_TRUE(same_bits(on_cpu(linear(row, w)), want))
              << name(dtype) << " row " << at << " of k = " << k << " n = " << n;
          EXPECT_TRUE(same_bits(on_cpu(matmul(select(x, 0, at), transpose(w, 0, 1))), select(host, 0, at)))
              << name(dtype) << " as a vector";
          const Tensor copied = row.contiguous();
          EXPECT_TRUE(same_bits(on_cpu(linear(expand(copied, {9, k}), w)), expand(want, {9, n})))
              << name(dtype) << " repeated";
          EXPECT_TRUE(same_bits(on_cpu(matmul(expand(copied, {3, 1, k}), expand(transpose(w, 0, 1), {3, k, n}))),
                                expand(want, {3, 1, n})))
              << name(dtype) << " in a batch";
        }
        EXPECT_TRUE(same_bits(on_cpu(linear(narrow(x, 0, 7, 33), w)), narrow(host, 0, 7, 33))) << name(dtype);
        EXPECT_TRUE(same_bits(on_cpu(linear(narrow(x, 0, 7, 129), w)), narrow(host, 0, 7, 129))) << name(dtype);
        EXPECT_TRUE(same_bits(on_cpu(matmul(w, transpose(x, 0, 1))), transpose(host, 0, 1)))
            << name(dtype) << " transposed";
        EXPECT_TRUE(same_bits(on_cpu(matmul(x, transpose(w, 0, 1).contiguous())), host))
            << name(dtype) << " weights of the other layout";
      }
}

TEST_F(GemmCuda, OffsetsBeyondTwoToTheThirtyOne) {
  const int64_t step = (int64_t(1) << 31) + 5;
  const Tensor wide = Tensor::empty({2 * step + 600}, bfloat16, kGpu);
  const Tensor x = wide.with_layout({2, 300}, {step, 1}, 0), other = on_gpu(full({300, 2}, bfloat16, 2));
  core::copy_into(on_gpu(full({2, 300}, bfloat16, 1)), x);
  for (const std::string& strategy : strategies()) {
    const StrategyGuard guard(strategy);
    try {
      EXPECT_EQ(values(on_cpu(matmul(x, other))), (std::vector<double>{600, 600, 600, 600})) << strategy;
      EXPECT_EQ(values(on_cpu(matmul(transpose(other, 0, 1), transpose(x, 0, 1)))),
                (std::vector<double>{600, 600, 600, 600}))
          << strategy;
      const Tensor out = wide.with_layout({2, 2}, {step, 1}, 400);
      EXPECT_EQ(values(on_cpu(matmul(x, other, {.out = out}).contiguous())), (std::vector<double>{600, 600, 600, 600}))
          << strategy;
    } catch (const UnsupportedError&) {
    }
  }
}

TEST_F(GemmCuda, NanAndInfinityPropagateAndStayInTheirRows) {
  for (const std::string& strategy : strategies())
    for (DType dtype : kFloats)
      for (const auto& [m, k] : {std::array<int64_t, 2>{20, 40}, {8, 300}}) {
        Draw draw(29);
        const Tensor a = draw.dense({m, k}, dtype), b = draw.dense({k, 21}, dtype);
        const auto clean = under(strategy, a, b);
        if (!clean) continue;
        std::vector<double> v = values(a);
        v[static_cast<size_t>(3 * k + 7)] = kNan, v[static_cast<size_t>(5 * k + 1)] = kInf;
        const std::vector<double> y = values(*under(strategy, tensor_of({m, k}, dtype, v), b)), want = values(*clean),
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

TEST_F(GemmCuda, SeveralThreadsMayCallAtOnce) {
  Draw draw(31);
  const Tensor a = draw.dense({64, 128}, bfloat16), b = draw.dense({128, 256}, bfloat16), want = *under("auto", a, b);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const int64_t n = 8 + (i * 8 + t) % 57;  // plans are made on the way
        const auto y = under("auto", narrow(a, 0, 0, n), b);
        if (y->shape() != Dims{n, 256} || (n == 64 && !same_bits(*y, want))) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(GemmCuda, Float32IsNotTf32UnlessAllowed) {
  // 1 + 2^-12 loses its last bit in TF32's 10 bits of mantissa.
  const Tensor a = full({64, 64}, float32, 1 + 0x1p-12),
               eye = filled({64, 64}, float32, [](int64_t i) { return i % 65 == 0; });
  for (const std::string& strategy : strategies()) {
    if (const auto y = under(strategy, a, eye)) {
      EXPECT_EQ(values(*y), std::vector<double>(64 * 64, 1 + 0x1p-12)) << strategy;
    }
  }
}

TEST_F(GemmCuda, UnknownStrategiesAreErrorsAndDeclinedOnesSayWhy) {
  const Tensor x = on_gpu(full({40, 40}, float32, 1));
  {
    const StrategyGuard guard("fast");
    EXPECT_THROW(matmul(x, x), ValueError);
  }
  const StrategyGuard guard("rows");
  try {
    matmul(x, x);
    ADD_FAILURE() << "rows took 40 rows";
  } catch (const UnsupportedError& e) {
    EXPECT_NE(std::string(e.what()).find("strategy 'rows' cannot do this: takes at most 16 rows"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace tenor
