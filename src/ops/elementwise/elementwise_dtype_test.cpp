// Dtype rules, integers, comparisons, logic, choice, in-place forms and errors.
#include "src/core/testing.h"
#include "src/ops/elementwise/elementwise_reference.h"
#include "tenor/elementwise.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;
using Wide = __int128;

constexpr DType kIntegers[] = {int8, int16, int32, int64, uint8, uint16, uint32, uint64};

template <class T>
Wide wide(T v) {
  return static_cast<Wide>(v);
}
/// Every pair of the interesting values of T, as two tensors and the values.
template <class T>
struct Pairs {
  std::vector<T> a, b;
  Tensor x, y;
  explicit Pairs(DType dtype) {
    using L = std::numeric_limits<T>;
    const T some[] = {
        L::min(), static_cast<T>(L::min() + 1), L::max(),           static_cast<T>(L::max() - 1), 0,  1,  2,  3,  7,
        10,       static_cast<T>(-1),           static_cast<T>(-2), static_cast<T>(-7),           31, 32, 33, 63, 64,
        100};
    for (T u : some)
      for (T v : some) a.push_back(u), b.push_back(v);
    x = Tensor::empty({static_cast<int64_t>(a.size())}, dtype);
    y = Tensor::empty({static_cast<int64_t>(a.size())}, dtype);
    std::copy(a.begin(), a.end(), x.data<T>());
    std::copy(b.begin(), b.end(), y.data<T>());
  }
  template <class F>
  void expect(const Tensor& got, const char* what, F fn) const {
    ASSERT_EQ(got.dtype(), x.dtype()) << what;
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_EQ(got.data<T>()[i], static_cast<T>(fn(wide(a[i]), wide(b[i]))))
          << what << " " << name(x.dtype()) << " of " << +a[i] << " and " << +b[i];
  }
};

template <class T>
Wide power(Wide a, Wide b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
  uint64_t result = 1;
  for (uint64_t base = static_cast<uint64_t>(a), e = static_cast<uint64_t>(b); e; e >>= 1, base *= base)
    if (e & 1) result *= base;
  return static_cast<Wide>(result);
}

TEST(ElementwiseIntegers, EveryOperatorOnTheEdges) {
  for (const DType dtype : kIntegers) {
    core::visit_integer(dtype, [&]<class T>() {
      const Pairs<T> p(dtype);
      constexpr int kBits = 8 * sizeof(T);
      const auto floor = [](Wide a, Wide b) { return reference::integer_floor_divide(a, b); };
      p.expect(add(p.x, p.y), "add", [](Wide a, Wide b) { return a + b; });
      p.expect(sub(p.x, p.y), "sub", [](Wide a, Wide b) { return a - b; });
      p.expect(mul(p.x, p.y), "mul",
               [](Wide a, Wide b) { return static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b); });
      p.expect(floor_divide(p.x, p.y), "floor_divide", floor);
      p.expect(div(p.x, p.y, {.rounding_mode = "trunc"}), "div trunc",
               [](Wide a, Wide b) { return b == 0 ? 0 : a / b; });
      p.expect(remainder(p.x, p.y), "remainder", [&](Wide a, Wide b) { return b == 0 ? 0 : a - floor(a, b) * b; });
      p.expect(fmod(p.x, p.y), "fmod", [](Wide a, Wide b) { return b == 0 ? 0 : a % b; });
      p.expect(pow(p.x, p.y), "pow", &power<T>);
      p.expect(maximum(p.x, p.y), "maximum", [](Wide a, Wide b) { return a > b ? a : b; });
      p.expect(minimum(p.x, p.y), "minimum", [](Wide a, Wide b) { return a < b ? a : b; });
      p.expect(bitwise_and(p.x, p.y), "and", [](Wide a, Wide b) { return a & b; });
      p.expect(bitwise_or(p.x, p.y), "or", [](Wide a, Wide b) { return a | b; });
      p.expect(bitwise_xor(p.x, p.y), "xor", [](Wide a, Wide b) { return a ^ b; });
      p.expect(bitwise_left_shift(p.x, p.y), "left",
               [](Wide a, Wide b) { return b < 0 || b >= kBits ? 0 : static_cast<unsigned __int128>(a) << b; });
      p.expect(bitwise_right_shift(p.x, p.y), "right",
               [](Wide a, Wide b) { return b < 0 || b >= kBits ? (a < 0 ? -1 : 0) : a >> b; });
      p.expect(neg(p.x), "neg", [](Wide a, Wide) { return -a; });
      p.expect(abs(p.x), "abs", [](Wide a, Wide) { return a < 0 ? -a : a; });
      p.expect(sign(p.x), "sign", [](Wide a, Wide) { return (a > 0) - (a < 0); });
      p.expect(relu(p.x), "relu", [](Wide a, Wide) { return a > 0 ? a : 0; });
      p.expect(bitwise_not(p.x), "not", [](Wide a, Wide) { return ~a; });
      p.expect(round(p.x), "round", [](Wide a, Wide) { return a; });
      p.expect(clamp(p.x, Operand(p.y), Operand(50)), "clamp",
               [](Wide a, Wide b) { return std::min(std::max(a, b), Wide(50)); });
    });
  }
}

