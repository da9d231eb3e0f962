// Reductions against the float64 reference, on every layout; dtypes, empty axes, errors, out=.
#include "tenor/reduce.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "src/ops/reduce/reduce_reference.h"
#include "src/ops/reduce/reduce_testing.h"

namespace tenor {
namespace {

using namespace tenor::testing;

TEST(Reduce, EveryOperatorAgreesWithFloat64) {
  Random random(3);
  for (int round = 0; round < 15; ++round)
    for (DType dtype : kAll) {
      const Tensor x = any_layout(dtype, random);
      const Dims dims = some_dims(x, random);
      const auto rows = sequences(x, dims);
      const bool empty = !rows.empty() && rows[0].empty();
      const double tolerance = dtype == float64 ? 1e-12 : dtype == float16 ? 1e-3 : dtype == bfloat16 ? 8e-3 : 1e-5;
      const auto expect = [&](const char* name, const Tensor& got,
                              const std::function<double(const std::vector<double>&)>& want) {
        for (size_t i = 0; i < rows.size(); ++i) {
          const double g = at(got, static_cast<int64_t>(i)), w = want(rows[i]);
          ASSERT_TRUE((std::isnan(g) && std::isnan(w)) || g == w || std::abs(g - w) <= tolerance * (1 + std::abs(w)))
              << name << " of " << describe(x) << " strides " << to_string(x.strides()) << " over " << to_string(dims)
              << " at " << i << ": " << g << ", want " << w;
        }
      };
      expect("var", var(x, {.dim = dims, .correction = 0.5}),
             [](const auto& r) { return reduce::reference_var(r, 0.5); });
      expect("std", tenor::std(x, {.dim = dims, .keepdim = true}),
             [](const auto& r) { return std::sqrt(reduce::reference_var(r, 1)); });
      expect("logsumexp", logsumexp(x, {.dim = dims}), [](const auto& r) { return reduce::reference_logsumexp(r); });
      expect("any", any(x, {.dim = dims}),
             [](const auto& r) { return std::any_of(r.begin(), r.end(), [](double v) { return v != 0; }); });
      expect("all", all(x, {.dim = dims}),
             [](const auto& r) { return std::all_of(r.begin(), r.end(), [](double v) { return v != 0; }); });
      expect("count_nonzero", count_nonzero(x, {.dim = dims}), [](const auto& r) {
        return static_cast<double>(std::count_if(r.begin(), r.end(), [](double v) { return v != 0; }));
      });
      for (double p : {0.0, 3.0, 1.5})
        expect("norm", norm(x, {.p = p, .dim = dims}), [p](const auto& r) { return reduce::reference_norm(r, p); });
      if (!is_float(dtype))
        expect("sum", sum(x, {.dim = dims}), [](const auto& r) { return reduce::reference_sum(r); });
      if (empty || rows.empty()) continue;
      expect("amax", amax(x, {.dim = dims}), [](const auto& r) { return reduce::reference_extreme(r, true); });
      expect("amin", amin(x, {.dim = dims}), [](const auto& r) { return reduce::reference_extreme(r, false); });
      expect("norm inf", norm(x, {.p = kInf, .dim = dims}),
             [](const auto& r) { return reduce::reference_norm(r, kInf); });
      expect("norm -inf", norm(x, {.p = -kInf, .dim = dims}),
             [](const auto& r) { return reduce::reference_norm(r, -kInf); });
      if (HasFatalFailure()) return;
    }
}

TEST(Reduce, NaNWinsWhereverItStands) {
  for (DType dtype : kFloats)
    for (int64_t n : {1, 7, 32, 33, 4096, 9001})
      for (int64_t where : {int64_t{0}, n / 2, n - 1}) {
        const Tensor x =
            filled({n}, dtype, [&](int64_t i) { return i == where ? kNan : static_cast<double>(i % 100); });
        EXPECT_TRUE(std::isnan(at(amax(x), 0)) && std::isnan(at(amin(x), 0)) && std::isnan(at(sum(x), 0)));
        EXPECT_TRUE(std::isnan(at(max(x), 0)) && std::isnan(at(logsumexp(x), 0)) &&
                    std::isnan(at(norm(x, {.p = kInf}), 0)));
        EXPECT_EQ(at(argmax(x), 0), where);
        EXPECT_EQ(at(argmin(x), 0), where);
      }
}

TEST(Reduce, DtypesOfResults) {
  EXPECT_EQ(sum(list({1, 1}, boolean)).dtype(), int64);
  EXPECT_EQ(sum(list({1, 1}, uint8)).dtype(), uint64);
  EXPECT_EQ(at(sum(list({2147483647, 2147483647}, int32)), 0), 4294967294.0);
  EXPECT_EQ(at(sum(list({127, 127}, int8), {.dtype = int8}), 0), -2);
  EXPECT_EQ(at(sum(list({1.9, 2.9}), {.dtype = int64}), 0), 3);
  EXPECT_EQ(at(sum(list({300}), {.dtype = int8}), 0), 127);
  EXPECT_EQ(at(sum(list({1e30}), {.dtype = int32}), 0), 2147483647);
  EXPECT_EQ(at(sum(list({-1}), {.dtype = uint8}), 0), 0);
  EXPECT_EQ(at(sum(list({300, 300}), {.dtype = int8}), 0), -2);  // sums wrap
  EXPECT_EQ(at(prod(list({1e30, 1}), {.dtype = int16}), 0), 32767);
  EXPECT_EQ(at(sum(list({0, 3}), {.dtype = boolean}), 0), 1);
  EXPECT_EQ(at(prod(list({0, 3}), {.dtype = boolean}), 0), 0);
  EXPECT_EQ(mean(list({1, 2}, int64)).dtype(), float32);
  EXPECT_EQ(at(mean(list({1, 2, 2}, int64), {.dtype = float64}), 0), 5.0 / 3);
  EXPECT_EQ(at(sum(list({40000, 40000}, float16)), 0), kInf);
  EXPECT_EQ(at(mean(list({40000, 40000}, float16)), 0), 40000);
  EXPECT_EQ(at(sum(list({40000, 40000}, float16), {.dtype = float32}), 0), 80000);
  const Tensor huge = Tensor::empty({2}, uint64);
  huge.data<uint64_t>()[0] = ~uint64_t{0}, huge.data<uint64_t>()[1] = 3;
  EXPECT_EQ(*sum(huge).data<uint64_t>(), 2u);
  EXPECT_EQ(*max(huge).data<uint64_t>(), ~uint64_t{0});
  EXPECT_EQ(*argmin(huge).data<int64_t>(), 1);
}

TEST(Reduce, AccuracyOfLongSumsAndOfVariancesFarFromZero) {
  EXPECT_NEAR(at(sum(filled({1000000}, float32, [](int64_t) { return 0.1; })), 0), 1e5, 1e5 * 1e-7 * 10);
  // The mean of an even count falls between floats: its rounding error must not reach the variance.
  for (double mean : {1e4, 1e7})
    EXPECT_NEAR(
        at(var(filled({4}, float32, [&](int64_t i) { return mean + static_cast<double>(i); }), {.correction = 0}), 0),
        1.25, 1e-6);
  EXPECT_EQ(at(var(filled({1001}, float32, [](int64_t) { return 0.1; })), 0), 0);
  for (double correction : {1.0, 2.0}) EXPECT_TRUE(std::isnan(at(var(list({5}), {.correction = correction}), 0)));
}

TEST(Reduce, VarianceOfIntegersBeyondFloats) {
  for (DType dtype : {uint64, int64, int32, uint32}) {
    const Tensor x = Tensor::empty({3, 2}, dtype);
    const int64_t low = dtype == int32 ? INT32_MIN : dtype == int64 ? INT64_MIN : 0;
    const uint64_t high = dtype == uint64  ? UINT64_MAX
                          : dtype == int64 ? INT64_MAX
                          : dtype == int32 ? INT32_MAX
                                           : UINT32_MAX;
    const uint64_t values[] = {high,     static_cast<uint64_t>(low),    high - 2, static_cast<uint64_t>(low) + 4,
                               high - 4, static_cast<uint64_t>(low) + 8};
    for (int i = 0; i < 6; ++i)
      std::memcpy(x.data<char>() + i * static_cast<int64_t>(item_size(dtype)), &values[i], item_size(dtype));
    EXPECT_EQ(at(var(x, {.dim = Dims{0}}), 0), 4) << name(dtype);
    EXPECT_EQ(at(var(x, {.dim = Dims{0}}), 1), 16) << name(dtype);
    EXPECT_EQ(at(tenor::std(select(x, 1, 0), {.correction = 0}), 0), static_cast<float>(std::sqrt(8.0 / 3)))
        << name(dtype);
    const double span = static_cast<double>(high) - static_cast<double>(low);
    EXPECT_NEAR(at(var(select(x, 0, 0)), 0) / (span * span / 2), 1, 1e-6) << name(dtype);
  }
}

TEST(Reduce, EmptyAxes) {
  const Tensor e = Tensor::empty({0, 3}, float32);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(at(sum(e, {.dim = Dims{0}}), i), 0);
    EXPECT_EQ(at(prod(e, {.dim = Dims{0}}), i), 1);
    EXPECT_TRUE(std::isnan(at(mean(e, {.dim = Dims{0}}), i)));
    EXPECT_EQ(at(logsumexp(e, {.dim = Dims{0}}), i), -kInf);
    EXPECT_EQ(at(all(e, {.dim = Dims{0}}), i), 1);
    EXPECT_EQ(at(any(e, {.dim = Dims{0}}), i), 0);
  }
  for (const auto& op :
       {std::function<void()>([&] { amax(e, {.dim = Dims{0}}); }),
        std::function<void()>([&] { argmin(e, {.dim = 0}); }), std::function<void()>([&] { max(e, 0); }),
        std::function<void()>([&] { min(e); }), std::function<void()>([&] { norm(e, {.p = kInf}); })})
    EXPECT_THROW(op(), ShapeError);
  EXPECT_EQ(amax(e, {.dim = Dims{1}}).shape(), Dims{0});
  EXPECT_EQ(max(e, 1).indices.shape(), Dims{0});
}

TEST(Reduce, NoDimsAndNoRank) {
  const Tensor x = list({1.5, -2});
  EXPECT_EQ(sum(x, {.dim = Dims{}}).shape(), Dims{2});
  EXPECT_EQ(at(amax(x, {.dim = Dims{}}), 1), -2);
  EXPECT_TRUE(std::isnan(at(var(x, {.dim = Dims{}}), 0)));
  const Tensor scalar = select(x, 0, 1);
  EXPECT_EQ(at(sum(scalar, {.dim = Dims{0}}), 0), -2);
  EXPECT_EQ(at(argmax(scalar, {.dim = -1}), 0), 0);
  EXPECT_EQ(at(max(scalar, 0).values, 0), -2);
}

TEST(Reduce, Errors) {
  const Tensor x = list({1, 2, 3});
  expect_error<IndexError>([&] { sum(x, {.dim = Dims{1}}); },
                           "sum: dim 1 is out of range for 1 dims (expected -1 to 0)");
  expect_error<ValueError>([&] { sum(x, {.dim = Dims{0, -1}}); }, "sum: dim -1 is given twice in (0, -1)");
  expect_error<ShapeError>(
      [&] {
        argmax(Tensor::empty({2, 0}, float32), {.dim = 1});
      },
      "argmax: dim 1 of x is empty (shape (2, 0)), so there is no value to return");
  expect_error<DTypeError>([&] { mean(x, {.dtype = int32}); },
                           "mean: dtype must be float16, bfloat16, float32 or float64, got int32");
  expect_error<DTypeError>([&] { amax(Tensor::empty({2}, float8_e5m2)); },
                           "amax: x must not be an 8-bit float, got float8_e5m2; convert it with to(float32)");
  expect_error<ValueError>([&] { var(x, {.correction = kNan}); }, "var: correction must be finite, got nan");
  expect_error<ValueError>([&] { norm(x, {.p = kNan}); }, "norm: p must be a number, got nan");
  expect_error<DTypeError>([&] { sum(Tensor()); }, "sum: x is required, got nothing");
  expect_error<DTypeError>([&] { sum(x, {.out = Tensor::empty({}, int64)}); }, "sum: out must be float32, got int64");
  expect_error<ShapeError>([&] { sum(x, {.keepdim = true, .out = Tensor::empty({}, float32)}); },
                           "sum: out must have shape (1,), got ()");
}

TEST(Reduce, OutIsWrittenWhateverItHeldAndWhereverItLies) {
  Random random(7);
  const Tensor x = numbers({6, 10}, float32, random), want = sum(x, {.dim = Dims{1}});
  const Tensor memory = filled({18}, float32, [](int64_t) { return kNan; }), strided = slice(memory, 0, 0, {}, 3);
  EXPECT_EQ(sum(x, {.dim = Dims{1}, .out = strided}).raw(), strided.raw());
  for (int64_t i = 0; i < 18; ++i)
    EXPECT_TRUE(i % 3 ? std::isnan(at(memory, i)) : same(at(memory, i), at(want, i / 3)));
  // Over x itself: as if computed before writing.
  const Tensor y = x.clone();
  sum(y, {.dim = Dims{1}, .out = select(y, 1, 0)});
  for (int64_t i = 0; i < 6; ++i) EXPECT_TRUE(same(at(y, i * 10), at(want, i)));
  // Values and places that lie differently.
  const Tensor places = transpose(Tensor::empty({10, 1}, int64), 0, 1),
               values = slice(filled({1, 20}, float32, [](int64_t) { return kNan; }), 1, 0, {}, 2);
  const ExtremeResult r = max(x, 0, {.keepdim = true, .out = values, .out_indices = places});
  for (int64_t c = 0; c < 10; ++c) EXPECT_EQ(at(r.values, c), at(x, static_cast<int64_t>(at(r.indices, c)) * 10 + c));
}

TEST(Reduce, KeptDimsKeepTheirOrderInMemory) {
  const Tensor x = permute(Tensor::empty({2, 5, 6, 3}, float32), {0, 3, 1, 2});  // channels last
  EXPECT_EQ(amax(filled({2, 3}, float32, [](int64_t i) { return i; }), {.dim = Dims{0}}).strides(), Dims{1});
  EXPECT_EQ(sum(x, {.dim = Dims{2}, .keepdim = true}).stride(1), 1);
}

TEST(Reduce, OffsetsBeyondTwoToThe31) {
  // A byte a row, 2^31 + 2^30 bytes apart, without ever touching most of the memory.
  const int64_t far = (int64_t{3} << 30);
  const Tensor memory = Tensor::empty({far + 2}, uint8);
  memory.data<uint8_t>()[0] = 3, memory.data<uint8_t>()[1] = 4, memory.data<uint8_t>()[far] = 5,
  memory.data<uint8_t>()[far + 1] = 7;
  const Tensor x = memory.with_layout({2, 2}, {far, 1}, 0);
  EXPECT_EQ(at(sum(x, {.dim = Dims{0}}), 1), 11);
  EXPECT_EQ(at(sum(x, {.dim = Dims{1}}), 1), 12);
  EXPECT_EQ(at(argmax(x), 0), 3);
}

}  // namespace
}  // namespace tenor
