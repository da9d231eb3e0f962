// rope and rope_tables captured in a CUDA graph.
#include "src/cuda/capture_testing.h"
#include "tenor/rope.h"

namespace tenor {
namespace {

using RopeCudaCapture = testing::CudaCaptureTest;

TEST_F(RopeCudaCapture, RotatesNewContentsAtNewPositions) {
  for (bool interleaved : {false, true}) {
    const Tensor x = normal({2, 5, 3, 24}, bfloat16), y = result({2, 5, 3, 24}, bfloat16), cos = normal({9, 8}),
                 sin = normal({9, 8}), positions = integers({2, 5}, 9, int32);
    expect_replays("rope", {y}, [&] { rope(x, cos, sin, {.interleaved = interleaved, .rotary_dim = 16, .out = y}); });
    expect_replays("rope at positions", {x}, [&] {
      rope(x, cos, sin, {.interleaved = interleaved, .rotary_dim = 16, .positions = positions, .out = x});
    });
  }
}

TEST_F(RopeCudaCapture, Tables) {
  const RopeTables out{result({50, 16}), result({50, 16})};
  expect_replays("rope_tables", {out.cos, out.sin},
                 [&] { rope_tables(50, 32, {.device = testing::kGpu, .out = out}); });
}

}  // namespace
}  // namespace tenor
