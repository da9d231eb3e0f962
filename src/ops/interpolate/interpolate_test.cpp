// interpolate and its gradient.
#include "tenor/interpolate.h"

#include "src/ops/interpolate/interpolate_testing.h"

namespace tenor {
namespace {

using namespace testing;

double floor_of(DType dtype) { return dtype == float64 ? 1e-12 : 2e-5; }

TEST(Interpolate, MatchesTheReferenceOnRandomCalls) {
  Draw draw(1);
  for (int i = 0; i < 600; ++i) {
    InterpolateCall call = random_call(draw);
    const DType dtype = kFloats[i % 4];
    const Tensor x = image(draw, call.reference.from, dtype);
    call.options.out = draw.coin() ? draw.poisoned(call.reference.to, dtype) : Tensor();
    const Tensor y = interpolate(x, call.options);
    ASSERT_EQ(y.shape(), call.reference.to);
    expect_close(y, interpolate_reference(values(x), call.reference),
                 call.text() + " " + std::string(name(dtype)) + to_string(x.strides()), 4, floor_of(dtype));
  }
}

TEST(Interpolate, BackwardMatchesTheReferenceOnRandomCalls) {
  Draw draw(2);
  for (int i = 0; i < 600; ++i) {
    InterpolateCall call = random_call(draw);
    const DType dtype = kFloats[i % 4];
    const Tensor g = image(draw, call.reference.to, dtype);
    call.options.out = draw.coin() ? draw.poisoned(call.reference.from, dtype) : Tensor();
    const Tensor dx = interpolate_backward(g, call.reference.from, call.options);
    expect_close(dx, interpolate_reference(values(g), call.reference, true),
                 call.text() + " " + std::string(name(dtype)) + to_string(g.strides()), 4, 20 * floor_of(dtype));
  }
}

// A linear map and its gradient are adjoint: <R x, g> = <x, R^T g>.
TEST(Interpolate, GradientsAreFiniteDifferences) {
  Draw draw(31);
  constexpr double kStep = 1e-3;  // resampling is linear: no step is too wide
  const auto loss = [](const Tensor& x, const Tensor& up, const InterpolateOptions& options) {
    const auto y = values(interpolate(x, options)), g = values(up);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * g[i];
    return sum;
  };
  for (int i = 0; i < 60; ++i) {
    const InterpolateCall call = random_call(draw, 7);
    Dims from = call.reference.from, to = call.reference.to;
    from[0] = to[0] = 1, from[1] = to[1] = std::min<int64_t>(from[1], 5);
    const Tensor x = draw.dense(from, float64), up = draw.dense(to, float64);
    const auto have = values(interpolate_backward(up, from, call.options));
    for (int64_t at = 0; at < x.numel(); at += 1 + draw.upto(3)) {
      const double value = get(x, at);
      put(x, at, value + kStep);
      const double more = loss(x, up, call.options);
      put(x, at, value - kStep);
      const double less = loss(x, up, call.options);
      put(x, at, value);
      EXPECT_NEAR(have[static_cast<size_t>(at)], (more - less) / (2 * kStep), 1e-8) << call.text() << " at " << at;
    }
  }
}

TEST(Interpolate, BackwardIsTheAdjoint) {
  Draw draw(3);
  const auto dot = [](const Tensor& a, const Tensor& b) {
    const auto u = values(a), v = values(b);
    double sum = 0;
    for (size_t i = 0; i < u.size(); ++i) sum += u[i] * v[i];
    return sum;
  };
  for (int i = 0; i < 200; ++i) {
    const InterpolateCall call = random_call(draw, 60);
    const Tensor x = image(draw, call.reference.from, float64), g = image(draw, call.reference.to, float64);
    const double forward = dot(interpolate(x, call.options), g),
                 backward = dot(x, interpolate_backward(g, call.reference.from, call.options));
    EXPECT_NEAR(forward, backward, 1e-9 * static_cast<double>(g.numel() + 1)) << call.text();
  }
}

TEST(Interpolate, SameBitsForAnyThreadsAndLayouts) {
  Draw draw(4);
  for (int i = 0; i < 40; ++i) {
    const InterpolateCall call = random_call(draw, 90);
    const Tensor x = draw.dense(call.reference.from, float32), g = draw.dense(call.reference.to, float32);
    const Tensor y = interpolate(x, call.options), dx = interpolate_backward(g, call.reference.from, call.options);
    for (int threads : {1, 3}) {
      const Threads use(threads);
      EXPECT_TRUE(same_bits(interpolate(x, call.options), y)) << call.text();
      EXPECT_TRUE(same_bits(interpolate_backward(g, call.reference.from, call.options), dx)) << call.text();
    }
  }
}

TEST(Interpolate, KeepsTheOrderOfDims) {
  Draw draw(5);
  const Tensor x = channels_last(draw.dense({2, 8, 5, 6}, float32));
  const Tensor y = interpolate(x, {.size = Dims{10, 12}, .mode = "bilinear"});
  EXPECT_EQ(y.strides(), Dims({10 * 12 * 8, 1, 12 * 8, 8}));
  EXPECT_EQ(interpolate_backward(y, x.shape(), {.size = Dims{10, 12}, .mode = "bilinear"}).strides(), x.strides());
}

TEST(Interpolate, EmptyBatchesAndOneElement) {
  for (const std::string& mode : modes_of(2)) {
    EXPECT_EQ(interpolate(Tensor::empty({0, 3, 4, 4}, float32), {.size = Dims{2, 8}, .mode = mode}).shape(),
              Dims({0, 3, 2, 8}));
    EXPECT_EQ(
        interpolate_backward(Tensor::empty({2, 0, 2, 8}, float32), {2, 0, 4, 4}, {.size = Dims{2, 8}, .mode = mode})
            .shape(),
        Dims({2, 0, 4, 4}));
    EXPECT_EQ(values(interpolate(full({1, 1, 1, 1}, float16, 3), {.size = Dims{2, 3}, .mode = mode})),
              std::vector<double>(6, 3.0));
  }
}

TEST(Interpolate, NearestMovesElementsOfBytesToo) {
  const Tensor x = filled({1, 1, 3}, uint8, [](int64_t i) { return 250 + i; });
  EXPECT_EQ(values(interpolate(x, {.size = Dims{6}})), (std::vector<double>{250, 250, 251, 251, 252, 252}));
  expect_error<DTypeError>([&] { interpolate(x, {.size = Dims{6}, .mode = "linear"}); },
                           "interpolate: x must be float16, bfloat16, float32 or float64, got uint8");
}

TEST(Interpolate, OutMayOverlapTheInput) {
  Draw draw(6);
  const Tensor memory = draw.dense({1, 2, 6, 6}, float32), before = memory.clone();
  const InterpolateOptions options{.size = Dims{6, 6}, .mode = "bicubic", .align_corners = true};
  const Tensor want = interpolate(before, options);
  InterpolateOptions in_place = options;
  in_place.out = memory;
  interpolate(memory, in_place);
  EXPECT_TRUE(same_bits(memory, want));
}

TEST(Interpolate, NanAndInfinityReachTheirNeighboursOnly) {
  Tensor x = full({1, 1, 1, 40}, float32, 1);
  put(x, 20, kInf);
  const auto shrunk = values(interpolate(x, {.size = Dims{1, 17}, .mode = "bilinear", .antialias = true}));
  for (size_t i = 0; i < shrunk.size(); ++i)
    EXPECT_EQ(std::isfinite(shrunk[i]), i < 8 || i > 9) << i << " " << shrunk[i];
  const auto area = values(interpolate(x, {.size = Dims{1, 17}, .mode = "area"}));
  for (size_t i = 0; i < area.size(); ++i) EXPECT_EQ(std::isfinite(area[i]), i != 8) << i << " " << area[i];
}

TEST(Interpolate, Errors) {
  const Tensor x = full({1, 1, 4, 4}, float32, 1);
  const auto call = [&](const InterpolateOptions& o) { return [&x, o] { interpolate(x, o); }; };
  expect_error<ValueError>(call({}), "interpolate: exactly one of size and scale_factor must be given, got neither");
  expect_error<ValueError>(call({.size = Dims{2, 2}, .scale_factor = std::vector<double>{2, 2}}),
                           "interpolate: exactly one of size and scale_factor must be given, got both");
  expect_error<ValueError>(call({.size = Dims{2}}),
                           "interpolate: size must have an entry for each of 2 spatial dims, got 1");
  expect_error<ValueError>(call({.size = Dims{0, 2}}), "interpolate: size must be at least 1 in every dim, got (0, 2)");
  expect_error<ValueError>(call({.scale_factor = std::vector<double>{0.1, 1}}),
                           "interpolate: scale_factor 0.1 makes nothing of a dim of size 4");
  expect_error<ValueError>(call({.scale_factor = std::vector<double>{kNan, 1}}),
                           "interpolate: scale_factor must be finite and > 0, got nan");
  expect_error<ValueError>(call({.size = Dims{2, 2}, .align_corners = true}),
                           "interpolate: align_corners has no meaning for mode 'nearest'; linear, bilinear, bicubic, "
                           "trilinear and lanczos3 have it");
  expect_error<ValueError>(call({.size = Dims{2, 2}, .mode = "area", .antialias = true}),
                           "interpolate: antialias needs mode 'bilinear', 'bicubic' or 'lanczos3', got 'area'");
  expect_error<ShapeError>(call({.size = Dims{2, 2}, .mode = "linear"}),
                           "interpolate: mode 'linear' needs x with 3 dims, got (1, 1, 4, 4)");
  expect_error<ShapeError>(
      [] {
        interpolate(full({1, 1, 0}, float32, 1), {.size = Dims{2}});
      },
      "interpolate: x must be an image that is not empty, got (1, 1, 0)");
  expect_error<ShapeError>(
      [&] {
        interpolate_backward(x, {1, 1, 2, 2}, {.size = Dims{4, 5}, .mode = "bilinear"});
      },
      "interpolate_backward: grad_output must have shape (1, 1, 4, 5), got (1, 1, 4, 4)");
}

}  // namespace
}  // namespace tenor
