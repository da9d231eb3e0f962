// Pooling on the CPU.
#include "src/ops/pool/pool_shared_tests.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;

const Place kHere = [](const Tensor& x) { return x; };

TEST(Pool, MaxMatchesTheReference) { test_max_pool(kHere, 360); }
TEST(Pool, AveragesMatchTheReference) { test_avg_pool(kHere, 300); }
TEST(Pool, MaxGradientsGoWhereIndicesSay) { test_max_pool_backward(kHere, 240); }
TEST(Pool, NormsMatchTheReference) { test_lp_pool(kHere, 240); }
TEST(Pool, EverySmallWindow) { test_every_small_window(kHere); }
TEST(Pool, NothingInTheBatch) { test_nothing_in_the_batch(kHere); }
TEST(Pool, LargerImages) { test_larger_images(kHere); }
TEST(Pool, WideWindows) { test_wide_windows(kHere); }
TEST(Pool, WholePlanes) { test_whole_planes(kHere); }
TEST(Pool, GradientsOfPlaces) { test_gradients_of_places(kHere); }
TEST(Pool, GradientsOfBins) { test_gradients_of_bins(kHere); }
TEST(Pool, DivisorsBeyond64Bits) { test_divisors_beyond_64_bits(kHere); }
TEST(Pool, PaddingOfASingleSlice) { test_padding_of_a_single_slice(kHere); }

TEST(Pool, ResultsKeepTheOrderOfDims) {
  const Tensor rows = Tensor::empty({2, 8, 6, 6}, float32),
               channels = Tensor::empty({2, 8, 6, 6}, float32, kCpu, {288, 1, 48, 8});
  assign(rows, std::vector<double>(576, 1)), assign(channels, std::vector<double>(576, 1));
  EXPECT_EQ(max_pool2d(rows, {2}).values.strides(), Dims({72, 9, 3, 1}));
  EXPECT_EQ(max_pool2d(channels, {2}).values.strides(), Dims({72, 1, 24, 8}));
  EXPECT_EQ(max_pool2d(channels, {2}, {.return_indices = true}).indices.strides(), Dims({72, 1, 24, 8}));
  EXPECT_EQ(adaptive_avg_pool2d(channels, {3}).strides(), Dims({72, 1, 24, 8}));
  EXPECT_EQ(avg_pool2d_backward(avg_pool2d(channels, {2}), {2, 8, 6, 6}, {2}).strides(), channels.strides());
}

// Channels that lie together add up by a ring of rows as long as places lie where windows do; the bits are those of
// rows.
TEST(Pool, MaxGradientsOfChannelsAndRowsAgree) {
  Draw draw(8);
  const auto channels_last = [](const Tensor& t) {
    const Dims& s = t.shape();
    const Tensor to = Tensor::empty(s, t.dtype(), kCpu, {s[1] * s[2] * s[3], 1, s[1] * s[3], s[1]});
    assign(to, values(t));
    return to;
  };
  for (const DType dtype : {bfloat16, float16, float32})
    for (const int64_t stride : {1, 2, 3})
      for (const int64_t channels : {3, 70, 128}) {
        const Dims shape{2, channels, 67, 41};
        const auto [y, places] =
            max_pool2d(draw.dense(shape, dtype), {3}, {.stride = {stride}, .padding = {1}, .return_indices = true});
        const Tensor grad = draw.dense(y.shape(), dtype);
        std::vector<double> at = values(places);
        for (const int64_t stray : {-2, -1, 5, 67 * 41 - 1}) {  // none; nowhere; far above; far below
          if (stray != -2) at[at.size() - 3] = at[at.size() / 2] = static_cast<double>(stray);
          const Tensor rows = Tensor::empty(y.shape(), int64);
          assign(rows, at);
          const Tensor want = max_pool2d_backward(grad, rows, shape);
          const Tensor got = max_pool2d_backward(channels_last(grad), channels_last(rows), shape,
                                                 {.out = channels_last(draw.poisoned(shape, dtype))});
          EXPECT_EQ(values(got), values(want))
              << name(dtype) << " stride " << stride << " C" << channels << " " << stray;
        }
      }
}

