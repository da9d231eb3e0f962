// grid_sample, its gradients and affine_grid on a GPU.
#include "src/core/output.h"
#include "src/cuda/testing.h"
#include "src/ops/grid_sample/grid_sample_testing.h"
#include "tenor/index.h"
#include "tenor/modes.h"
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

/// Elements that differ by more than roundings and the sums' own.
int64_t wrong_elements(const Tensor& got, const Tensor& want, double least) {
  const auto a = values(on_cpu(got)), b = values(want);
  int64_t wrong = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const bool equal = (std::isnan(a[i]) && std::isnan(b[i])) ||
                       std::abs(a[i] - b[i]) <= 4 * unit(want.dtype()) * std::abs(b[i]) + least;
    wrong += equal ? 0 : 1;
  }
  return wrong;
}

/// Places beside one another, all over the image, or all on a few pixels of an edge, whose lists are then long.
Tensor many_places(Draw& draw, const Dims& shape, const std::string& kind) {
  if (kind == "turned") {
    const Dims size{shape[0], 1, shape[1], shape[2]};
    std::vector<double> theta;
    for (int64_t n = 0; n < shape[0]; ++n) theta.insert(theta.end(), {1.13, -.21, .107, .317, 1.21, -.013});
    return affine_grid(tensor_of({shape[0], 2, 3}, float32, theta), size);
  }
  std::vector<double> places(static_cast<size_t>(product(shape)));
  for (double& p : places)
    p = kind == "edge" ? 1.3 + draw.normal() / 50 : 1.2 * (static_cast<double>(draw.upto(1 << 21)) / (1 << 20) - 1);
  places[7] = kNan, places[20] = kInf, places[31] = -1e30;
  return tensor_of(shape, float32, places);
}

// Enough places for the kernels of which the grid chooses, and more on a pixel than a few lanes add up, or look for
// their order.
TEST_F(GridSampleCuda, BackwardOfManyPlacesIsThatOfTheCpu) {
  Draw draw(6);
  for (const DType dtype : {float32, bfloat16})
    for (const int64_t channels : {3, 20}) {
      const Tensor planes = draw.dense({2, channels, 67, 93}, dtype), ups = draw.dense({2, channels, 181, 183}, dtype);
      for (const bool by_channel : {false, true})
        for (const std::string kind : {"turned", "scattered", "edge"}) {
          const auto laid = [&](const Tensor& t) {
            return by_channel ? permute(permute(t, {0, 2, 3, 1}).contiguous(), {0, 3, 1, 2}) : t;
          };
          const Tensor x = laid(planes), g = laid(ups), grid = many_places(draw, {2, 181, 183, 2}, kind);
          const GridSampleBackwardOptions options{"bilinear",
                                                  kind == "edge" ? "border"
                                                  : by_channel   ? "zeros"
                                                                 : "reflection",
                                                  false,
                                                  {}};
          const Tensor gx = on_gpu(x), gg = on_gpu(g), places = on_gpu(grid);
          const GridSampleGradients got = grid_sample_backward(gg, gx, places, options),
                                    again = grid_sample_backward(gg, gx, places, options),
                                    want = grid_sample_backward(g, x, grid, options);
          const std::string what = std::string(name(dtype)) + " " + kind + " " + std::to_string(channels) +
                                   (by_channel ? " by channel" : "");
          // Sums of thousands in another order; and a place so near a pixel that rounding says on which side it lies.
          EXPECT_EQ(wrong_elements(got.grad_x, want.grad_x, kind == "edge" ? 0.02 : 1e-3), 0) << what;
          EXPECT_LE(wrong_elements(got.grad_grid, want.grad_grid, 0.05), kind == "turned" ? 8 : 2) << what;
          EXPECT_TRUE(same_bits(on_cpu(got.grad_x), on_cpu(again.grad_x)) &&
                      same_bits(on_cpu(got.grad_grid), on_cpu(again.grad_grid)))
              << what;
        }
    }
}

TEST_F(GridSampleCuda, BackwardOfMoreChannelsThanLanes) {
  Draw draw(8);
  for (const DType dtype : kFloats)
    for (const int64_t channels : {300, 512}) {
      const Tensor x = draw.dense({1, channels, 5, 6}, dtype), g = draw.dense({1, channels, 7, 9}, dtype),
                   grid = draw.dense({1, 7, 9, 2}, float32);
      const GridSampleGradients got = grid_sample_backward(on_gpu(g), on_gpu(x), on_gpu(grid)),
                                want = grid_sample_backward(g, x, grid);
      EXPECT_EQ(wrong_elements(got.grad_x, want.grad_x, 1e-4), 0) << name(dtype);
      EXPECT_EQ(wrong_elements(got.grad_grid, want.grad_grid, 1e-2), 0) << name(dtype);
    }
}

TEST_F(GridSampleCuda, AnImagesGradientsDoNotDependOnTheBatch) {
  Draw draw(7);
  const BatchInvariantGuard guard;
  const Tensor x = on_gpu(draw.dense({3, 20, 40, 50}, float32)), g = on_gpu(draw.dense({3, 20, 190, 180}, float32));
  const Tensor grid = on_gpu(cat(std::vector<Tensor>{many_places(draw, {2, 190, 180, 2}, "scattered"),
                                                     many_places(draw, {1, 190, 180, 2}, "turned")},
                                 0));
  const GridSampleGradients all = grid_sample_backward(g, x, grid);
  for (int64_t n = 0; n < 3; ++n) {
    const auto image = [&](const Tensor& t) { return narrow(t, 0, n, 1); };
    const GridSampleGradients one = grid_sample_backward(image(g), image(x), image(grid));
    EXPECT_TRUE(same_bits(on_cpu(image(all.grad_x)), on_cpu(one.grad_x)) &&
                same_bits(on_cpu(image(all.grad_grid)), on_cpu(one.grad_grid)))
        << n;
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
