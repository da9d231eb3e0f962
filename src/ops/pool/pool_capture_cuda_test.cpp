// Pooling captured in a CUDA graph.
#include "src/cuda/capture_testing.h"
#include "tenor/pool.h"

namespace tenor {
namespace {

using PoolCudaCapture = testing::CudaCaptureTest;

TEST_F(PoolCudaCapture, Windows) {
  for (const DType dtype : {float32, bfloat16, float64}) {
    const Tensor x = normal({2, 8, 13, 16}, dtype), y = result({2, 8, 7, 8}, dtype), at = result({2, 8, 7, 8}, int64),
                 dx = result({2, 8, 13, 16}, dtype);
    expect_replays("max_pool2d", {y}, [&] { max_pool2d(x, {3}, {.stride = {2}, .padding = {1}, .out = {y, {}}}); });
    expect_replays("max_pool2d with indices", {y, at}, [&] {
      max_pool2d(x, {3}, {.stride = {2}, .padding = {1}, .return_indices = true, .out = {y, at}});
    });
    expect_replays("avg_pool2d", {y}, [&] { avg_pool2d(x, {3}, {.stride = {2}, .padding = {1}, .out = y}); });
    expect_replays("avg_pool2d_backward", {dx},
                   [&] { avg_pool2d_backward(y, x.shape(), {3}, {.stride = {2}, .padding = {1}, .out = dx}); });
  }
}

TEST_F(PoolCudaCapture, ChannelsTogether) {
  const Tensor memory = normal({2, 13, 16, 24}, bfloat16),
               x = memory.with_layout({2, 24, 13, 16}, {13 * 16 * 24, 1, 16 * 24, 24}, 0);
  const Tensor y = result({2, 24, 7, 8}, bfloat16), at = result({2, 24, 7, 8}, int64);
  expect_replays("max_pool2d", {y}, [&] { max_pool2d(x, {3}, {.stride = {2}, .padding = {1}, .out = {y, {}}}); });
  expect_replays("max_pool2d with indices", {y, at}, [&] {
    max_pool2d(x, {3}, {.stride = {2}, .padding = {1}, .return_indices = true, .out = {y, at}});
  });
  expect_replays("avg_pool2d", {y}, [&] { avg_pool2d(x, {3}, {.stride = {2}, .padding = {1}, .out = y}); });
}

TEST_F(PoolCudaCapture, BinsPlacesAndNorms) {
  const Tensor x = normal({2, 3, 9, 10}), y = result({2, 3, 4, 3}), one = result({2, 3, 1, 1}),
               at = integers({2, 3, 4, 3}, 90), dx = result({2, 3, 9, 10});
  const Tensor grad = normal({2, 3, 4, 3}), norms = result({2, 3, 4, 5}), norm_grad = normal({2, 3, 4, 5}),
               integer = integers({2, 3, 9, 10}, 100, int32), largest = result({2, 3, 4, 5}, int32);
  expect_replays("adaptive_avg_pool2d", {y}, [&] { adaptive_avg_pool2d(x, {4, 3}, {.out = y}); });
  expect_replays("adaptive_avg_pool2d to one", {one}, [&] { adaptive_avg_pool2d(x, {1}, {.out = one}); });
  expect_replays("adaptive_avg_pool2d_backward", {dx},
                 [&] { adaptive_avg_pool2d_backward(grad, x.shape(), {.out = dx}); });
  expect_replays("max_pool2d_backward", {dx}, [&] { max_pool2d_backward(grad, at, x.shape(), {.out = dx}); });
  expect_replays("max_pool2d of integers", {largest}, [&] { max_pool2d(integer, {2}, {.out = {largest, {}}}); });
  expect_replays("lp_pool2d", {norms}, [&] { lp_pool2d(x, 3, {2}, {.out = norms}); });
  for (const double p : {2.0, testing::kInf})
    expect_replays("lp_pool2d_backward", {dx}, [&] { lp_pool2d_backward(norm_grad, x, p, {2}, {.out = dx}); });
}

}  // namespace
}  // namespace tenor