/// Whether the two have no common dtype.
bool promotes_not(DType a, DType b) { return (a == uint64 && is_signed(b)) || (b == uint64 && is_signed(a)); }

TEST(ElementwiseDTypes, Promotion) {
  for (int i = 0; i < kDTypes; ++i) {
    for (int j = 0; j < kDTypes; ++j) {
      const auto a = static_cast<DType>(i), b = static_cast<DType>(j);
      if (is_float8(a) || is_float8(b)) continue;
      const Tensor x = full({2, 1}, a, 1), y = full({3}, b, 1);
      if (promotes_not(a, b)) {
        for (const auto& refused : {+[](const Tensor&l, const Tensor&r) { return mul(l, r); },
                                    +[](const Tensor&l, const Tensor&r) { return eq(l, r); },
                                    +[](const Tensor&l, const Tensor&r) { return lt(l, r); },
                                    +[](const Tensor&l, const Tensor&r) { return isclose(l, r); },
                                    +[](const Tensor&l, const Tensor&r) { return logical_xor(l, r); }})
          EXPECT_THROW(refused(x, y), DTypeError) << name(a) << " " << name(b);
        continue;
      }
      const DType common = promote(a, b);
      EXPECT_EQ(mul(x, y).dtype(), common) << name(a) << " " << name(b);
      EXPECT_EQ(mul(x, y.with_layout({}, {}, 0)).dtype(), common) << "a 0-d array counts like any other";
      EXPECT_EQ(div(x, y).dtype(), float_dtype(common));
      EXPECT_EQ(eq(x, y).dtype(), boolean);
      for (double v : values(div(x, y))) EXPECT_EQ(v, 1) << name(a) << " " << name(b);
    }
  }
}

TEST(ElementwiseDTypes, ScalarsTakeTheArraysDType) {
  for (int i = 0; i < kDTypes; ++i) {
    const auto a = static_cast<DType>(i);
    if (is_float8(a)) continue;
    const Tensor x = full({2}, a, 1);
    EXPECT_EQ(mul(x, 2).dtype(), a == boolean ? int64 : a);
    EXPECT_EQ(mul(true, x).dtype(), a);
    EXPECT_EQ(mul(x, 0.5).dtype(), is_float(a) ? a : float32);
    EXPECT_EQ(values(mul(x, 0.5))[1], 0.5);
    EXPECT_EQ(exp(x).dtype(), is_float(a) ? a : float32);
    EXPECT_EQ(logical_not(x).dtype(), boolean);
  }
  expect_error<ValueError>([] { add(full({2}, uint8, 1), 256); }, "add: the scalar 256 does not fit uint8");
  expect_error<ValueError>([] { mul(full({2}, uint8, 1), -1); }, "mul: the scalar -1 does not fit uint8");
  expect_error<ValueError>([] { clamp(full({2}, int8, 1), Operand(-129)); },
                           "clamp: the scalar -129 does not fit int8");
  expect_error<ValueError>([] { add(full({2}, int64, 1), UINT64_MAX); },
                           "add: the scalar 18446744073709551615 does not fit int64");
  expect_error<ValueError>([] { masked_fill(full({2}, uint8, 1), full({2}, boolean, 1), 300); },
                           "masked_fill: the scalar 300 does not fit uint8");
  expect_error<ValueError>([] { masked_fill(full({2}, int32, 1), full({2}, boolean, 1), 1.5); },
                           "masked_fill: the scalar 1.5 does not fit int32");
  expect_error<ValueError>([] { fill_(full({2}, uint64, 1), 0x1p64); },
                           "fill_: the scalar 1.8446744073709552e+19 does not fit uint64");
  EXPECT_EQ(values(fill_(full({2}, int8, 1), -128.0)), std::vector<double>(2, -128));
  EXPECT_EQ(values(logical_and(full({2}, int32, 1), 0.5)), std::vector<double>(2, 1));
  EXPECT_EQ(values(add(full({1}, uint64, 1), UINT64_MAX))[0], 0);
}

