// Row operators captured in a CUDA graph.
#include "src/cuda/capture_testing.h"
#include "tenor/norm.h"

namespace tenor {
namespace {

using NormCudaCapture = testing::CudaCaptureTest;

constexpr DType kHalf[] = {float32, bfloat16};

TEST_F(NormCudaCapture, RowNorms) {
  for (DType dtype : kHalf)
    for (int64_t length : {40, 1001, 40000, 300000}) {
      const std::string what = std::string(name(dtype)) + " " + std::to_string(length);
      const Tensor x = normal({3, length}, dtype), residual = normal({3, length}, dtype), gamma = normal({length}),
                   beta = normal({length}), y = result({3, length}, dtype), sum = result({3, length}, dtype);
      expect_replays("layer_norm " + what, {y}, [&] { layer_norm(x, gamma, {.beta = beta, .out = y}); });
      expect_replays("rms_norm " + what, {y}, [&] { rms_norm(x, gamma, {.out = y}); });
      expect_replays("add_rms_norm " + what, {y, sum}, [&] { add_rms_norm(x, residual, gamma, {.out = {y, sum}}); });
      expect_replays("add_layer_norm in place " + what, {x, residual}, [&] {
        add_layer_norm(x, residual, gamma, {.beta = beta, .out = {x, residual}});
      });
      expect_replays("normalize " + what, {y}, [&] { normalize(x, {.out = y}); });
      expect_replays("softmax_last_axis " + what, {y}, [&] { softmax_last_axis(x, {.out = y}); });
    }
}

TEST_F(NormCudaCapture, SoftmaxAlongAnyDim) {
  for (int64_t dim : {0, 1, 2}) {
    const Tensor x = normal({5, 70, 33}), y = result({5, 70, 33});
    expect_replays("softmax", {y}, [&] { softmax(x, {.dim = dim, .out = y}); });
    expect_replays("log_softmax", {y}, [&] { log_softmax(x, {.dim = dim, .out = y}); });
    expect_replays("softmax in place", {x}, [&] { softmax(x, {.dim = dim, .out = x}); });
  }
}

TEST_F(NormCudaCapture, ChannelNorms) {
  for (DType dtype : kHalf) {
    const Tensor x = normal({2, 6, 5, 9}, dtype), y = result({2, 6, 5, 9}, dtype), gamma = normal({6}),
                 beta = normal({6}), mean = normal({6}), variance = probabilities({6});
    expect_replays("group_norm", {y}, [&] { group_norm(x, 3, {.gamma = gamma, .beta = beta, .out = y}); });
    expect_replays("instance_norm", {y}, [&] { instance_norm(x, {.gamma = gamma, .beta = beta, .out = y}); });
    expect_replays("batch_norm", {y}, [&] { batch_norm(x, mean, variance, {.gamma = gamma, .beta = beta, .out = y}); });
  }
}

}  // namespace
}  // namespace tenor
