// grid_sample, its gradients and affine_grid.
#include "src/ops/grid_sample/grid_sample_testing.h"

namespace tenor {
namespace {

using namespace testing;

TEST(GridSample, MatchesTheReferenceOnRandomCalls) {
  Draw draw(1);
  for (int i = 0; i < 500; ++i) {
    const GridCall call = random_grid_call(draw);
    const DType dtype = kFloats[i % 4], grid_dtype = draw.coin() ? float32 : dtype;
    const Tensor x = any_image(draw, call.image, dtype), grid = draw.any_layout(call.places, grid_dtype);
    assign(grid, random_coordinates(draw, call, grid_dtype));
    Dims shape{call.image[0], call.image[1]};
    for (size_t d = 1; d + 1 < call.places.size(); ++d) shape.push_back(call.places[d]);
    const Tensor out = draw.coin() ? draw.poisoned(shape, dtype) : Tensor();
    const Tensor y = grid_sample(x, grid, {call.mode, call.padding, call.align, out});
    ASSERT_EQ(y.shape(), shape);
    expect_close(y, grid_sample_reference(values(x), call.image, values(grid), call.count(), call.reference()),
                 call.text() + " " + std::string(name(dtype)) + to_string(x.strides()), 6,
                 dtype == float64 ? 1e-12 : 1e-4);
  }
}

TEST(GridSample, BackwardMatchesTheReferenceOnRandomCalls) {
  Draw draw(2);
  for (int i = 0; i < 500; ++i) {
    const GridCall call = random_grid_call(draw);
    const DType dtype = kFloats[i % 4], grid_dtype = draw.coin() ? float32 : dtype;
    const Tensor x = any_image(draw, call.image, dtype), grid = draw.any_layout(call.places, grid_dtype);
    assign(grid, random_coordinates(draw, call, grid_dtype));
    Dims shape{call.image[0], call.image[1]};
    for (size_t d = 1; d + 1 < call.places.size(); ++d) shape.push_back(call.places[d]);
    const Tensor g = any_image(draw, shape, dtype);
    GridSampleBackwardOptions options{call.mode, call.padding, call.align, {}};
    if (draw.coin()) options.out = {draw.poisoned(call.image, dtype), draw.poisoned(call.places, grid_dtype)};
    const GridSampleGradients got = grid_sample_backward(g, x, grid, options);
    const GridGradients want =
        grid_gradient_reference(values(g), values(x), call.image, values(grid), call.count(), call.reference());
    const std::string what =
        call.text() + " " + std::string(name(dtype)) + to_string(x.strides()) + to_string(g.strides());
    expect_close(got.grad_x, want.x, what + " grad_x", 6, dtype == float64 ? 1e-11 : 1e-3);
    expect_close(got.grad_grid, want.grid, what + " grad_grid", 6,
                 dtype == float64 && grid_dtype == float64 ? 1e-9 : 3e-3);
  }
}

// Vectors of places whose taps all lie inside, in pairs, and more places than a tile has; gradients that repeat.
TEST(GridSample, PlacesInsideMatchTheReference) {
  Draw draw(6);
  for (int i = 0; i < 48; ++i) {
    const GridCall call{i % 3 == 0 ? "bicubic" : "bilinear",
                        draw.coin() ? "zeros" : "border",
                        draw.coin(),
                        {2, 1 + draw.upto(19), 9 + draw.upto(30), 9 + draw.upto(30)},
                        {2, 17 + draw.upto(9), 31 + draw.upto(9), 2}};
    const DType dtype = kFloats[i % 4];
    const Tensor x = any_image(draw, call.image, dtype), grid = draw.any_layout(call.places, float32);
    std::vector<double> places(static_cast<size_t>(grid.numel()));
    for (size_t k = 0; k < places.size(); ++k) {  // off the edges of pixels, where a slope jumps
      const int64_t size = call.image[3 - k % 2];
      const double u = static_cast<double>(2 + draw.upto(size - 6)) + 0.1 * static_cast<double>(1 + draw.upto(8));
      places[k] =
          rounded(call.align ? 2 * u / static_cast<double>(size - 1) - 1 : (2 * u + 1) / static_cast<double>(size) - 1,
                  float32);
    }
    assign(grid, places);
    const Dims shape{2, call.image[1], call.places[1], call.places[2]};
    const bool repeats = draw.upto(3) == 0;
    const Tensor g = repeats
                         ? draw.dense({2, call.image[1], 1, 1}, dtype).with_layout(shape, {call.image[1], 1, 0, 0}, 0)
                         : any_image(draw, shape, dtype);
    const double around = dtype == float64 ? 1e-5 : 1e-3;
    const std::string what =
        call.text() + " " + std::string(name(dtype)) + to_string(x.strides()) + to_string(g.strides());
    expect_close(grid_sample(x, grid, {call.mode, call.padding, call.align, {}}),
                 grid_sample_reference(values(x), call.image, places, call.count(), call.reference()), what, 6, around);
    const GridSampleGradients got = grid_sample_backward(
        g, x, grid,
        {call.mode, call.padding, call.align, {draw.poisoned(call.image, dtype), draw.poisoned(call.places, float32)}});
    const GridGradients want =
        grid_gradient_reference(values(g), values(x), call.image, places, call.count(), call.reference());
    expect_close(got.grad_x, want.x, what + " grad_x", 6, around);
    expect_close(got.grad_grid, want.grid, what + " grad_grid", 6, 30 * around);
  }
}

TEST(GridSample, GradientsAreFiniteDifferences) {
  Draw draw(3);
  for (const std::string padding : {"zeros", "border", "reflection"})
    for (const std::string mode : {"bilinear", "bicubic"}) {
      const Tensor x = draw.dense({1, 2, 4, 5}, float64), grid = draw.dense({1, 2, 3, 2}, float64),
                   g = draw.dense({1, 2, 2, 3}, float64);
      const GridSampleGradients got = grid_sample_backward(g, x, grid, {mode, padding, false, {}});
      const auto loss = [&] {
        const auto y = values(grid_sample(x, grid, {mode, padding, false, {}})), up = values(g);
        double sum = 0;
        for (size_t i = 0; i < y.size(); ++i) sum += y[i] * up[i];
        return sum;
      };
      const auto differences = [&](const Tensor& of) {
        std::vector<double> out;
        for (int64_t i = 0; i < of.numel(); ++i) {
          constexpr double kStep = 1e-6;
          const double at = get(of, i);
          put(of, i, at + kStep);
          const double up = loss();
          put(of, i, at - kStep);
          const double down = loss();
          put(of, i, at);
          out.push_back((up - down) / (2 * kStep));
        }
        return out;
      };
      const auto by_x = differences(x), by_grid = differences(grid), have_x = values(got.grad_x),
                 have_grid = values(got.grad_grid);
      for (size_t i = 0; i < by_x.size(); ++i) EXPECT_NEAR(have_x[i], by_x[i], 1e-6) << mode << padding;
      for (size_t i = 0; i < by_grid.size(); ++i) EXPECT_NEAR(have_grid[i], by_grid[i], 1e-5) << mode << padding;
    }
}

TEST(GridSample, SameBitsForAnyThreads) {
  Draw draw(4);
  for (int i = 0; i < 30; ++i) {
    const GridCall call = random_grid_call(draw);
    const Tensor x = draw.dense(call.image, float32), grid = draw.dense(call.places, float32);
    const Tensor y = grid_sample(x, grid, {call.mode, call.padding, call.align, {}});
    const GridSampleGradients back = grid_sample_backward(y, x, grid, {call.mode, call.padding, call.align, {}});
    for (int threads : {1, 3}) {
      const Threads use(threads);
      EXPECT_TRUE(same_bits(grid_sample(x, grid, {call.mode, call.padding, call.align, {}}), y)) << call.text();
      const GridSampleGradients again = grid_sample_backward(y, x, grid, {call.mode, call.padding, call.align, {}});
      EXPECT_TRUE(same_bits(again.grad_x, back.grad_x) && same_bits(again.grad_grid, back.grad_grid)) << call.text();
    }
  }
}

TEST(GridSample, WhatLiesOutsideIsNotRead) {
  Tensor x = full({1, 1, 3, 3}, float32, kInf);
  const Tensor grid = tensor_of({1, 1, 2, 2}, float32, {5, 5, -kInf, 0});
  for (const std::string mode : {"bilinear", "nearest", "bicubic"})
    EXPECT_EQ(values(grid_sample(x, grid, {mode, "zeros", false, {}})), (std::vector<double>{0, 0})) << mode;
  x = full({1, 1, 1, 1}, bfloat16, 3);  // one element, which vectors of 16-bit floats must not pass
  EXPECT_EQ(values(grid_sample(x, tensor_of({1, 1, 1, 2}, float32, {kInf, 0}), {"bilinear", "border", true, {}})),
            std::vector<double>{3});
}

TEST(GridSample, FarCoordinatesAreReflectedIntoTheImage) {
  const Tensor x = filled({1, 1, 3, 3}, float32, [](int64_t i) { return i + 1; }),
               grid = tensor_of({1, 1, 3, 2}, float32, {2.5e38, 0, -3e38, 1e30, 7e9, -7e9});
  for (const std::string mode : {"bilinear", "nearest", "bicubic"})
    for (bool align : {false, true})
      for (const double v : values(grid_sample(x, grid, {mode, "reflection", align, {}})))
        EXPECT_TRUE(v > 0 && v < 10) << mode << " " << v;
}

TEST(GridSample, EmptyBatchesAndGrids) {
  EXPECT_EQ(grid_sample(Tensor::empty({0, 3, 4, 4}, float32), Tensor::empty({0, 5, 6, 2}, float32)).shape(),
            Dims({0, 3, 5, 6}));
  const Tensor x = full({1, 2, 4, 4}, float32, 1), grid = Tensor::empty({1, 0, 6, 2}, float32);
  EXPECT_EQ(grid_sample(x, grid).shape(), Dims({1, 2, 0, 6}));
  const GridSampleGradients got = grid_sample_backward(Tensor::empty({1, 2, 0, 6}, float32), x, grid);
  EXPECT_EQ(values(got.grad_x), std::vector<double>(32, 0.0));
  const GridSampleGradients none = grid_sample_backward(
      Tensor::empty({1, 0, 1, 1}, float32), Tensor::empty({1, 0, 4, 4}, float32), full({1, 1, 1, 2}, float32, 0));
  EXPECT_EQ(values(none.grad_grid), (std::vector<double>{0, 0}));
}

TEST(AffineGrid, MatchesTheFormula) {
  Draw draw(5);
  for (int i = 0; i < 60; ++i) {
    const DType dtype = kFloats[i % 4];
    const bool volume = draw.coin(), align = draw.coin();
    const int64_t dims = volume ? 3 : 2, n = draw.upto(2);
    Dims size{n, 3};
    for (int d = 0; d < dims; ++d) size.push_back(1 + draw.upto(6));
    const Tensor theta = draw.view({n, dims, dims + 1}, dtype);
    const auto t = values(theta);
    Dims shape{n};
    for (int d = 0; d < dims; ++d) shape.push_back(size[static_cast<size_t>(d) + 2]);
    shape.push_back(dims);
    std::vector<double> want;
    const auto place = [&](int64_t at, int64_t m) {
      return m == 1 ? 0.0 : align ? 2.0 * at / (m - 1) - 1 : (2.0 * at + 1) / m - 1;
    };
    const int64_t places = product(shape) / std::max<int64_t>(n * dims, 1);
    for (int64_t b = 0; b < n; ++b)
      for (int64_t s = 0; s < places; ++s) {
        double at[4] = {0, 0, 0, 1};
        int64_t rest = s;
        for (int64_t d = 0; d < dims; ++d)
          at[d] = place(rest % size[static_cast<size_t>(dims + 1 - d)], size[static_cast<size_t>(dims + 1 - d)]),
          rest /= size[static_cast<size_t>(dims + 1 - d)];
        for (int64_t row = 0; row < dims; ++row) {
          double sum = t[static_cast<size_t>((b * dims + row) * (dims + 1) + dims)];
          for (int64_t k = 0; k < dims; ++k) sum += t[static_cast<size_t>((b * dims + row) * (dims + 1) + k)] * at[k];
          want.push_back(sum);
        }
      }
    expect_close(affine_grid(theta, size, {align, draw.coin() ? draw.poisoned(shape, dtype) : Tensor()}), want,
                 to_string(size), 2, 1e-6);
  }
}

TEST(GridSample, Errors) {
  const Tensor x = full({2, 3, 4, 4}, float32, 1), grid = full({2, 5, 6, 2}, float32, 0);
  expect_error<ValueError>([&] { grid_sample(x, grid, {.mode = "linear"}); },
                           "grid_sample: mode must be 'bilinear', 'nearest' or 'bicubic', got 'linear'");
  expect_error<ValueError>([&] { grid_sample(x, grid, {.padding_mode = "wrap"}); },
                           "grid_sample: padding_mode must be 'zeros', 'border' or 'reflection', got 'wrap'");
  expect_error<ShapeError>(
      [&] {
        grid_sample(x, full({1, 5, 6, 2}, float32, 0));
      },
      "grid_sample: grid must have shape (2, Ho, Wo, 2) for x (2, 3, 4, 4), got (1, 5, 6, 2)");
  expect_error<ShapeError>(
      [&] {
        grid_sample(full({2, 3, 0, 4}, float32, 1), grid);
      },
      "grid_sample: x must hold images that are not empty, got (2, 3, 0, 4)");
  expect_error<UnsupportedError>(
      [] {
        grid_sample(full({1, 1, 2, 2, 2}, float32, 1), full({1, 1, 1, 1, 3}, float32, 0), {.mode = "bicubic"});
      },
      "grid_sample: mode 'bicubic' samples images of two dims only; 'bilinear' and 'nearest' also of three");
  expect_error<DTypeError>(
      [&] {
        grid_sample(x, full({2, 5, 6, 2}, float64, 0));
      },
      "grid_sample: grid must be float32 or x's dtype float32, got float64");
  expect_error<ShapeError>(
      [&] {
        grid_sample_backward(full({2, 3, 5, 5}, float32, 1), x, grid);
      },
      "grid_sample_backward: grad_output must have shape (2, 3, 5, 6), got (2, 3, 5, 5)");
  expect_error<ShapeError>(
      [&] {
        affine_grid(full({1, 2, 3}, float32, 1), {2, 1, 4, 4});
      },
      "affine_grid: theta must have shape (2, 2, 3), got (1, 2, 3)");
  expect_error<ShapeError>(
      [&] {
        affine_grid(full({1, 2, 3}, float32, 1), {1, 1, 0, 4});
      },
      "affine_grid: size must hold an image that is not empty, got (1, 1, 0, 4)");
}

}  // namespace
}  // namespace tenor