/// Exact comparison of doubles and integers through long double, whose 64-bit significand holds both.
TEST(ElementwiseCompare, AnswersByValue) {
  struct Value {
    Operand operand;
    long double exact;
  };
  std::vector<Value> numbers;
  for (const int64_t v : {INT64_MIN, INT64_MIN + 1, int64_t{-129}, int64_t{-128}, int64_t{-1}, int64_t{0}, int64_t{1},
                          int64_t{127}, int64_t{128}, int64_t{255}, int64_t{256}, int64_t{65505}, int64_t{70000},
                          int64_t{16777217}, int64_t{1} << 53, (int64_t{1} << 53) + 1, INT64_MAX})
    numbers.push_back({Scalar(v), static_cast<long double>(v)});
  for (const uint64_t v : {uint64_t{1} << 63, (uint64_t{1} << 63) + 1, UINT64_MAX})
    numbers.push_back({Scalar(v), static_cast<long double>(v)});
  for (const double v : {0.5, -0.5, 2.5, 127.5, 1e30, -1e30, 0x1p63, -0x1p63, 0x1p64, kInf, -kInf, kNan})
    numbers.push_back({Scalar(v), v});
  const auto check = [](const Operand& a, long double u, const Operand& b, long double v, const std::string& what) {
    EXPECT_EQ(values(eq(a, b))[0], u == v) << what << " ==";
    EXPECT_EQ(values(ne(a, b))[0], u != v) << what << " !=";
    EXPECT_EQ(values(lt(a, b))[0], u < v) << what << " <";
    EXPECT_EQ(values(le(a, b))[0], u <= v) << what << " <=";
    EXPECT_EQ(values(gt(a, b))[0], u > v) << what << " >";
    EXPECT_EQ(values(ge(a, b))[0], u >= v) << what << " >=";
  };
  std::vector<std::pair<Tensor, long double>> arrays;
  for (const DType dtype :
       {boolean, int8, int16, int32, int64, uint8, uint32, uint64, float16, bfloat16, float32, float64}) {
    core::visit(dtype, [&]<class T>() {
      for (const double v : {0.0, 1.0, 2.0, 127.0, -1.0, -128.0, 255.0, 65504.0, 16777216.0, 0x1p53, 9e18, -9.2e18,
                             1.8e19, 0.5, 1e30, kInf, -kInf, kNan}) {
        const T element = core::cast<T>(v);
        const Tensor x = Tensor::empty({1}, dtype);
        *x.data<T>() = element;
        arrays.emplace_back(x, static_cast<long double>(core::widen(element)));
      }
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
        for (const T element :
             {std::numeric_limits<T>::max(), std::numeric_limits<T>::min(), static_cast<T>((int64_t{1} << 53) + 1)}) {
          const Tensor x = Tensor::empty({1}, dtype);
          *x.data<T>() = element;
          arrays.emplace_back(x, static_cast<long double>(element));
        }
      }
    });
  }
  for (const auto& [x, u] : arrays) {
    for (const Value& s : numbers) {
      // A float scalar beside a float array takes its dtype.
      const long double v = is_float(x.dtype()) && s.operand.scalar().is_float()
                                ? rounded(s.operand.scalar().as_double(), x.dtype())
                                : s.exact;
      const std::string what =
          std::string(name(x.dtype())) + " " + std::to_string(u) + " and scalar " + std::to_string(s.exact);
      check(x, u, s.operand, v, what);
      check(s.operand, v, x, u, what + " (scalar first)");
    }
    for (const auto& [y, v] : arrays) {
      if (is_float(x.dtype()) || is_float(y.dtype())) continue;  // integers beside floats compare as floats
      if (promotes_not(x.dtype(), y.dtype())) continue;
      check(x, u, y, v,
            std::string(name(x.dtype())) + " " + std::to_string(u) + " and " + std::string(name(y.dtype())) + " " +
                std::to_string(v));
    }
  }
}

