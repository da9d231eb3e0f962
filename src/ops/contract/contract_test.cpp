// matmul, bmm, linear, outer, dot: shapes, dtypes, results' layout, errors.
#include "tenor/contract.h"

#include "src/core/step.h"
#include "src/ops/contract/contract_reference.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;

std::string labels_of(int64_t rank, const char* last) {
  const std::string letters = "uvw";
  return letters.substr(letters.size() - static_cast<size_t>(rank), static_cast<size_t>(rank)) + last;
}

TEST(Matmul, EveryRankBroadcasts) {
  Draw draw(1);
  for (int i = 0; i < 200; ++i) {
    const int64_t m = draw.upto(6), k = draw.upto(6), n = draw.upto(6);
    const bool row = draw.upto(4) > 0, column = draw.upto(4) > 0;
    const Dims batch = {draw.upto(2) + 1, draw.upto(2) + 1, draw.upto(2) + 1};
    const auto shape_of = [&](bool matrix, Dims last) {
      Dims shape;
      for (int64_t d = matrix ? draw.upto(3) : 0; d > 0; --d) shape.push_back(draw.upto(3) == 0 ? 1 : batch[3 - d]);
      for (int64_t s : last) shape.push_back(s);
      return shape;
    };
    const Tensor a = draw.view(row ? shape_of(true, {m, k}) : Dims{k}, float32),
                 b = draw.view(column ? shape_of(true, {k, n}) : Dims{k}, float32);
    const std::string la = row ? labels_of(a.ndim() - 2, "ij") : "j", lb = column ? labels_of(b.ndim() - 2, "jk") : "j";
    const int64_t lead = std::max<int64_t>(row ? a.ndim() - 2 : 0, column ? b.ndim() - 2 : 0);
    const std::string out = labels_of(lead, row ? "i" : "") + (column ? "k" : "");
    const reference::Sum want = reference::contract({{a, la}, {b, lb}}, out);
    const std::string what = to_string(a.shape()) + " @ " + to_string(b.shape());
    reference::expect_sum(matmul(a, b), want, k, float32, what);
    const Tensor poisoned = draw.poisoned(want.shape, float32);
    reference::expect_sum(matmul(a, b, {.out = poisoned}), want, k, float32, what + " into out");
  }
}

TEST(Matmul, IntegersAreExactAndWrapInThePromotedDtype) {
  Draw draw(2);
  constexpr DType kIntegers[] = {int8, int16, int32, int64, uint8, uint16, uint32};
  for (int i = 0; i < 120; ++i) {
    const DType da = kIntegers[draw.upto(6)], db = draw.coin() ? da : kIntegers[draw.upto(6)], dtype = promote(da, db);
    const auto random = [&](const Dims& shape, DType d) {
      std::vector<double> v(static_cast<size_t>(product(shape)));
      for (double& e : v) e = static_cast<double>(draw.upto(is_unsigned(d) ? 100 : 200) - (is_unsigned(d) ? 0 : 100));
      const Tensor x = draw.any_layout(shape, d);
      assign(x, v);
      return x;
    };
    const int64_t m = draw.upto(20), k = draw.upto(40), n = draw.upto(20);
    const Tensor a = random({m, k}, da), b = random({k, n}, db), y = matmul(a, b);
    ASSERT_EQ(y.dtype(), dtype);
    const int bits = static_cast<int>(item_size(dtype)) * 8;
    std::vector<double> want = reference::contract({{a, "ij"}, {b, "jk"}}, "ik", bits).values;
    if (is_unsigned(dtype))
      for (double& v : want) v = v < 0 ? v + std::ldexp(1.0, bits) : v;
    EXPECT_EQ(values(y), want) << name(da) << " " << name(db) << " " << to_string(a.shape()) << to_string(b.shape());
  }
}

TEST(Matmul, IntegersBeyondFloatPrecision) {
  const Tensor big = Tensor::empty({1, 2}, int64), eye = tensor_of({2, 2}, int64, {1, 0, 0, 2});
  big.data<int64_t>()[0] = (int64_t(1) << 53) + 1, big.data<int64_t>()[1] = int64_t(1) << 62;
  const Tensor y = matmul(big, eye);
  EXPECT_EQ(y.data<int64_t>()[0], (int64_t(1) << 53) + 1);
  EXPECT_EQ(y.data<int64_t>()[1], std::numeric_limits<int64_t>::min());
}

TEST(Matmul, OfBoolIsWhetherAnyPairIsTrue) {
  const Tensor a = tensor_of({2, 3}, boolean, {1, 1, 0, 0, 0, 0}), b = tensor_of({3, 2}, boolean, {1, 0, 1, 0, 0, 1});
  EXPECT_EQ(values(matmul(a, b)), (std::vector<double>{1, 0, 0, 0}));
  EXPECT_EQ(values(matmul(a, b, {.dtype = int32})), (std::vector<double>{2, 0, 0, 0}));
}

