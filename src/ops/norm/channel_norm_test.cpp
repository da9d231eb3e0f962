// group_norm, instance_norm, batch_norm.
#include "src/core/testing.h"
#include "src/ops/norm/norm_reference.h"
#include "tenor/norm.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;
using reference::Row;

/// The parameter of x[N, C, *S]'s element i: entry of its channel.
size_t channel_of(const Tensor& x, size_t i) {
  const size_t places = static_cast<size_t>(x.numel() / x.shape(0) / x.shape(1));
  return i / places % static_cast<size_t>(x.shape(1));
}

std::vector<double> group_reference(const Tensor& x, int64_t groups, const Row& gamma, const Row& beta,
                                    double epsilon) {
  const std::vector<double> all = values(x);
  std::vector<double> out;
  const size_t n = static_cast<size_t>(x.numel() / x.shape(0) / groups);
  for (size_t start = 0; start < all.size(); start += n) {
    const Row row = reference::layer_norm(Row(all.begin() + start, all.begin() + start + n), {}, {}, epsilon);
    out.insert(out.end(), row.begin(), row.end());
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t c = channel_of(x, i);
    out[i] = out[i] * (gamma.empty() ? 1 : gamma[c]) + (beta.empty() ? 0 : beta[c]);
  }
  return out;
}

std::vector<double> batch_reference(const Tensor& x, const Row& mean, const Row& variance, const Row& gamma,
                                    const Row& beta, double epsilon) {
  std::vector<double> out = values(x);
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t c = channel_of(x, i);
    out[i] = (out[i] - mean[c]) / std::sqrt(variance[c] + epsilon) * (gamma.empty() ? 1 : gamma[c]) +
             (beta.empty() ? 0 : beta[c]);
  }
  return out;
}

TEST(ChannelNorm, MatchesTheReferenceOnRandomShapesAndStrides) {
  Draw draw(1);
  for (int i = 0; i < 160; ++i) {
    const DType dtype = kFloats[i % 4], parameters = draw.coin() ? dtype : float32;
    const int64_t groups = 1 + draw.upto(3), channels = groups * (1 + draw.upto(4));
    Dims shape{1 + draw.upto(2), channels};
    for (int64_t d = draw.upto(3); d > 0; --d) shape.push_back(1 + draw.upto(d == 1 ? 40 : 4));
    const Tensor x = draw.view(shape, dtype), out = draw.poisoned(shape, dtype);
    const Tensor gamma = draw.coin() ? draw.view({channels}, parameters) : Tensor(),
                 beta = draw.coin() ? draw.view({channels}, parameters) : Tensor();
    const Row g = gamma.defined() ? values(gamma) : Row(), b = beta.defined() ? values(beta) : Row();
    const std::string what = std::string(name(dtype)) + to_string(shape) + to_string(x.strides());
    const ChannelNormOptions options{.gamma = gamma, .beta = beta, .epsilon = 1e-2, .out = out};
    group_norm(x, groups, options);
    expect_close(out, group_reference(x, groups, g, b, 1e-2), "group_norm " + what, 1, 4e-6);
    expect_close(instance_norm(x, {.gamma = gamma, .beta = beta, .epsilon = 1e-2}),
                 group_reference(x, channels, g, b, 1e-2), "instance_norm " + what, 1, 4e-6);
    std::vector<double> spread = draw.normals(channels);
    for (double& v : spread) v = v * v;
    const Tensor mean = draw.view({channels}, parameters), variance = tensor_of({channels}, parameters, spread);
    batch_norm(x, mean, variance, options);
    expect_close(out, batch_reference(x, values(mean), values(variance), g, b, 1e-2), "batch_norm " + what, 1, 1e-5);
  }
}

TEST(ChannelNorm, LayoutAndThreadsDoNotChangeTheBits) {
  Draw draw(2);
  for (DType dtype : kFloats) {
    const Tensor x = draw.dense({3, 12, 7, 5}, dtype), vector = full({12}, float32, 1.5);
    const Tensor last = permute(permute(x, {0, 2, 3, 1}).contiguous(), {0, 3, 1, 2});
    const ChannelNormOptions options{.gamma = vector, .beta = vector};
    const Tensor group = group_norm(x, 4, options), instance = instance_norm(x, options),
                 batch = batch_norm(x, vector, vector, options);
    for (int threads : {1, 3}) {
      const Threads use(threads);
      EXPECT_TRUE(same_bits(group_norm(last, 4, options), group));
      EXPECT_TRUE(same_bits(instance_norm(last, options), instance));
      EXPECT_TRUE(same_bits(batch_norm(last, vector, vector, options), batch));
      EXPECT_TRUE(same_bits(group_norm(narrow(x, 0, 1, 1), 4, options), narrow(group, 0, 1, 1)));
    }
    EXPECT_EQ(group_norm(last, 4, options).strides(), last.strides());
    EXPECT_EQ(batch_norm(last, vector, vector, options).strides(), last.strides());
    const Tensor own = last.clone();
    group_norm(own, 4, {.gamma = vector, .beta = vector, .out = own});
    EXPECT_TRUE(same_bits(own, group));
  }
}

TEST(ChannelNorm, EdgesOfShapes) {
  const Tensor two = full({2}, float32, 1);
  EXPECT_EQ(group_norm(Tensor::empty({0, 2, 3}, float32), 2).shape(), Dims({0, 2, 3}));
  EXPECT_EQ(group_norm(Tensor::empty({2, 2, 0}, float32), 2, {.gamma = two}).shape(), Dims({2, 2, 0}));
  EXPECT_EQ(instance_norm(Tensor::empty({2, 0, 3}, float32)).shape(), Dims({2, 0, 3}));
  EXPECT_EQ(batch_norm(Tensor::empty({0, 2}, float32), two, two).shape(), Dims({0, 2}));
}

TEST(ChannelNorm, Errors) {
  const Tensor x = full({2, 6, 4}, float32, 1), six = full({6}, float32, 1);
  for (int64_t groups : {0, -1, 4, 7})
    expect_error<ValueError>([&] { group_norm(x, groups); },
                             "group_norm: groups must be > 0 and divide x's 6 channels, got " + std::to_string(groups));
  expect_error<ShapeError>([&] { group_norm(six, 2); }, "group_norm: x must have shape [N, C, ...], got (6,)");
  expect_error<ShapeError>([&] { instance_norm(x, {.gamma = full({4}, float32, 1)}); },
                           "instance_norm: gamma must have shape (6,), got (4,)");
  expect_error<ValueError>([&] { instance_norm(x, {.epsilon = -1}); },
                           "instance_norm: epsilon must be finite and > 0, got -1");
  expect_error<DTypeError>([&] { batch_norm(x, full({6}, float16, 1), six); },
                           "batch_norm: mean must be float32 or x's dtype float32, got float16");
  expect_error<ShapeError>(
      [&] {
        batch_norm(x, six, full({6, 1}, float32, 1));
      },
      "batch_norm: variance must have shape (6,), got (6, 1)");
  expect_error<DTypeError>(
      [&] {
        batch_norm(full({2, 6}, uint8, 1), six, six);
      },
      "batch_norm: x must be float16, bfloat16, float32 or float64, got uint8");
}

}  // namespace
}  // namespace tenor
