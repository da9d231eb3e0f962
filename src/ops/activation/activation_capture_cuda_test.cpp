// silu_mul and gelu_mul captured in a CUDA graph.
#include "src/cuda/capture_testing.h"
#include "tenor/activation.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using ActivationCudaCapture = testing::CudaCaptureTest;

TEST_F(ActivationCudaCapture, GatedActivations) {
  for (DType dtype : {float32, bfloat16}) {
    const Tensor x = normal({7, 130}, dtype), y = result({7, 65}, dtype), gate = normal({7, 65}, dtype),
                 up = normal({7, 65}, dtype);
    expect_replays("silu_mul", {y}, [&] { silu_mul(x, {.out = y}); });
    expect_replays("silu_mul of two", {gate}, [&] { silu_mul(gate, up, {.out = gate}); });
    expect_replays("gelu_mul", {y}, [&] { gelu_mul(x, {.out = y}); });
    expect_replays("gelu_mul tanh", {y}, [&] { gelu_mul(gate, up, {.approximate = "tanh", .out = y}); });
    const Tensor within = narrow(x, 1, 32, 65);  // between the halves: through a temporary
    expect_replays("silu_mul over its input", {within}, [&] { silu_mul(x, {.out = within}); });
  }
}

}  // namespace
}  // namespace tenor
