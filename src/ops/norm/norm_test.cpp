// layer_norm and rms_norm, alone and behind an addition.
#include "tenor/norm.h"

#include "src/core/testing.h"
#include "src/ops/norm/norm_testing.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;
using reference::Row;

/// The sum as it is stored.
Tensor rounded_sum(const Tensor& a, const Tensor& b) {
  std::vector<double> sum = values(a);
  const std::vector<double> other = values(b);
  for (size_t i = 0; i < sum.size(); ++i)
    sum[i] = a.dtype() == float64 ? sum[i] + other[i] : static_cast<float>(sum[i]) + static_cast<float>(other[i]);
  return tensor_of(a.shape(), a.dtype(), sum);
}

struct Case {
  Tensor x, residual, gamma, beta;
  double epsilon, offset;
  std::string what;
};

Case draw_case(Draw& draw, DType dtype) {
  constexpr int64_t kLengths[] = {1, 2, 7, 16, 33, 64, 255, 1000, 4096, 4097, 9001};
  Dims shape;
  for (int64_t d = draw.upto(3); d > 0; --d) shape.push_back(draw.upto(4));
  shape.push_back(kLengths[draw.upto(std::size(kLengths) - 1)]);
  const DType parameters = draw.coin() ? dtype : float32;
  return {draw.view(shape, dtype),
          draw.view(shape, dtype),
          draw.view({shape.back()}, parameters),
          draw.coin() ? draw.view({shape.back()}, parameters) : Tensor(),
          draw.coin() ? 1e-5 : 0.1,
          draw.coin() ? 1.0 : 0.0,
          std::string(name(dtype)) + to_string(shape) + " strides of x"};
}

TEST(Norm, MatchesTheReferenceOnRandomShapesAndStrides) {
  Draw draw(1);
  for (int i = 0; i < 160; ++i) {
    Case c = draw_case(draw, kFloats[i % 4]);
    c.what += to_string(c.x.strides());
    const Row gamma = values(c.gamma), beta = c.beta.defined() ? values(c.beta) : Row();
    const auto layer = [&](const Row& row) { return reference::layer_norm(row, gamma, beta, c.epsilon); };
    const auto rms = [&](const Row& row) { return reference::rms_norm(row, gamma, c.epsilon, c.offset); };
    const Tensor out = draw.poisoned(c.x.shape(), c.x.dtype()), sum_out = draw.poisoned(c.x.shape(), c.x.dtype());
    const double units = 1, floor = c.x.dtype() == float32 ? 4e-6 : 2e-6;
    layer_norm(c.x, c.gamma, {.beta = c.beta, .epsilon = c.epsilon, .out = out});
    expect_close(out, by_row(c.x, layer), "layer_norm " + c.what, units, floor);
    expect_close(rms_norm(c.x, c.gamma, {.epsilon = c.epsilon, .weight_offset = c.offset}), by_row(c.x, rms),
                 "rms_norm " + c.what, units, floor);
    const Tensor sum = rounded_sum(c.x, c.residual);
    const AddNormResult fused =
        add_layer_norm(c.x, c.residual, c.gamma, {.beta = c.beta, .epsilon = c.epsilon, .out = {out, sum_out}});
    EXPECT_TRUE(same_bits(fused.new_residual, sum)) << c.what;
    EXPECT_TRUE(same_bits(fused.y, layer_norm(sum, c.gamma, {.beta = c.beta, .epsilon = c.epsilon}))) << c.what;
  }
}

TEST(Norm, FusedAdditionHasTheBitsOfItsSteps) {
  Draw draw(2);
  for (DType dtype : kFloats)
    for (int64_t length : {1, 5, 100, 4100}) {
      const Tensor x = draw.view({3, length}, dtype), residual = draw.view({3, length}, dtype),
                   gamma = draw.view({length}, float32);
      const AddNormResult fused = add_rms_norm(x, residual, gamma, {.weight_offset = 1});
      const Tensor sum = rounded_sum(x, residual);
      EXPECT_TRUE(same_bits(fused.new_residual, sum));
      EXPECT_TRUE(same_bits(fused.y, rms_norm(sum, gamma, {.weight_offset = 1})));
    }
}

