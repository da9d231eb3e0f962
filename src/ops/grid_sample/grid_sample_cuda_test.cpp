// grid_sample, its gradients and affine_grid on a GPU.
#include "src/core/output.h"
#include "src/cuda/testing.h"
#include "src/ops/grid_sample/grid_sample_testing.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;
using GridSampleCuda = CudaTest;

Dims sampled_shape(const GridCall& call) {
  Dims shape{call.image[0], call.image[1]};
  for (size_t d = 1; d + 1 < call.places.size(); ++d) shape.push_back(call.places[d]);
  return shape;
}

TEST_F(GridSampleCuda, MatchesTheReferenceOnRandomCalls) {
  Draw draw(1);
  for (int i = 0; i < 400; ++i) {
    const GridCall call = random_grid_call(draw);
    const DType dtype = kFloats[i % 4], grid_dtype = draw.coin() ? float32 : dtype;
    const Tensor x = any_image(draw, call.image, dtype), grid = draw.any_layout(call.places, grid_dtype);
    assign(grid, random_coordinates(draw, call, grid_dtype));
    const Tensor out = draw.coin() ? on_gpu(draw.poisoned(sampled_shape(call), dtype)) : Tensor();
    const Tensor y = on_cpu(grid_sample(on_gpu(x), on_gpu(grid), {call.mode, call.padding, call.align, out}));
    expect_close(y, grid_sample_reference(values(x), call.image, values(grid), call.count(), call.reference()),
                 call.text() + " " + std::string(name(dtype)) + to_string(x.strides()), 6,
                 dtype == float64 ? 1e-12 : 1e-4);
  }
}

TEST_F(GridSampleCuda, BackwardMatchesTheReferenceOnRandomCalls) {
  Draw draw(2);
  for (int i = 0; i < 300; ++i) {
    const GridCall call = random_grid_call(draw);
    const DType dtype = kFloats[i % 4], grid_dtype = draw.coin() ? float32 : dtype;
    const Tensor x = any_image(draw, call.image, dtype), grid = draw.any_layout(call.places, grid_dtype),
                 g = any_image(draw, sampled_shape(call), dtype);
    assign(grid, random_coordinates(draw, call, grid_dtype));
    GridSampleBackwardOptions options{call.mode, call.padding, call.align, {}};
    if (draw.coin())
      options.out = {on_gpu(draw.poisoned(call.image, dtype)), on_gpu(draw.poisoned(call.places, grid_dtype))};
    const GridSampleGradients got = grid_sample_backward(on_gpu(g), on_gpu(x), on_gpu(grid), options);
    const GridGradients want =
        grid_gradient_reference(values(g), values(x), call.image, values(grid), call.count(), call.reference());
    const std::string what =
        call.text() + " " + std::string(name(dtype)) + to_string(x.strides()) + to_string(g.strides());
    expect_close(on_cpu(got.grad_x), want.x, what + " grad_x", 6, dtype == float64 ? 1e-11 : 1e-3);
    expect_close(on_cpu(got.grad_grid), want.grid, what + " grad_grid", 6,
                 dtype == float64 && grid_dtype == float64 ? 1e-9 : 3e-3);
  }
}

// Large enough for the kernels that hold planes in shared memory and for those that do not; the grid decides.
TEST_F(GridSampleCuda, ScatteredAndCoherentGridsOfManyPlanes) {
  Draw draw(3);
  for (const DType dtype : {float32, bfloat16})
    for (const bool coherent : {false, true})
      for (const std::string padding : {"zeros", "border", "reflection"}) {
        const Dims image{3, 64, 232, 264};  // float32: two bands
        const Tensor x = draw.dense(image, dtype);
        Tensor grid = affine_grid(
            tensor_of({3, 2, 3}, float32, {1.1, -.2, .1, .3, 1.2, 0, 1, 0, 0, 0, 1, 0, .4, .5, .2, -.5, .4, -.3}),
            {3, 1, 210, 216});
        if (!coherent) {
          std::vector<double> places(static_cast<size_t>(grid.numel()));
          for (double& p : places) p = 1.2 * (2.0 * static_cast<double>(draw.upto(1 << 20)) / (1 << 20) - 1);
          places[7] = kNan, places[20] = kInf;
          assign(grid, places);
        }
        for (const std::string mode : {"bilinear", "nearest"}) {
          if (mode == "nearest" && coherent) continue;  // places half-way between pixels, which rounding decides
          const GridSampleOptions options{mode, padding, false, {}};
          const Tensor got = on_cpu(grid_sample(on_gpu(x), on_gpu(grid), options)),
                       want = grid_sample(x, grid, options);
          const auto a = values(got), b = values(want);
          int64_t wrong = 0;
          for (size_t i = 0; i < a.size(); ++i) {
            const bool equal = (std::isnan(a[i]) && std::isnan(b[i])) ||
                               std::abs(a[i] - b[i]) <= 4 * unit(dtype) * std::abs(b[i]) + 1e-3;
            wrong += equal ? 0 : 1;
          }
          EXPECT_LE(wrong, mode == "nearest" ? static_cast<int64_t>(a.size() / 10000) : 0)
              << name(dtype) << coherent << padding << mode;
        }
      }
}