TEST(Matmul, DtypeIsTheResultsAlone) {
  // 2048 + 3 rounds to 2052 in float16; the accumulator itself holds 2051.
  const Tensor a = tensor_of({1, 4}, float16, {2048, 1, 1, 1}), b = full({4, 1}, float16, 1);
  EXPECT_EQ(values(matmul(a, b)), std::vector<double>{2052});
  EXPECT_EQ(values(matmul(a, b, {.dtype = float32})), std::vector<double>{2051});
  EXPECT_EQ(values(matmul(a, b, {.dtype = int32})), std::vector<double>{2051});
  EXPECT_EQ(matmul(a, full({4, 1}, bfloat16, 1)).dtype(), float32);
  EXPECT_EQ(matmul(a, full({4, 1}, int8, 1)).dtype(), float16);
  EXPECT_EQ(matmul(a, full({4, 1}, float64, 1)).dtype(), float64);
  const Tensor bytes = full({1, 4}, int8, 100);
  EXPECT_EQ(values(matmul(bytes, transpose(bytes, 0, 1), {.dtype = int32})), std::vector<double>{40000});
  EXPECT_EQ(values(matmul(bytes, transpose(bytes, 0, 1), {.dtype = float32})), std::vector<double>{40000});
  const Tensor tiny = tensor_of({1, 2}, float32, {1, 0x1p-30});
  EXPECT_EQ(values(matmul(tiny, full({2, 1}, float32, 1), {.dtype = float64})), std::vector<double>{1 + 0x1p-30});
}

TEST(Matmul, EmptyInnerDimGivesZerosAndTheBias) {
  for (DType dtype : {float32, bfloat16, float64, int32, boolean}) {
    const Tensor out = full({2, 3}, dtype, 1);
    EXPECT_EQ(values(matmul(Tensor::empty({2, 0}, dtype), Tensor::empty({0, 3}, dtype), {.out = out})),
              std::vector<double>(6, 0));
    EXPECT_EQ(values(linear(Tensor::empty({1, 0}, dtype), Tensor::empty({2, 0}, dtype), tensor_of({2}, dtype, {0, 1}))),
              (std::vector<double>{0, 1}));
  }
}

TEST(Matmul, ResultKeepsTheDimOrderOfTheFirstOperand) {
  Draw draw(3);
  const Tensor base = draw.dense({5, 4, 3}, float32), x = permute(base, {1, 2, 0}), w = draw.dense({5, 6}, float32);
  const Tensor y = matmul(x, w);
  EXPECT_EQ(y.strides(), (Dims{3, 1, 12}));
  reference::expect_sum(y, reference::contract({{x, "aij"}, {w, "jk"}}, "aik"), 5, float32, "permuted");
}

TEST(Matmul, OutMayBeAnOperand) {
  Draw draw(4);
  for (DType dtype : {float32, bfloat16, int32}) {
    const Tensor a = draw.dense({20, 20}, dtype), b = draw.dense({20, 20}, dtype), want = matmul(a, b),
                 product = matmul(b, a);
    EXPECT_TRUE(same_bits(matmul(a, b, {.out = a}), want));
    EXPECT_TRUE(same_bits(a, want));
  }
}

TEST(Linear, TakesAnyRankAndABiasOfAnotherDtype) {
  Draw draw(5);
  const Tensor w = draw.dense({4, 3}, bfloat16), bias = draw.dense({4}, float32);
  for (const Dims& shape : {Dims{3}, Dims{2, 3}, Dims{2, 5, 3}, Dims{0, 3}}) {
    const Tensor x = draw.view(shape, bfloat16), y = linear(x, w, bias);
    Dims want = shape;
    want.back() = 4;
    EXPECT_EQ(y.shape(), want);
    EXPECT_EQ(y.dtype(), float32);
    const std::vector<double> plain = values(linear(x, w, {}, {.dtype = float32})), added = values(bias),
                              have = values(y);
    for (size_t i = 0; i < have.size(); ++i) EXPECT_NEAR(have[i], plain[i] + added[i % 4], 1e-6);
  }
}

TEST(Outer, MultipliesOnceAndRoundsOnce) {
  Draw draw(6);
  for (DType dtype : {float32, float16, bfloat16, float64}) {
    const Tensor x = draw.view({70}, dtype), y = draw.view({33}, dtype);
    const reference::Sum want = reference::contract({{x, "i"}, {y, "j"}}, "ij");
    const std::vector<double> have = values(outer(x, y));
    for (size_t i = 0; i < have.size(); ++i) ASSERT_EQ(have[i], rounded(want.values[i], dtype));
  }
  EXPECT_EQ(values(outer(tensor_of({2}, int64, {3, -4}), tensor_of({2}, int64, {5, 6}))),
            (std::vector<double>{15, 18, -20, -24}));
}

