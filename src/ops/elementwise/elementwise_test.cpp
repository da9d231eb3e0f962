// Values of the float operators against the float64 formulas; layouts, threads, aliasing.
#include "tenor/elementwise.h"

#include "src/core/testing.h"
#include "src/ops/elementwise/elementwise_reference.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;
using Unary = Tensor (*)(const Tensor&, const ElementwiseOptions&);
using Binary = Tensor (*)(const Operand&, const Operand&, const ElementwiseOptions&);

const std::map<std::string, Unary> kUnary = {
    {"neg", &neg},
    {"abs", &abs},
    {"sign", &sign},
    {"relu", &relu},
    {"floor", &floor},
    {"ceil", &ceil},
    {"round", &round},
    {"trunc", &trunc},
    {"exp", &exp},
    {"exp2", &exp2},
    {"expm1", &expm1},
    {"log", &log},
    {"log2", &log2},
    {"log10", &log10},
    {"log1p", &log1p},
    {"sqrt", &sqrt},
    {"rsqrt", &rsqrt},
    {"reciprocal", &reciprocal},
    {"sin", &sin},
    {"cos", &cos},
    {"tan", &tan},
    {"asin", &asin},
    {"acos", &acos},
    {"atan", &atan},
    {"sinh", &sinh},
    {"cosh", &cosh},
    {"tanh", &tanh},
    {"asinh", &asinh},
    {"acosh", &acosh},
    {"atanh", &atanh},
    {"erf", &erf},
    {"sigmoid", &sigmoid},
    {"silu", &silu},
    {"mish", &mish},
    {"hardswish", &hardswish},
    {"gelu", [](const Tensor& x, const ElementwiseOptions& o) { return gelu(x, {.out = o.out}); }},
    {"softplus", [](const Tensor& x, const ElementwiseOptions& o) { return softplus(x, {.out = o.out}); }},
    {"elu", [](const Tensor& x, const ElementwiseOptions& o) { return elu(x, {.out = o.out}); }},
    {"leaky_relu", [](const Tensor& x, const ElementwiseOptions& o) { return leaky_relu(x, {.out = o.out}); }},
};
const std::map<std::string, Binary> kBinary = {
    {"add", [](const Operand& a, const Operand& b, const ElementwiseOptions& o) { return add(a, b, {.out = o.out}); }},
    {"sub", [](const Operand& a, const Operand& b, const ElementwiseOptions& o) { return sub(a, b, {.out = o.out}); }},
    {"mul", &mul},
    {"div", [](const Operand& a, const Operand& b,
               const ElementwiseOptions& o) { return div(a, b, {.rounding_mode = {}, .out = o.out}); }},
    {"floor_divide", &floor_divide},
    {"remainder", &remainder},
    {"fmod", &fmod},
    {"pow", &pow},
    {"maximum", &maximum},
    {"minimum", &minimum},
    {"atan2", &atan2},
};

/// Moderate, small and large values, and the special ones among them.
std::vector<double> mixed(Draw& draw, int64_t count) {
  constexpr double kSpecial[] = {0,    -0.0,  1,     -1,  0.5,  -2.5,  kInf, -kInf, kNan,
                                 3e38, -3e38, 1e-40, 100, -100, 65504, 2,    3};
  std::vector<double> out = draw.normals(count);
  for (double& v : out) {
    const int64_t kind = draw.upto(7);
    if (kind == 0) v = kSpecial[draw.upto(std::size(kSpecial) - 1)];
    if (kind == 1) v *= 20;
    if (kind == 2) v *= 1e-3;
    if (kind == 3) v = std::nearbyint(v * 3);
  }
  return out;
}
Tensor mixed_view(Draw& draw, const Dims& shape, DType dtype) {
  const Tensor x = draw.any_layout(shape, dtype);
  assign(x, mixed(draw, product(shape)));
  return x;
}

/// The spacing of dtype's values at v.
double spacing(double v, DType dtype) {
  const int digits = dtype == float64 ? 53 : dtype == float32 ? 24 : dtype == float16 ? 11 : 8;
  const int lowest = dtype == float64 ? -1021 : dtype == float16 ? -13 : -125;
  int exponent;
  std::frexp(v, &exponent);
  return std::ldexp(1.0, std::max(exponent, lowest) - digits);
}
/// Within `units` spacings of the exact value; NaN and infinities exact, but that an overflow may round either way.
void expect_units(const Tensor& got, const std::vector<double>& want, double units, const std::string& what,
                  double floor = 0) {
  const std::vector<double> have = values(got);
  for (size_t i = 0; i < want.size(); ++i) {
    const double w = want[i], r = rounded(w, got.dtype());
    if (std::isnan(w))
      ASSERT_TRUE(std::isnan(have[i])) << what << ": element " << i << " is " << have[i] << ", expected NaN";
    else if (std::isinf(r))
      ASSERT_EQ(have[i], r) << what << ": element " << i;
    else
      ASSERT_LE(std::abs(have[i] - w), units * spacing(w, got.dtype()) + floor)
          << what << ": element " << i << " is " << have[i] << ", expected " << w;
  }
}

