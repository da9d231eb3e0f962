// What a capture in a graph asks of the core: memory, copies, waiting.
#include "src/cuda/capture.h"

#include "src/cuda/capture_testing.h"
#include "tenor/elementwise.h"
#include "tenor/index.h"

namespace tenor {
namespace {

using testing::kGpu;

using CudaCapture = testing::CudaCaptureTest;

TEST_F(CudaCapture, WhatWaitsForTheHostIsRefused) {
  const Tensor x = testing::full({1}, float32, 3).to(kGpu), host = testing::full({5}, float32, 1);
  expect_refused("copy", [&] { x.to(kCpu); });
  expect_refused("copy", [&] { x.item_double(); });
  expect_refused("copy", [&] { host.to(kGpu); });
  expect_refused("synchronize", [&] { synchronize(kGpu); });
}

TEST_F(CudaCapture, TemporariesAreTheGraphs) {
  const Tensor x = normal({1000}), y = result({1000});
  expect_replays("a chain of temporaries", {y}, [&] { add(mul(x, x), neg(x), {.out = y}); });
}

/// A tensor made before the capture is dropped within it: no graph owns its memory.
TEST_F(CudaCapture, OlderMemoryMayBeDroppedWithin) {
  Tensor older;
  const Tensor x = normal({1000}), y = result({1000});
  expect_replays("neg", {y}, [&] {
    older = Tensor();
    neg(x, {.out = y});
    if (cuda::capture_of(current_stream(kGpu).handle) == 0) older = Tensor::empty({1000}, float32, kGpu);
  });
  older = Tensor::empty({1000}, float32, kGpu);
  expect_replays("neg", {y}, [&] {
    older = Tensor();
    neg(x, {.out = y});
  });
  EXPECT_NO_THROW(Tensor::empty({1000}, float32, kGpu));
}

/// The flag that kernels raise is made by the first operator of a stream that needs it, captured or not.
TEST_F(CudaCapture, TheFirstOperatorOfAStreamMayBeCaptured) {
  const Tensor x = normal({40, 8}), rows = integers({5}, 40), y = result({5, 8});
  expect_replays("index_select", {y}, [&] { index_select(x, 0, rows, {.out = y}); });
}

}  // namespace
}  // namespace tenor