TEST(Norm, WritesOverItsInputs) {
  Draw draw(3);
  for (DType dtype : kFloats) {
    const Tensor x = draw.dense({6, 129}, dtype), residual = draw.dense({6, 129}, dtype),
                 gamma = draw.dense({129}, float32);
    const AddNormResult apart = add_rms_norm(x, residual, gamma);
    const Tensor normed = layer_norm(x, gamma, {.beta = gamma});
    for (bool swapped : {false, true}) {
      const Tensor a = x.clone(), b = residual.clone();
      add_rms_norm(a, b, gamma, {.out = swapped ? AddNormResult{b, a} : AddNormResult{a, b}});
      EXPECT_TRUE(same_bits(swapped ? b : a, apart.y));
      EXPECT_TRUE(same_bits(swapped ? a : b, apart.new_residual));
    }
    const Tensor in_place = x.clone();
    layer_norm(in_place, gamma, {.beta = gamma, .out = in_place});
    EXPECT_TRUE(same_bits(in_place, normed));
    // Shifted by one row: as if computed before writing.
    const Tensor buffer = Tensor::empty({7, 129}, dtype);
    assign(narrow(buffer, 0, 0, 6), values(x));
    layer_norm(narrow(buffer, 0, 0, 6), gamma, {.beta = gamma, .out = narrow(buffer, 0, 1, 6)});
    EXPECT_TRUE(same_bits(narrow(buffer, 0, 1, 6), normed));
  }
  const Tensor row = draw.dense({40}, float32), want = rms_norm(row, row);
  const Tensor own = row.clone();
  rms_norm(own, own, {.out = own});  // gamma is x is out
  EXPECT_TRUE(same_bits(own, want));
}

TEST(Norm, ARowsBitsAreItsOwn) {
  Draw draw(4);
  for (DType dtype : kFloats) {
    const Tensor x = draw.dense({65, 777}, dtype), gamma = draw.dense({777}, float32),
                 beta = draw.dense({777}, float32);
    const Tensor all = layer_norm(x, gamma, {.beta = beta}), root = rms_norm(x, gamma);
    for (int64_t r : {0, 7, 64}) {
      EXPECT_TRUE(same_bits(layer_norm(narrow(x, 0, r, 1), gamma, {.beta = beta}), narrow(all, 0, r, 1)));
      EXPECT_TRUE(same_bits(rms_norm(select(x, 0, r), gamma), select(root, 0, r)));
    }
    const Tensor turned = transpose(transpose(x, 0, 1).contiguous(), 0, 1);
    EXPECT_TRUE(same_bits(layer_norm(turned, gamma, {.beta = beta}), all));
    for (int threads : {1, 2, 5}) {
      const Threads use(threads);
      EXPECT_TRUE(same_bits(layer_norm(x, gamma, {.beta = beta}), all));
      EXPECT_TRUE(same_bits(rms_norm(turned, gamma), root));
    }
  }
}

TEST(Norm, KeepsTheDimensionOrder) {
  const Tensor x = full({4, 3, 8}, float32, 1), gamma = full({8}, float32, 1);
  EXPECT_EQ(rms_norm(permute(x, {1, 0, 2}), gamma).strides(), Dims({8, 24, 1}));
  EXPECT_EQ(rms_norm(full({8, 4, 3}, float32, 1).with_layout({4, 3, 8}, {3, 1, 12}, 0), gamma).strides(),
            Dims({3, 1, 12}));
}

TEST(Norm, LargeMeansAndSmallNumbers) {
  // Around 10^6 the summed mean is off by far more than the rows' spread allows; its correction is not.
  std::vector<double> x(5000);
  Draw draw(5);
  for (double& v : x) v = static_cast<float>(1e6 + draw.normal());
  const Tensor t = tensor_of({5000}, float32, x), ones = full({5000}, float32, 1);
  expect_close(layer_norm(t, ones), reference::layer_norm(x, {}, {}, 1e-5), "large mean", 4, 4e-6);
  const Tensor zeros = full({9}, float32, 0), nine = full({9}, float32, 1);
  for (double epsilon : {1e-5, 1e-30, 1e-300}) {
    expect_close(layer_norm(zeros, nine, {.epsilon = epsilon}), std::vector<double>(9, 0), "zeros");
    expect_close(rms_norm(zeros, nine, {.epsilon = epsilon}), std::vector<double>(9, 0), "zeros");
  }
  expect_close(rms_norm(full({3, 9}, float16, 60000), nine), std::vector<double>(27, 1), "squares beyond float16");
  const Tensor one = full({4, 1}, float32, 7);
  expect_close(layer_norm(one, full({1}, float32, 3), {.beta = full({1}, float32, 5)}), std::vector<double>(4, 5),
               "one element");
}

