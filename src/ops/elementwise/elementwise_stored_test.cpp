// Kernels that read and write 16-bit floats where they lie: the bits of converting before and after, and every bfloat16
// through the functions that are shortened for it.
#include "src/core/testing.h"
#include "src/ops/elementwise/elementwise_reference.h"
#include "tenor/elementwise.h"

namespace tenor {
namespace {

using namespace testing;

/// Every value of a 16-bit float, NaN and infinities included.
Tensor every_value(DType dtype) {
  const Tensor x = Tensor::empty({65536}, dtype);
  for (int64_t i = 0; i < 65536; ++i) static_cast<uint16_t*>(x.raw())[i] = static_cast<uint16_t>(i);
  return x;
}

/// The distance in units of bfloat16's last place; exact for NaN, and for what rounds to infinity.
double bfloat16_units(double got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : 1e30;
  const double bound = 0x1.FFp127;  // from here on nearest is infinity
  if (std::abs(want) >= bound) return got == std::copysign(kInf, want) ? 0 : 1e30;
  int exponent;
  std::frexp(want, &exponent);
  return std::abs(got - want) / std::ldexp(1.0, std::max(exponent, -125) - 8);
}

/// Equal bits, but that a NaN may be any other.
void expect_same(const Tensor& a, const Tensor& b, const std::string& what) {
  const std::vector<double> x = values(a), y = values(b);
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_TRUE(same(x[i], y[i])) << what << ": element " << i << " is " << x[i] << ", expected " << y[i];
}

void expect_every_bfloat16(const char* name, const Tensor& got, double (*exact)(double)) {
  const std::vector<double> x = values(every_value(bfloat16)), y = values(got);
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < x.size(); ++i)
    if (const double e = bfloat16_units(y[i], exact(x[i])); e > worst) worst = e, at = i;
  EXPECT_LE(worst, 0.54) << name << "(" << x[at] << ") is " << y[at] << ", expected " << exact(x[at]);
}

TEST(ElementwiseStored, EveryBFloat16OfTheShortFunctions) {
  const Tensor x = every_value(bfloat16);
  const auto& exact = reference::unary_functions();
  expect_every_bfloat16("gelu", gelu(x), exact.at("gelu"));
  expect_every_bfloat16("silu", silu(x), exact.at("silu"));
  expect_every_bfloat16("sigmoid", sigmoid(x), exact.at("sigmoid"));
  expect_every_bfloat16("erf", erf(x), exact.at("erf"));
  expect_every_bfloat16("tanh", tanh(x), exact.at("tanh"));
  const Tensor zeros = tanh(tensor_of({2}, bfloat16, {0.0, -0.0}));
  EXPECT_EQ(zeros.data<uint16_t>()[0], 0);
  EXPECT_EQ(zeros.data<uint16_t>()[1], 0x8000);
  expect_every_bfloat16("gelu tanh", gelu(x, {.approximate = "tanh"}), [](double v) {
    return reference::gated(v, reference::sigmoid(2 * std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  });
}

TEST(ElementwiseStored, UnaryKernelsHaveTheBitsOfConverting) {
  using Fn = Tensor (*)(const Tensor&, const ElementwiseOptions&);
  const std::map<std::string, Fn> both = {{"neg", &neg},     {"abs", &abs},  {"sign", &sign},   {"relu", &relu},
                                          {"round", &round}, {"exp", &exp},  {"log1p", &log1p}, {"sqrt", &sqrt},
                                          {"rsqrt", &rsqrt}, {"mish", &mish}};
  const std::map<std::string, Fn> shortened = {{"sigmoid", &sigmoid}, {"silu", &silu}, {"erf", &erf}, {"tanh", &tanh}};
  for (const DType dtype : {float16, bfloat16}) {
    const Tensor x = every_value(dtype), wide = x.to(float32);
    const auto check = [&](const std::string& what, Fn fn) {
      expect_same(fn(x, {}), fn(wide, {}).to(dtype), what + ' ' + std::string(name(dtype)));
    };
    for (const auto& [what, fn] : both) check(what, fn);
    if (dtype == float16)
      for (const auto& [what, fn] : shortened) check(what, fn);
  }
}

TEST(ElementwiseStored, KernelsOfSeveralOperandsHaveTheBitsOfConverting) {
  Draw draw(11);
  for (int i = 0; i < 60; ++i) {
    const DType dtype = draw.coin() ? bfloat16 : float16;
    const Dims shape = {draw.upto(3) + 1, draw.upto(70) + 1};
    const Tensor x = draw.view(shape, dtype), y = draw.view(draw.coin() ? shape : Dims{shape[0], 1}, dtype),
                 z = draw.view({shape[1]}, dtype);
    const Tensor a = x.to(float32), b = y.to(float32), c = z.to(float32);
    EXPECT_TRUE(same_bits(add(x, y), add(a, b).to(dtype)));
    EXPECT_TRUE(same_bits(sub(x, z), sub(a, c).to(dtype)));
    EXPECT_TRUE(same_bits(mul(x, y), mul(a, b).to(dtype)));
    EXPECT_TRUE(same_bits(div(x, z), div(a, c).to(dtype)));
    EXPECT_TRUE(same_bits(maximum(x, y), maximum(a, b).to(dtype)));
    EXPECT_TRUE(same_bits(lerp(x, y, z), lerp(a, b, c).to(dtype)));
    EXPECT_TRUE(same_bits(add(x, 1.0 / 3), add(a, get(full({1}, dtype, 1.0 / 3), 0)).to(dtype)));
    const Tensor in_place = x.clone();
    add_(in_place, y);
    EXPECT_TRUE(same_bits(in_place, add(a, b).to(dtype)));
  }
}

}  // namespace
}  // namespace tenor