/// float64 forms end in the C library's accuracy or twice that; in the tails of activations the argument's own rounding
/// is multiplied by the argument.
double allowed_units(const std::string& name, DType dtype) {
  if (dtype == float16 || dtype == bfloat16) return 1.01;
  const bool gated = name == "gelu" || name == "silu" || name == "mish" || name == "softplus";
  if (dtype == float64) return gated ? 3000 : 6;
  return name == "gelu" ? 40 : gated ? 6 : name == "pow" ? 1.01 : 3;
}

Dims random_shape(Draw& draw) {
  Dims shape;
  for (int64_t d = draw.upto(3); d > 0; --d) shape.push_back(draw.upto(3));
  constexpr int64_t kLast[] = {0, 1, 2, 15, 16, 17, 33, 100, 257, 1000, 5000};
  shape.push_back(kLast[draw.upto(std::size(kLast) - 1)]);
  return shape;
}

TEST(Elementwise, UnaryFunctionsMatchTheReference) {
  Draw draw(1);
  ASSERT_EQ(kUnary.size(), reference::unary_functions().size());
  for (const auto& [name, fn] : kUnary) {
    for (int i = 0; i < 16; ++i) {
      const DType dtype = kFloats[i % 4];
      const Tensor x = mixed_view(draw, random_shape(draw), dtype);
      std::vector<double> want = values(x);
      for (double& v : want) v = reference::unary_functions().at(name)(v);
      const std::string what =
          name + " " + std::string(tenor::name(dtype)) + to_string(x.shape()) + to_string(x.strides());
      const Tensor got = fn(x, {});
      ASSERT_EQ(got.dtype(), dtype) << what;
      // A gate that is subnormal has lost bits before it meets x.
      expect_units(got, want, allowed_units(name, dtype), what, dtype == float64 ? 0 : 0x1p-142);
      const Tensor out = draw.poisoned(x.shape(), dtype);
      fn(x, {out});
      ASSERT_TRUE(same_bits(out, got)) << what << ": out= differs";
      // The layout, and with it the place in a vector, changes no bit.
      ASSERT_TRUE(same_bits(fn(x.contiguous(), {}), got)) << what << ": the dense input differs";
    }
  }
}

Dims broadcastable(Draw& draw, const Dims& shape) {
  Dims out;
  for (size_t d = draw.coin() ? 0 : static_cast<size_t>(draw.upto(static_cast<int64_t>(shape.size())));
       d < shape.size(); ++d)
    out.push_back(draw.upto(3) == 0 ? 1 : shape[d]);
  return out;
}

TEST(Elementwise, BinaryFunctionsMatchTheReference) {
  Draw draw(2);
  for (const auto& [name, fn] : kBinary) {
    for (int i = 0; i < 40; ++i) {
      const DType a = kFloats[draw.upto(3)], b = draw.upto(2) == 0 ? kFloats[draw.upto(3)] : a;
      const Dims shape = random_shape(draw);
      const Tensor x = mixed_view(draw, shape, a), y = mixed_view(draw, broadcastable(draw, shape), b);
      const DType dtype = promote(a, b);
      const std::vector<double> u = values(x), v = values(expand(y, shape));
      std::vector<double> want(u.size());
      for (size_t k = 0; k < u.size(); ++k) want[k] = reference::binary_functions().at(name)(u[k], v[k]);
      const std::string what = name + " " + std::string(tenor::name(a)) + to_string(x.shape()) +
                               to_string(x.strides()) + " " + std::string(tenor::name(b)) + to_string(y.shape()) +
                               to_string(y.strides());
      const Tensor got = fn(x, y, {});
      ASSERT_EQ(got.dtype(), dtype) << what;
      expect_units(got, want, allowed_units(name, dtype), what);
      const Tensor out = draw.poisoned(shape, dtype);
      fn(x, y, {out});
      ASSERT_TRUE(same_bits(out, got)) << what << ": out= differs";
      ASSERT_TRUE(same_bits(fn(x.contiguous(), expand(y, shape).contiguous(), {}), got))
          << what << ": dense inputs differ";
    }
  }
}