TEST(Norm, NanAndInfinityStayInTheirRow) {
  const Tensor gamma = full({40}, float32, 1);
  for (double bad : {kNan, kInf, -kInf}) {
    const Tensor x = full({3, 40}, float32, 2);
    x.data<float>()[40 + 39] = static_cast<float>(bad);
    for (const Tensor& y : {layer_norm(x, gamma), rms_norm(x, gamma)}) {
      const std::vector<double> v = values(y);
      EXPECT_TRUE(std::isnan(v[40 + 39]));
      for (size_t i = 0; i < 40; ++i) EXPECT_TRUE(std::isfinite(v[i]) && std::isfinite(v[80 + i]));
    }
  }
}

TEST(Norm, EmptyBatches) {
  const Tensor gamma = full({5}, float32, 1);
  EXPECT_EQ(layer_norm(Tensor::empty({0, 5}, float32), gamma).shape(), Dims({0, 5}));
  EXPECT_EQ(add_rms_norm(Tensor::empty({2, 0, 5}, float16), Tensor::empty({2, 0, 5}, float16), gamma).y.shape(),
            Dims({2, 0, 5}));
}

TEST(Norm, Errors) {
  const Tensor x = full({2, 4}, float16, 1), gamma = full({4}, float32, 1);
  expect_error<DTypeError>(
      [&] {
        rms_norm(full({2, 4}, int32, 1), gamma);
      },
      "rms_norm: x must be float16, bfloat16, float32 or float64, got int32");
  expect_error<ShapeError>(
      [&] {
        layer_norm(full({2, 0}, float32, 0), full({0}, float32, 0));
      },
      "layer_norm: x must have a last axis of length > 0, got shape (2, 0)");
  expect_error<ShapeError>([&] { layer_norm(full({}, float32, 0), full({1}, float32, 0)); },
                           "layer_norm: x must have a last axis of length > 0, got shape ()");
  expect_error<DTypeError>([&] { rms_norm(x, full({4}, float64, 1)); },
                           "rms_norm: gamma must be float32 or x's dtype float16, got float64");
  expect_error<DTypeError>([&] { rms_norm(x, {}); }, "rms_norm: gamma is required, got nothing");
  expect_error<ShapeError>([&] { rms_norm(x, full({5}, float32, 1)); },
                           "rms_norm: gamma must have shape (4,), got (5,)");
  expect_error<ShapeError>(
      [&] {
        layer_norm(x, gamma, {.beta = full({1, 4}, float32, 1)});
      },
      "layer_norm: beta must have shape (4,), got (1, 4)");
  expect_error<ValueError>([&] { layer_norm(x, gamma, {.epsilon = 0}); },
                           "layer_norm: epsilon must be finite and > 0, got 0");
  for (double bad : {-1e-6, kNan, kInf}) EXPECT_THROW(rms_norm(x, gamma, {.epsilon = bad}), ValueError);
  EXPECT_THROW(rms_norm(x, gamma, {.weight_offset = kNan}), ValueError);
  expect_error<ShapeError>(
      [&] {
        add_rms_norm(x, full({1, 4}, float16, 1), gamma);
      },
      "add_rms_norm: residual must have shape (2, 4), got (1, 4)");
  expect_error<DTypeError>(
      [&] {
        add_layer_norm(x, full({2, 4}, float32, 1), gamma);
      },
      "add_layer_norm: residual must have x's dtype float16, got float32");
  expect_error<ValueError>(
      [&] {
        add_rms_norm(x, x, gamma, {.out = {x, {}}});
      },
      "add_rms_norm: out must hold both y and new_residual");
  expect_error<ValueError>(
      [&] {
        add_rms_norm(x, x, gamma, {.out = {x, x}});
      },
      "add_rms_norm: the tensors of out share memory, number 0 with number 1");
  expect_error<ShapeError>(
      [&] {
        rms_norm(x, gamma, {.out = full({4, 2}, float16, 0)});
      },
      "rms_norm: out must have shape (2, 4), got (4, 2)");
  EXPECT_THROW(rms_norm(x, gamma, {.out = full({2, 4}, float32, 0)}), DTypeError);
  EXPECT_EQ(values(x), std::vector<double>(8, 1));
  // Two interleaved halves of one buffer share no element.
  const Tensor pair = full({2, 4, 2}, float16, 0);
  EXPECT_NO_THROW(add_rms_norm(x, x, gamma, {.out = {select(pair, 2, 0), select(pair, 2, 1)}}));
}

}  // namespace
}  // namespace tenor
