// Convolutions captured in a CUDA graph.
#include "src/cuda/capture_testing.h"
#include "tenor/conv.h"

namespace tenor {
namespace {

using ConvCudaCapture = testing::CudaCaptureTest;

TEST_F(ConvCudaCapture, Directions) {
  for (const DType dtype : {bfloat16, float32})
    for (const int64_t groups : {1, 2, 16}) {
      const int64_t channels = groups == 16 ? 16 : 24 * groups;
      const Dims image = {2, channels, 9, 10}, filter = {channels, channels / groups, 3, 3};
      const Tensor x = normal(image, dtype), w = normal(filter, dtype), bias = normal({channels}, dtype),
                   grad = normal(image, dtype), y = result(image, dtype), dx = result(image, dtype),
                   dw = result(filter, dtype);
      const std::string what = std::string(name(dtype)) + " groups " + std::to_string(groups);
      expect_replays("conv_forward " + what, {y},
                     [&] { conv_forward(x, w, bias, {.padding = 1, .groups = groups, .out = y}); });
      expect_replays("conv_data_backward " + what, {dx},
                     [&] { conv_data_backward(grad, w, image, {.padding = 1, .groups = groups, .out = dx}); });
      expect_replays("conv_weight_backward " + what, {dw},
                     [&] { conv_weight_backward(x, grad, filter, {.padding = 1, .groups = groups, .out = dw}); });
    }
}

/// Where cuDNN is there; its plan may be made under capture.
TEST_F(ConvCudaCapture, Vendor) {
  const Dims image = {2, 24, 9, 10}, filter = {16, 24, 3, 3}, output = {2, 16, 9, 10};
  const Tensor x = normal(image), w = normal(filter), bias = normal({16}), grad = normal(output), y = result(output),
               dx = result(image), dw = result(filter);
  const ConvOptions o{.padding = 1, .strategy = "vendor"};
  try {
    conv_forward(x, w, {}, o);
  } catch (const UnsupportedError& e) {
    GTEST_SKIP() << e.what();
  }
  const auto to = [&](const Tensor& out) {
    ConvOptions with = o;
    with.out = out;
    return with;
  };
  expect_replays("conv_forward", {y}, [&] { conv_forward(x, w, bias, to(y)); });
  expect_replays("conv_data_backward", {dx}, [&] { conv_data_backward(grad, w, image, to(dx)); });
  expect_replays("conv_weight_backward", {dw}, [&] { conv_weight_backward(x, grad, filter, to(dw)); });
}

TEST_F(ConvCudaCapture, Deformable) {
  const Tensor x = normal({2, 4, 8, 9}), offset = normal({2, 18, 8, 9}), w = normal({6, 4, 3, 3}),
               y = result({2, 6, 8, 9});
  expect_replays("deform_conv2d", {y}, [&] { deform_conv2d(x, offset, w, {}, {}, {.padding = 1, .out = y}); });
}

}  // namespace
}  // namespace tenor