TEST(Pool, TheSameBitsForAnyThreadsAndBatch) {
  Draw draw(6);
  const Tensor x = draw.dense({3, 40, 33, 29}, float32);
  const auto all = [](const Tensor& t) {
    std::vector<Tensor> out{max_pool2d(t, {3}, {.stride = {2}, .padding = {1}}).values,
                            avg_pool2d(t, {3}, {.stride = {2}, .padding = {1}}), adaptive_avg_pool2d(t, {5}),
                            adaptive_avg_pool2d(t, {1}), lp_pool2d(t, 3, {3})};
    out.push_back(avg_pool2d_backward(out[1], t.shape(), {3}, {.stride = {2}, .padding = {1}}));
    return out;
  };
  const std::vector<Tensor> want = all(x);
  for (int threads : {1, 3}) {
    const Threads use(threads);
    const std::vector<Tensor> got = all(x), alone = all(narrow(x, 0, 1, 1));
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_TRUE(same_bits(got[i], want[i])) << i;
      EXPECT_TRUE(same_bits(alone[i], narrow(want[i], 0, 1, 1))) << i;
    }
  }
}

/// <grad, (f(x + e v) - f(x - e v)) / 2 e> is <gradient, v>.
void expect_gradient(const char* what, const Tensor& x, const Tensor& gradient, const Tensor& grad,
                     const std::function<Tensor(const Tensor&)>& f) {
  Draw draw(7);
  const std::vector<double> v = draw.normals(x.numel()), at = values(x), g = values(grad), have = values(gradient);
  const double e = 1e-6;
  const auto moved = [&](double by) {
    std::vector<double> to = at;
    for (size_t i = 0; i < to.size(); ++i) to[i] += by * v[i];
    return values(f(tensor_of(x.shape(), float64, to)));
  };
  const std::vector<double> up = moved(e), down = moved(-e);
  double want = 0, got = 0;
  for (size_t i = 0; i < g.size(); ++i) want += g[i] * (up[i] - down[i]) / (2 * e);
  for (size_t i = 0; i < v.size(); ++i) got += have[i] * v[i];
  EXPECT_NEAR(got, want, 1e-7 * (1 + std::abs(want)) * 100) << what;
}

TEST(Pool, GradientsAreThoseOfFiniteDifferences) {
  Draw draw(8);
  const Tensor x = draw.dense({2, 3, 7, 9}, float64);
  const auto gradient_of = [&](const char* what, const std::function<Tensor(const Tensor&)>& f,
                               const std::function<Tensor(const Tensor&)>& back) {
    const Tensor grad = draw.dense(f(x).shape(), float64);
    expect_gradient(what, x, back(grad), grad, f);
  };
  const MaxPoolOptions m{{2}, {1}, {2, 1}, true, true};
  gradient_of(
      "max",
      [&](const Tensor& t) {
        return max_pool2d(t, {2, 3}, m).values;
      },
      [&](const Tensor& g) {
        return max_pool2d_backward(g, max_pool2d(x, {2, 3}, m).indices, x.shape());
      });
  const AvgPoolOptions a{{2, 3}, {1}, true, true};
  gradient_of(
      "avg", [&](const Tensor& t) { return avg_pool2d(t, {3}, a); },
      [&](const Tensor& g) { return avg_pool2d_backward(g, x.shape(), {3}, a); });
  gradient_of(
      "adaptive avg",
      [&](const Tensor& t) {
        return adaptive_avg_pool2d(t, {3, 4});
      },
      [&](const Tensor& g) { return adaptive_avg_pool2d_backward(g, x.shape()); });
  for (double p : {1.0, 2.0, 3.0, 1.5, kInf}) {
    const LpPoolOptions o{{1, 2}, true};
    gradient_of(
        "lp",
        [&](const Tensor& t) {
          return lp_pool2d(t, p, {3, 2}, o);
        },
        [&](const Tensor& g) {
          return lp_pool2d_backward(g, x, p, {3, 2}, o);
        });
  }
}

TEST(Pool, AnOutThatIsTheInputIsWrittenLast) {
  Draw draw(9);
  for (DType dtype : {float32, bfloat16}) {
    const Tensor x = draw.dense({2, 3, 6, 6}, dtype), want = avg_pool2d(x, {3}, {.stride = {1}, .padding = {1}}),
                 copy = x.clone();
    avg_pool2d(copy, {3}, {.stride = {1}, .padding = {1}, .out = copy});
    EXPECT_TRUE(same_bits(copy, want));
  }
}

