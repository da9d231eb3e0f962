// silu_mul and gelu_mul on a GPU, against the float64 formulas.
#include "src/cuda/testing.h"
#include "src/ops/activation/activation_testing.h"
#include "tenor/activation.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;
using ActivationCuda = CudaTest;

TEST_F(ActivationCuda, MatchesTheReferenceOnRandomShapesAndStrides) {
  constexpr int64_t kLengths[] = {0, 1, 3, 16, 31, 64, 1000, 40000};
  Draw draw(1);
  for (int i = 0; i < 160; ++i) {
    const DType dtype = kFloats[i % 4];
    Dims shape;
    for (int64_t d = draw.upto(2); d > 0; --d) shape.push_back(draw.upto(4));
    shape.push_back(kLengths[draw.upto(7)]);
    if (product(shape) > 100000) continue;
    const std::string what = std::string(name(dtype)) + to_string(shape);
    const bool plain = draw.coin();
    const auto input = [&](const Dims& s) { return plain ? draw.dense(s, dtype) : draw.view(s, dtype); };
    const Tensor gate = input(shape), up = input(shape), out = on_gpu(draw.poisoned(shape, dtype)), g = on_gpu(gate),
                 u = on_gpu(up);
    silu_mul(g, u, {.out = out});
    expect_close(on_cpu(out), gated(gate, up, reference::silu), "silu_mul " + what, 1, 1e-7);
    expect_close(on_cpu(gelu_mul(g, u)), gated(gate, up, reference::gelu), "gelu_mul " + what, 1, 1e-7);
    expect_close(on_cpu(gelu_mul(g, u, {.approximate = "tanh"})), gated(gate, up, reference::gelu_tanh),
                 "gelu_mul tanh " + what, 1, 1e-7);
    Dims both = shape;
    both.back() *= 2;
    const Tensor x = on_gpu(input(both));
    const Tensor first = narrow(x, -1, 0, shape.back()), second = narrow(x, -1, shape.back(), shape.back());
    EXPECT_TRUE(same_bits(on_cpu(silu_mul(x)), on_cpu(silu_mul(first, second)))) << what;
    EXPECT_TRUE(same_bits(on_cpu(gelu_mul(x)), on_cpu(gelu_mul(first, second)))) << what;
  }
}

TEST_F(ActivationCuda, TailsAndLimits) {
  const std::vector<double> gates = {-kInf, -200, -100, -88, -20, -5, -1e-30, 0, 1e-30, 5, 88, 200, kInf, kNan};
  const Tensor gate = tensor_of({14}, float64, gates), ones = full({14}, float64, 1);
  for (DType dtype : kFloats) {
    const Tensor g = gate.to(dtype), one = ones.to(dtype), x = on_gpu(g), o = on_gpu(one);
    const double floor = dtype == float16    ? 0x1p-24
                         : dtype == bfloat16 ? 1e-40
                                             : 1e-42;  // below e^-87 the weight is subnormal
    expect_close(on_cpu(silu_mul(x, o)), gated(g, one, reference::silu), "silu", 2, floor);
    expect_close(on_cpu(gelu_mul(x, o)), gated(g, one, reference::gelu), "gelu", 4, floor);
    expect_close(on_cpu(gelu_mul(x, o, {.approximate = "tanh"})), gated(g, one, reference::gelu_tanh), "gelu tanh", 16,
                 floor);
  }
}

TEST_F(ActivationCuda, AnElementsBitsAreItsOwn) {
  Draw draw(2);
  for (DType dtype : kFloats) {
    const Tensor gate = on_gpu(draw.dense({5, 20001}, dtype)), up = on_gpu(draw.dense({5, 20001}, dtype)),
                 all = on_cpu(silu_mul(gate, up));
    EXPECT_TRUE(
        same_bits(on_cpu(silu_mul(narrow(gate, 1, 7, 19000), narrow(up, 1, 7, 19000))), narrow(all, 1, 7, 19000)));
    EXPECT_TRUE(same_bits(on_cpu(silu_mul(select(gate, 0, 4), select(up, 0, 4))), select(all, 0, 4)));
    const Tensor own = gate.clone();
    EXPECT_TRUE(same_bits(on_cpu(silu_mul(own, up, {.out = own})), all));
    // The result over the first half of its input, and over a place between the halves.
    const Tensor x = draw.dense({4, 64}, dtype), want = on_cpu(gelu_mul(on_gpu(x)));
    for (int64_t start : {0, 16, 32}) {
      const Tensor y = on_gpu(x);
      EXPECT_TRUE(same_bits(on_cpu(gelu_mul(y, {.out = narrow(y, 1, start, 32)})), want));
    }
  }
}

}  // namespace
}  // namespace tenor
