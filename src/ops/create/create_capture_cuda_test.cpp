// Creation, pad, tril and triu captured in a CUDA graph: values travel with the launches.
#include "src/cuda/capture_testing.h"
#include "tenor/create.h"
#include "tenor/elementwise.h"

namespace tenor {
namespace {

using CreateCudaCapture = testing::CudaCaptureTest;

TEST_F(CreateCudaCapture, Creation) {
  for (DType dtype : {float32, bfloat16, int64}) {
    const Tensor x = result({30, 50}, dtype), line = result({100}, dtype);
    expect_replays("zeros", {x}, [&] { zeros({30, 50}, {.device = testing::kGpu, .out = x}); });
    expect_replays("ones_like", {x}, [&] { ones_like(x, {.out = x}); });
    expect_replays("full", {x}, [&] { tenor::full({30, 50}, 3, {.device = testing::kGpu, .out = x}); });
    expect_replays("eye", {x}, [&] { eye(30, 50, {.device = testing::kGpu, .out = x}); });
    expect_replays("arange", {line}, [&] { arange(0, 300, 3, {.device = testing::kGpu, .out = line}); });
    if (is_float(dtype))
      expect_replays("linspace", {line}, [&] { linspace(-1, 2, 100, {.device = testing::kGpu, .out = line}); });
    expect_replays("fill_", {x}, [&] { fill_(x, 5); });
  }
}

TEST_F(CreateCudaCapture, BordersAndTriangles) {
  for (DType dtype : {float32, bfloat16, uint8}) {
    const Tensor x = integers({4, 30, 33}, 100, dtype), wide = result({4, 30, 40}, dtype),
                 y = result({4, 30, 33}, dtype);
    for (const char* mode : {"constant", "reflect", "replicate", "circular"})
      expect_replays(std::string("pad ") + mode, {wide}, [&] { pad(x, {3, 4}, {.mode = mode, .out = wide}); });
    expect_replays("tril", {y}, [&] { tril(x, {.diagonal = 2, .out = y}); });
    expect_replays("triu in place", {x}, [&] { triu(x, {.out = x}); });
  }
}

}  // namespace
}  // namespace tenor