TEST(Pool, Errors) {
  const Tensor x = full({1, 2, 4, 4}, float32, 1), out = full({1, 2, 2, 2}, float32, 7);
  expect_error<ShapeError>(
      [&] {
        max_pool2d(full({4, 4}, float32, 1), {2});
      },
      "max_pool2d: x must have 4 dims, or 3 without a batch, got shape (4, 4)");
  expect_error<ShapeError>(
      [&] {
        max_pool2d(full({1, 2, 0, 4}, float32, 1), {2});
      },
      "max_pool2d: x must have spatial dims of at least one element, got shape (1, 2, 0, 4)");
  expect_error<ShapeError>(
      [&] { avg_pool2d(x, {5}); },
      "avg_pool2d: x has shape (1, 2, 4, 4), whose spatial dim 0 with padding 0 is shorter than a window of 5");
  expect_error<ValueError>(
      [&] {
        max_pool2d(x, {2, 2, 2});
      },
      "max_pool2d: kernel_size must be one number or 2, one a spatial dim, got (2, 2, 2)");
  expect_error<ValueError>([&] { max_pool2d(x, {0}); },
                           "max_pool2d: kernel_size must be at least 1 in every dim, got (0,)");
  expect_error<ValueError>([&] { max_pool2d(x, {2}, {.stride = {0}}); },
                           "max_pool2d: stride must be at least 1 in every dim, got (0,)");
  expect_error<ValueError>(
      [&] { max_pool2d(x, {3}, {.padding = {2}}); },
      "max_pool2d: padding must be at most half of the window's span dilation * (kernel_size - 1) + 1 = 3, got (2,)");
  expect_error<ValueError>([&] { avg_pool2d(x, {2}, {.divisor_override = 0, .out = out}); },
                           "avg_pool2d: divisor_override must not be 0, got 0");
  expect_error<ValueError>([&] { lp_pool2d(x, 0, {2}); }, "lp_pool2d: norm_type must be > 0, got 0");
  expect_error<ValueError>([&] { adaptive_avg_pool2d(x, {0}); },
                           "adaptive_avg_pool2d: output_size must be at least 1 in every dim, got (0,)");
  expect_error<DTypeError>(
      [&] {
        avg_pool2d(full({1, 2, 4, 4}, int32, 1), {2});
      },
      "avg_pool2d: x must be float16, bfloat16, float32 or float64, got int32");
  expect_error<DTypeError>(
      [&] {
        max_pool2d(full({1, 2, 4, 4}, boolean, 1), {2});
      },
      "max_pool2d: x must be of integers, float16, bfloat16, float32 or float64, got bool");
  expect_error<ValueError>(
      [&] {
        max_pool2d(x, {2}, {.out = {out, full({1, 2, 2, 2}, int64, 0)}});
      },
      "max_pool2d: out has indices, but return_indices is off");
  const Tensor at = full({1, 2, 2, 2}, int64, 3), dx = full({1, 2, 4, 4}, float32, 7);
  put(at, 5, 16);
  expect_error<IndexError>(
      [&] {
        max_pool2d_backward(out, at, {1, 2, 4, 4}, {.out = dx});
      },
      "max_pool2d_backward: indices holds 16 at (0, 1, 0, 1), outside of -1 to 15, the places of a plane");
  EXPECT_EQ(values(dx), std::vector<double>(32, 7));
  expect_error<ShapeError>(
      [&] {
        max_pool2d_backward(out, full({1, 2, 2, 1}, int64, 0), {1, 2, 4, 4});
      },
      "max_pool2d_backward: indices must have shape (1, 2, 2, 2), got (1, 2, 2, 1)");
  expect_error<ShapeError>(
      [&] {
        max_pool2d_backward(out, at, {0, 2, 4, 4});
      },
      "max_pool2d_backward: grad_output must have input_shape's (0, 2, 4, 4) but for the last 2 dims, got shape (1, 2, "
      "2, 2)");
  expect_error<ShapeError>(
      [&] {
        avg_pool2d_backward(out, {1, 2, 4, 4}, {3});
      },
      "avg_pool2d_backward: grad_output must have shape (1, 2, 1, 1), got (1, 2, 2, 2)");
}

}  // namespace
}  // namespace tenor