TEST(Dot, SumsLongVectorsWithinAChainsError) {
  Draw draw(8);
  for (DType dtype : kFloats)
    for (int64_t n : {0, 1, 7, 4096, 10001}) {
      const Tensor x = draw.view({n}, dtype), y = draw.view({n}, dtype);
      reference::expect_sum(dot(x, y), reference::contract({{x, "i"}, {y, "i"}}, ""), n,
                            dtype == float64 ? float64 : float32, "dot " + std::to_string(n));
    }
}

TEST(ContractErrors, NameWhatWasExpectedAndWhatCame) {
  const Tensor m = full({2, 3}, float32, 1), v = full({3}, float32, 1), scalar = full({}, float32, 1),
               b = full({4, 2, 3}, float32, 1);
  expect_error<ShapeError>(
      [&] { matmul(m, m); },
      "matmul: inner sizes differ: x of shape (2, 3) has 3 columns, other of shape (2, 3) has 2 rows");
  expect_error<ShapeError>([&] { matmul(scalar, m); },
                           "matmul: x must have at least one dim, got shapes () and (2, 3)");
  expect_error<ShapeError>(
      [&] {
        matmul(b, full({5, 3, 2}, float32, 1));
      },
      "matmul: shapes (4,) and (5,) do not broadcast: aligned at the right, 4 meets 5 in dim -1");
  expect_error<ShapeError>([&] { bmm(m, m); }, "bmm: x must have 3 dims, got 2 with shape (2, 3)");
  expect_error<ShapeError>(
      [&] {
        bmm(b, full({1, 3, 2}, float32, 1));
      },
      "bmm: x and mat2 must have the same batch size, got 4 and 1 in shapes (4, 2, 3) and (1, 3, 2)");
  expect_error<ShapeError>(
      [&] {
        linear(m, full({4, 2}, float32, 1));
      },
      "linear: x of shape (2, 3) has 3 columns, weight of shape (4, 2) takes 2");
  expect_error<ShapeError>(
      [&] {
        linear(m, full({4, 3}, float32, 1), v);
      },
      "linear: bias must have shape (4,), got (3,)");
  expect_error<ShapeError>([&] { dot(v, full({4}, float32, 1)); }, "dot: x has 3 elements, tensor has 4");
  expect_error<ShapeError>([&] { outer(m, v); }, "outer: x must have 1 dims, got 2 with shape (2, 3)");
  expect_error<DTypeError>([&] { matmul(v.to(float8_e4m3fn), v); },
                           "matmul: operands must not be float8, got float8_e4m3fn; convert them first");
  expect_error<DTypeError>([&] { dot(full({3}, uint64, 1), full({3}, int8, 1)); },
                           "dot: uint64 and int8 have no common dtype; convert one of them");
  expect_error<ShapeError>([&] { matmul(m, v, {.out = full({3}, float32, 0)}); },
                           "matmul: out must have shape (2,), got (3,)");
  expect_error<DTypeError>([&] { matmul(m, v, {.out = full({2}, float16, 0)}); },
                           "matmul: out must be float32, got float16");
  EXPECT_THROW(matmul(m, Tensor()), DTypeError);
}

TEST(ContractCost, CountsMultiplyAddsAndTheBias) {
  struct Recorder : core::Tracer {
    std::vector<core::Step> steps;
    void record(const core::Step& step) override { steps.push_back(step); }
  } recorder;
  {
    const core::TracerGuard guard(&recorder);
    const auto spec = [](Dims shape, DType dtype = float32) {
      return Tensor::empty(std::move(shape), dtype, {DeviceType::kMeta, 0});
    };
    matmul(spec({8}), spec({8}));
    matmul(spec({2, 1, 4, 8}), spec({3, 8, 5}));
    linear(spec({4, 8}), spec({16, 8}), spec({16}));
    outer(spec({4}), spec({5}));
    einsum("ij,jk,kl->il", std::vector<Tensor>{spec({100, 2}), spec({2, 100}), spec({100, 3})});
    matmul(spec({4, 8}, int32), spec({8, 4}, float32));
  }
  std::vector<int64_t> flops;
  for (const core::Step& s : recorder.steps) {
    flops.push_back(s.flops);
    EXPECT_EQ(s.op_class, core::OpClass::kContraction);
  }
  EXPECT_EQ(flops, (std::vector<int64_t>{16, 1920, 1024 + 64, 20, 2 * 2 * 100 * 3 + 2 * 100 * 2 * 3, 256}));
  ASSERT_EQ(recorder.steps.back().copies.size(), 1u);
  EXPECT_EQ(recorder.steps.back().copies[0].reason, "converted from int32 to float32");
  EXPECT_FALSE(recorder.steps[0].strategy.empty());
}

}  // namespace
}  // namespace tenor
