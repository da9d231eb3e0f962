// CTC captured in a CUDA graph: replays read labels, lengths and log_probs anew.
#include "src/cuda/capture_testing.h"
#include "tenor/ctc.h"

namespace tenor {
namespace {

using CtcCudaCapture = testing::CudaCaptureTest;

TEST_F(CtcCudaCapture, Loss) {
  const int64_t T = 40, N = 3, C = 12, S = 9;
  for (DType dtype : {float32, bfloat16}) {
    const Tensor x = normal({T, N, C}, dtype), targets = integers({N, S}, C), frames = integers({N}, T + 1),
                 counts = integers({N}, S + 1, int32), up = normal({N}), loss = result({}, dtype),
                 losses = result({N}, dtype), gradient = result({T, N, C}, dtype);
    const std::string what = std::string(name(dtype));
    expect_replays("ctc_loss " + what, {loss}, [&] { ctc_loss(x, targets, frames, counts, {.out = {loss, {}}}); });
    expect_replays("ctc_loss with gradient " + what, {loss, gradient}, [&] {
      ctc_loss(x, targets, frames, counts,
               {.reduction = "sum", .zero_infinity = true, .return_grad = true, .out = {loss, gradient}});
    });
    expect_replays("ctc_loss of numbers " + what, {losses}, [&] {
      ctc_loss(x, targets, {40, 30, 7}, {9, 0, 3}, {.reduction = "none", .out = {losses, {}}});
    });
    expect_replays("ctc_loss_backward " + what, {gradient},
                   [&] { ctc_loss_backward(up, x, targets, frames, counts, {.reduction = "none", .out = gradient}); });
  }
}

TEST_F(CtcCudaCapture, LongLabels) {
  const int64_t T = 600, S = 280;
  const Tensor x = normal({T, 1, 5}), targets = integers({1, S}, 5), loss = result({}), gradient = result({T, 1, 5});
  expect_replays("ctc_loss in panels", {loss, gradient}, [&] {
    ctc_loss(x, targets, {600}, {280}, {.return_grad = true, .out = {loss, gradient}});
  });
}

TEST_F(CtcCudaCapture, Decoders) {
  const Tensor x = normal({30, 3, 12}), frames = integers({3}, 31), ids = result({3, 30}, int64),
               lengths = result({3}, int64);
  expect_replays("ctc_greedy_decode", {ids, lengths}, [&] {
    ctc_greedy_decode(x, {.input_lengths = frames, .out = {ids, lengths}});
  });
  expect_replays("ctc_beam_decode", {ids, lengths}, [&] {
    ctc_beam_decode(x, {.input_lengths = frames, .beam_width = 5, .out = {ids, lengths}});
  });
}

}  // namespace
}  // namespace tenor