TEST(ElementwiseCompare, PredicatesAndCloseness) {
  for (const DType dtype : kFloats) {
    const Tensor x = tensor_of({5}, dtype, {kInf, -kInf, kNan, 0, 1});
    EXPECT_EQ(values(isinf(x)), (std::vector<double>{1, 1, 0, 0, 0}));
    EXPECT_EQ(values(isnan(x)), (std::vector<double>{0, 0, 1, 0, 0}));
    EXPECT_EQ(values(isfinite(x)), (std::vector<double>{0, 0, 0, 1, 1}));
    EXPECT_EQ(values(isclose(x, x)), (std::vector<double>{1, 1, 0, 1, 1}));
    EXPECT_EQ(values(isclose(x, neg(x), {.equal_nan = true})), (std::vector<double>{0, 0, 1, 1, 0}));
    EXPECT_EQ(values(isclose(x, kInf, {.rtol = 1})), (std::vector<double>{1, 0, 0, 0, 0}));
  }
  EXPECT_EQ(values(isfinite(full({2}, int32, 3))), (std::vector<double>{1, 1}));
  EXPECT_EQ(values(isclose(full({1}, int64, 100), 101, {.rtol = 0.01, .atol = 0}))[0], 1);
  EXPECT_EQ(values(isclose(full({1}, uint64, 3), 4, {.rtol = 0, .atol = 0}))[0], 0);
  expect_error<ValueError>([] { isclose(full({1}, float32, 1), 1.0, {.rtol = -1}); },
                           "isclose: rtol must be >= 0, got -1");
}

TEST(ElementwiseLogic, AnyDTypeAndBool) {
  for (int i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const Tensor x = tensor_of({4}, dtype, {0, 1, 0, 2}),
                 y = tensor_of({4}, dtype == uint64 ? uint32 : int32, {0, 0, 3, 256});
    EXPECT_EQ(values(logical_and(x, y)), (std::vector<double>{0, 0, 0, 1}));
    EXPECT_EQ(values(logical_or(x, y)), (std::vector<double>{0, 1, 1, 1}));
    EXPECT_EQ(values(logical_xor(x, y)), (std::vector<double>{0, 1, 1, 0}));
    EXPECT_EQ(values(logical_not(x)), (std::vector<double>{1, 0, 1, 0}));
  }
  const Tensor t = tensor_of({2}, boolean, {1, 0});
  EXPECT_EQ(values(bitwise_not(t)), (std::vector<double>{0, 1}));
  EXPECT_EQ(values(add(t, t)), (std::vector<double>{1, 0}));
  EXPECT_EQ(add(t, t).dtype(), boolean);
  expect_error<DTypeError>([&] { sub(t, t); }, "sub: bool is not supported");
  expect_error<DTypeError>([&] { bitwise_left_shift(t, t); }, "bitwise_left_shift: bool is not supported");
  expect_error<DTypeError>([] { bitwise_and(full({1}, float32, 1), full({1}, int32, 1)); },
                           "bitwise_and: needs integers or bool, got float32");
}

TEST(ElementwiseChoice, WhereMovesAnyDType) {
  Draw draw(6);
  for (int i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const Tensor x = draw.view({7, 33}, dtype), y = draw.view({33}, dtype),
                 mask = tensor_of({7, 1}, boolean, {1, 0, 0, 1, 1, 0, 1});
    const std::vector<double> a = values(x), b = values(y), got = values(where(mask, x, y)),
                              filled = values(masked_fill(x, mask, 1));
    for (size_t k = 0; k < a.size(); ++k) {
      const bool chosen = values(mask)[k / 33] != 0;
      ASSERT_EQ(got[k], chosen ? a[k] : b[k % 33]) << name(dtype);
      ASSERT_EQ(filled[k], chosen ? 1 : a[k]) << name(dtype);
    }
  }
  const Tensor c = tensor_of({2}, boolean, {1, 0});
  EXPECT_EQ(where(c, 1.5, 0).dtype(), float32);
  EXPECT_EQ(where(c, 1, 0).dtype(), int64);
  EXPECT_EQ(values(where(c, full({2}, int32, 5), full({2}, float16, 0.5))), (std::vector<double>{5, 0.5}));
  expect_error<DTypeError>([] { where(full({1}, uint8, 1), 1, 2); }, "where: condition must be bool, got uint8");
}

