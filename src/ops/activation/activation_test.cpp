// silu_mul and gelu_mul.
#include "tenor/activation.h"

#include "src/core/testing.h"
#include "src/ops/activation/activation_testing.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;

TEST(Activation, MatchesTheReferenceOnRandomShapesAndStrides) {
  constexpr int64_t kLengths[] = {0, 1, 3, 16, 31, 64, 1000, 40000};
  Draw draw(1);
  for (int i = 0; i < 160; ++i) {
    const DType dtype = kFloats[i % 4];
    Dims shape;
    for (int64_t d = draw.upto(2); d > 0; --d) shape.push_back(draw.upto(4));
    shape.push_back(kLengths[draw.upto(7)]);
    if (product(shape) > 100000) continue;
    const std::string what = std::string(name(dtype)) + to_string(shape);
    const Tensor gate = draw.view(shape, dtype), up = draw.view(shape, dtype), out = draw.poisoned(shape, dtype);
    silu_mul(gate, up, {.out = out});
    expect_close(out, gated(gate, up, reference::silu), "silu_mul " + what, 1, 1e-7);
    expect_close(gelu_mul(gate, up), gated(gate, up, reference::gelu), "gelu_mul " + what, 1, 1e-7);
    expect_close(gelu_mul(gate, up, {.approximate = "tanh"}), gated(gate, up, reference::gelu_tanh),
                 "gelu_mul tanh " + what, 1, 1e-7);
    Dims both = shape;
    both.back() *= 2;
    const Tensor x = draw.view(both, dtype);
    const Tensor first = narrow(x, -1, 0, shape.back()), second = narrow(x, -1, shape.back(), shape.back());
    EXPECT_TRUE(same_bits(silu_mul(x), silu_mul(first, second))) << what;
    EXPECT_TRUE(same_bits(gelu_mul(x), gelu_mul(first, second))) << what;
  }
}

TEST(Activation, TailsAndLimits) {
  const std::vector<double> gates = {-kInf, -200, -100, -88, -20, -5, -1e-30, 0, 1e-30, 5, 88, 200, kInf, kNan};
  const Tensor gate = tensor_of({14}, float64, gates), ones = full({14}, float64, 1);
  for (DType dtype : kFloats) {
    const Tensor g = gate.to(dtype), one = ones.to(dtype);
    const double floor = dtype == float16    ? 0x1p-24
                         : dtype == bfloat16 ? 1e-40
                                             : 1e-42;  // below e^-87 the weight is subnormal
    expect_close(silu_mul(g, one), gated(g, one, reference::silu), "silu", 2, floor);
    expect_close(gelu_mul(g, one), gated(g, one, reference::gelu), "gelu", 2, floor);
    // The exponent's rounding grows with it: e^-u at u = 20 loses about five bits in float32.
    expect_close(gelu_mul(g, one, {.approximate = "tanh"}), gated(g, one, reference::gelu_tanh), "gelu tanh", 16,
                 floor);
  }
  EXPECT_EQ(values(silu_mul(full({1}, float32, -kInf), full({1}, float32, 3)))[0], 0);
}

TEST(Activation, AnElementsBitsAreItsOwn) {
  Draw draw(2);
  for (DType dtype : kFloats) {
    const Tensor gate = draw.dense({5, 20001}, dtype), up = draw.dense({5, 20001}, dtype), all = silu_mul(gate, up);
    for (int threads : {1, 3}) {
      const Threads use(threads);
      EXPECT_TRUE(same_bits(silu_mul(narrow(gate, 1, 7, 19000), narrow(up, 1, 7, 19000)), narrow(all, 1, 7, 19000)));
      EXPECT_TRUE(same_bits(silu_mul(select(gate, 0, 4), select(up, 0, 4)), select(all, 0, 4)));
    }
    const Tensor own = gate.clone(), other = up.clone();
    EXPECT_TRUE(same_bits(silu_mul(own, up, {.out = own}), all));
    EXPECT_TRUE(same_bits(silu_mul(gate, other, {.out = other}), all));
    // The result over the first half of its input, and over a place between the halves.
    const Tensor x = draw.dense({4, 64}, dtype), want = gelu_mul(x);
    for (int64_t start : {0, 16, 32}) {
      const Tensor y = x.clone();
      EXPECT_TRUE(same_bits(gelu_mul(y, {.out = narrow(y, 1, start, 32)}), want));
    }
  }
}

TEST(Activation, Errors) {
  const Tensor x = full({2, 4}, float32, 1);
  expect_error<ShapeError>(
      [] {
        silu_mul(full({2, 5}, float32, 0));
      },
      "silu_mul: x must have a last axis of even length, got shape (2, 5)");
  expect_error<ShapeError>([] { gelu_mul(full({}, float32, 0)); },
                           "gelu_mul: x must have a last axis of even length, got shape ()");
  expect_error<ShapeError>(
      [&] {
        silu_mul(x, full({2, 3}, float32, 0));
      },
      "silu_mul: up must have shape (2, 4), got (2, 3)");
  expect_error<ShapeError>(
      [&] {
        silu_mul(x, full({1, 4}, float32, 0));
      },
      "silu_mul: up must have shape (2, 4), got (1, 4)");
  expect_error<DTypeError>(
      [&] {
        silu_mul(x, full({2, 4}, float16, 0));
      },
      "silu_mul: up must have gate's dtype float32, got float16");
  expect_error<DTypeError>(
      [] {
        silu_mul(full({2, 4}, int64, 0));
      },
      "silu_mul: x must be float16, bfloat16, float32 or float64, got int64");
  expect_error<ValueError>([&] { gelu_mul(x, {.approximate = "fast"}); },
                           "gelu_mul: approximate must be 'none' or 'tanh', got 'fast'");
}

}  // namespace
}  // namespace tenor
