// interpolate captured in a CUDA graph.
#include "src/cuda/capture_testing.h"
#include "tenor/interpolate.h"

namespace tenor {
namespace {

using InterpolateCudaCapture = testing::CudaCaptureTest;

TEST_F(InterpolateCudaCapture, EveryMode) {
  const Tensor x = normal({2, 8, 9, 10}), y = result({2, 8, 13, 24}), dx = result({2, 8, 9, 10});
  for (const std::string mode : {"nearest", "nearest-exact", "bilinear", "bicubic", "area", "lanczos3"}) {
    const InterpolateOptions forward{.size = Dims{13, 24}, .mode = mode, .out = y},
        backward{.size = Dims{9, 10}, .mode = mode, .out = dx};
    expect_replays(mode, {y}, [&] { interpolate(x, forward); });
    expect_replays(mode + " backward", {dx}, [&] { interpolate_backward(x, {2, 8, 9, 10}, backward); });
  }
}

TEST_F(InterpolateCudaCapture, OneAndThreeDims) {
  const Tensor line = normal({2, 3, 17}), volume = normal({1, 4, 3, 5, 6}, bfloat16), y = result({2, 3, 40}),
               v = result({1, 4, 6, 4, 9}, bfloat16);
  expect_replays("linear", {y}, [&] { interpolate(line, {.size = Dims{40}, .mode = "linear", .out = y}); });
  expect_replays("trilinear", {v}, [&] {
    interpolate(volume, {.size = Dims{6, 4, 9}, .mode = "trilinear", .out = v});
  });
}

}  // namespace
}  // namespace tenor