TEST(ElementwiseInPlace, KeepsShapeAndDType) {
  const Tensor memory = full({4, 6}, float32, 1);
  const Tensor x = slice(memory, 1, 1, 6, 2);
  add_(x, tensor_of({3}, float32, {1, 2, 3}));
  EXPECT_EQ(values(memory),
            (std::vector<double>{1, 2, 1, 3, 1, 4, 1, 2, 1, 3, 1, 4, 1, 2, 1, 3, 1, 4, 1, 2, 1, 3, 1, 4}));
  const Tensor h = full({2}, float16, 1);
  add_(h, full({2}, float32, 0x1p-11 + 0x1p-20));  // summed in float32, rounded once
  EXPECT_EQ(values(h)[0], 1 + 0x1p-10);
  const Tensor b = full({3}, int8, 100);
  add_(b, full({3}, int64, 100));
  EXPECT_EQ(values(b)[0], -56);
  EXPECT_EQ(values(lt_(full({2}, float32, 3), 4)), (std::vector<double>{1, 1}));
  EXPECT_EQ(values(masked_fill_(full({2}, int32, 3), tensor_of({2}, boolean, {1, 0}), 9)), (std::vector<double>{9, 3}));
  EXPECT_EQ(values(copy_(full({2, 2}, int32, 0), tensor_of({2}, float32, {1.9, -1.9}))),
            (std::vector<double>{1, -1, 1, -1}));
  EXPECT_EQ(values(fill_(full({2}, bfloat16, 0), 1.01)), (std::vector<double>(2, 1.0078125)));
  expect_error<DTypeError>([] { add_(full({2}, int32, 1), 0.5); },
                           "add_: the result is float32, which x of int32 cannot hold");
  expect_error<DTypeError>([] { exp_(full({2}, int32, 1)); },
                           "exp_: the result is float32, which x of int32 cannot hold");
  expect_error<ShapeError>(
      [] {
        add_(full({3}, float32, 1), full({2, 3}, float32, 1));
      },
      "add_: x of shape (3,) would have to grow to (2, 3)");
  expect_error<ShapeError>(
      [] {
        copy_(full({3}, float32, 1), full({2, 3}, float32, 1));
      },
      "copy_: src of shape (2, 3) does not broadcast to x of shape (3,)");
  const Tensor spread = expand(full({1}, float32, 1), {3});
  EXPECT_THROW(add_(spread, 1), ValueError);
  EXPECT_THROW(fill_(spread, 1), ValueError);
  float fixed[2] = {1, 2};
  const Tensor read_only = Tensor::wrap(fixed, kCpu, float32, {2}, {}, {}, true);
  expect_error<ValueError>([&] { mul_(read_only, 2); }, "mul_: x is read-only");
  EXPECT_EQ(fixed[0], 1);
}

TEST(ElementwiseErrors, BeforeAnythingIsWritten) {
  const Tensor x = full({2, 3}, float32, 1), out = full({2, 3}, float32, 7);
  expect_error<ShapeError>([&] { add(x, full({2}, float32, 1), {.out = out}); },
                           "add: shapes (2, 3) and (2,) do not broadcast: aligned at the right, 3 meets 2 in dim -1");
  expect_error<DTypeError>([&] { eq(x, x, {.out = out}); }, "eq: out must be bool, got float32");
  expect_error<ShapeError>(
      [&] {
        exp(x, {.out = full({3, 2}, float32, 0)});
      },
      "exp: out must have shape (2, 3), got (3, 2)");
  expect_error<DTypeError>([] { add(1, 2); }, "add: needs at least one array, got only scalars");
  expect_error<DTypeError>([] { mul(full({1}, uint64, 1), full({1}, int8, 1)); },
                           "mul: uint64 and int8 have no common dtype; convert one of them first");
  expect_error<DTypeError>([] { exp(full({1}, float8_e5m2, 1)); },
                           "exp: float8_e5m2 is a storage dtype; convert with to() first");
  expect_error<ValueError>([&] { clamp(x); }, "clamp: needs min or max");
  expect_error<ValueError>([&] { gelu(x, {.approximate = "fast"}); },
                           "gelu: approximate must be 'none' or 'tanh', got 'fast'");
  expect_error<ValueError>([&] { div(x, x, {.rounding_mode = "up"}); },
                           "div: rounding_mode must be None, 'floor' or 'trunc', got 'up'");
  expect_error<ValueError>([] { pow(full({1}, int32, 2), -1); },
                           "pow: integers to the negative power -1 are no integers; convert x to a float dtype first");
  expect_error<ValueError>([&] { softplus(x, {.beta = 0}); }, "softplus: beta must be finite and > 0, got 0");
  EXPECT_EQ(values(out), std::vector<double>(6, 7));
  EXPECT_EQ(values(pow(full({1}, int32, 2), -1.0))[0], 0.5);
}

}  // namespace
}  // namespace tenor