TEST(Elementwise, TransposedOperands) {
  Draw draw(3);
  for (const DType dtype : {float32, bfloat16, float64, uint8}) {
    const Dims shape{130, 259};
    const Tensor x = tensor_of(shape, dtype, std::vector<double>(130 * 259, 3)), y = draw.dense({259, 130}, dtype);
    const Tensor turned = transpose(y, 0, 1);
    EXPECT_TRUE(same_bits(add(x, turned), add(x, turned.contiguous())));
    EXPECT_TRUE(same_bits(add(turned, x), add(turned.contiguous(), x)));
    EXPECT_FALSE(add(turned, x).is_contiguous());  // the first argument's dimension order
    EXPECT_TRUE(add(x, turned).is_contiguous());
  }
}

TEST(Elementwise, SameBitsOnAnyNumberOfThreads) {
  Draw draw(4);
  for (const DType dtype : kFloats) {
    const Tensor x = draw.dense({300, 701}, dtype), row = draw.dense({701}, dtype),
                 column = draw.dense({300, 1}, dtype);
    const auto run = [&] {
      return lerp(gelu(add(x, row)), mul(column, 1.5), sigmoid(transpose(transpose(x, 0, 1), 0, 1)));
    };
    Tensor one;
    {
      const Threads threads(1);
      one = run();
    }
    for (int count : {2, 3, 7}) {
      const Threads threads(count);
      EXPECT_TRUE(same_bits(run(), one)) << count << " threads";
    }
  }
}

TEST(Elementwise, ResultsMayLieOnInputs) {
  Draw draw(5);
  const Tensor memory = draw.dense({6000}, float32);
  const auto at = [&](int64_t offset) { return memory.with_layout({5000}, {1}, offset); };
  for (const int64_t shift : {0, 1, 7, 900}) {
    const Tensor held = at(0).clone(), want = add(held, held);
    const Tensor source = at(0).clone();
    copy_(at(0), source);
    add(at(0), at(0), {.out = at(shift)});
    EXPECT_TRUE(same_bits(at(shift), want)) << shift;
  }
  const Tensor square = draw.dense({200, 200}, float32);
  const Tensor want = sub(square, transpose(square, 0, 1));
  sub_(square, transpose(square, 0, 1));
  EXPECT_TRUE(same_bits(square, want));
}

TEST(Elementwise, SixteenBitsRoundOnce) {
  // 1 + 2^-9 + 2^-17 in bfloat16: the float32 sum lies above the midpoint of two bfloat16 values by 2^-17.
  const Tensor x = tensor_of({1}, bfloat16, {1}), y = tensor_of({1}, bfloat16, {0x1.02p-8});
  EXPECT_EQ(values(add(x, y))[0], 1 + 0x1p-7);
  EXPECT_EQ(values(mul(tensor_of({1}, float16, {3}), 0.1))[0], 0.2998046875);  // the scalar is float16(0.1)
}

TEST(Elementwise, ClampAndLerp) {
  const Tensor x = tensor_of({5}, float32, {-2, 0.5, 3, kNan, -kInf});
  EXPECT_EQ(values(clamp(x, Operand(0.0), Operand(1.0)))[2], 1);
  EXPECT_EQ(values(clamp(x, Operand(3), Operand(1)))[0], 1);  // max wins
  EXPECT_TRUE(std::isnan(values(clamp(x, Operand(0.0)))[3]));
  EXPECT_EQ(values(clamp(x, {}, Operand(-1)))[4], -kInf);
  EXPECT_TRUE(std::isnan(values(clamp(x, Operand(tensor_of({1}, float32, {kNan}))))[0]));
  const Tensor a = tensor_of({1}, float32, {1e8}), b = tensor_of({1}, float32, {1});
  EXPECT_EQ(values(lerp(a, b, 1.0))[0], 1);
  EXPECT_EQ(values(lerp(a, b, 0.0))[0], 1e8);
  EXPECT_EQ(values(lerp(tensor_of({1}, int32, {0}), 10, 0.25))[0], 2.5);
}

TEST(Elementwise, LargeOffsets) {
  // 2^32 elements apart, in memory that only exists where it is touched.
  const int64_t far = int64_t{1} << 32;
  const Tensor x = Tensor::empty({far + 8}, uint8).with_layout({2, 8}, {far, 1}, 0);
  fill_(x, 5);
  add_(x, x);
  for (double v : values(x)) EXPECT_EQ(v, 10);
}

}  // namespace
}  // namespace tenor