TEST_F(GridSampleCuda, BackwardOfManyPlacesOnOnePixelIsTheSameEveryTime) {
  Draw draw(4);
  const Tensor x = on_gpu(draw.dense({2, 5, 6, 7}, float32)), g = on_gpu(draw.dense({2, 5, 90, 80}, float32));
  const Tensor grid = on_gpu(draw.dense({2, 90, 80, 2}, float32));
  const GridSampleGradients first = grid_sample_backward(g, x, grid, {.padding_mode = "border"});
  for (int i = 0; i < 3; ++i) {
    const GridSampleGradients again = grid_sample_backward(g, x, grid, {.padding_mode = "border"});
    EXPECT_TRUE(same_bits(on_cpu(first.grad_x), on_cpu(again.grad_x)) &&
                same_bits(on_cpu(first.grad_grid), on_cpu(again.grad_grid)));
  }
}

TEST_F(GridSampleCuda, AffineGridIsThatOfTheCpu) {
  Draw draw(5);
  for (int i = 0; i < 40; ++i) {
    const DType dtype = kFloats[i % 4];
    const int64_t dims = 2 + draw.upto(1), n = draw.upto(3);
    Dims size{n, 1};
    for (int64_t d = 0; d < dims; ++d) size.push_back(1 + draw.upto(9));
    const Tensor theta = draw.view({n, dims, dims + 1}, dtype);
    expect_close(on_cpu(affine_grid(on_gpu(theta), size, {i % 3 == 0})), values(affine_grid(theta, size, {i % 3 == 0})),
                 to_string(size), 2, 1e-6);
  }
}

// Offsets beyond 2^31 elements: many planes, of which the last must be right.
TEST_F(GridSampleCuda, MoreThan31BitsOfElements) {
  constexpr int64_t kPlanes = (int64_t{1} << 31) / (64 * 64) + 3;
  Tensor x, y;
  try {
    x = Tensor::empty({1, kPlanes, 64, 64}, float16, kGpu);
    y = Tensor::empty({1, kPlanes, 64, 64}, float16, kGpu);
  } catch (const OutOfMemoryError&) {
    GTEST_SKIP() << "not enough memory";
  }
  const auto last = [&](const Tensor& t) {
    return t.with_layout({1, 2, 64, 64}, contiguous_strides({1, 2, 64, 64}), (kPlanes - 2) * 64 * 64);
  };
  Draw draw(9);
  const Tensor want = draw.dense({1, 2, 64, 64}, float16), grid = draw.dense({1, 64, 64, 2}, float32);
  core::copy_into(want.to(kGpu), last(x));
  grid_sample(x, on_gpu(grid), {.out = y});
  expect_close(on_cpu(last(y).clone()), values(grid_sample(want, grid)), "the last planes", 2, 1e-3);
}

TEST_F(GridSampleCuda, EmptyBatchesAndGrids) {
  EXPECT_EQ(grid_sample(Tensor::empty({0, 3, 4, 4}, float32, kGpu), Tensor::empty({0, 5, 6, 2}, float32, kGpu)).shape(),
            Dims({0, 3, 5, 6}));
  const GridSampleGradients got =
      grid_sample_backward(Tensor::empty({1, 2, 0, 6}, float32, kGpu), on_gpu(full({1, 2, 4, 4}, float32, 1)),
                           Tensor::empty({1, 0, 6, 2}, float32, kGpu));
  EXPECT_EQ(values(on_cpu(got.grad_x)), std::vector<double>(32, 0.0));
}

}  // namespace
}  // namespace tenor
