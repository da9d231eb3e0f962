// grid_sample, its gradients and affine_grid captured in a CUDA graph.
#include "src/cuda/capture_testing.h"
#include "tenor/grid_sample.h"

namespace tenor {
namespace {

using GridSampleCudaCapture = testing::CudaCaptureTest;

TEST_F(GridSampleCudaCapture, ForwardAndBackward) {
  const Tensor x = normal({2, 8, 9, 10}), grid = normal({2, 5, 6, 2}), g = normal({2, 8, 5, 6}),
               y = result({2, 8, 5, 6}), dx = result({2, 8, 9, 10}), dgrid = result({2, 5, 6, 2});
  for (const std::string mode : {"bilinear", "nearest", "bicubic"}) {
    const GridSampleOptions forward{mode, "reflection", false, y};
    const GridSampleBackwardOptions backward{mode, "border", false, {dx, dgrid}};
    expect_replays(mode, {y}, [&] { grid_sample(x, grid, forward); });
    expect_replays(mode + " backward", {dx, dgrid}, [&] { grid_sample_backward(g, x, grid, backward); });
  }
}

TEST_F(GridSampleCudaCapture, VolumesAndAffineGrids) {
  const Tensor x = normal({1, 3, 4, 5, 6}), theta = normal({1, 3, 4}), grid = result({1, 2, 3, 4, 3}),
               y = result({1, 3, 2, 3, 4});
  expect_replays("affine_grid", {grid}, [&] { affine_grid(theta, {1, 3, 2, 3, 4}, {.out = grid}); });
  const Tensor places = normal({1, 2, 3, 4, 3});
  expect_replays("grid_sample", {y}, [&] { grid_sample(x, places, {.out = y}); });
}

// Enough planes and places for the pair of kernels of which the grid chooses one.
TEST_F(GridSampleCudaCapture, ScatteredPlaces) {
  const Tensor x = normal({4, 64, 64, 64}), grid = normal({4, 200, 200, 2}), y = result({4, 64, 200, 200});
  expect_replays("scattered", {y}, [&] { grid_sample(x, grid, {.out = y}); });
}

}  // namespace
}  // namespace tenor
