// Index operators captured in a CUDA graph, and those that cannot be because their result's size depends on data.
#include "src/cuda/capture_testing.h"
#include "tenor/create.h"
#include "tenor/index.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;
using IndexCudaCapture = CudaCaptureTest;

TEST_F(IndexCudaCapture, Reads) {
  for (DType dtype : {float32, bfloat16, int64}) {
    const Tensor x = integers({40, 64}, 100, dtype), rows = integers({9}, 40), each = integers({9, 64}, 40),
                 y = result({9, 64}, dtype), picked = result({9}, dtype), places = integers({9}, 64, int32);
    expect_replays("index_select", {y}, [&] { index_select(x, 0, rows, {.out = y}); });
    expect_replays("embedding", {y}, [&] { embedding(rows, x, {.out = y}); });
    expect_replays("gather", {y}, [&] { gather(x, 0, each, {.out = y}); });
    expect_replays("take_along_dim", {y}, [&] { take_along_dim(x, each, 0, {.out = y}); });
    expect_replays("index_get", {picked}, [&] { index_get(x, {rows, places}, {.out = picked}); });
  }
}

TEST_F(IndexCudaCapture, Writes) {
  for (DType dtype : {float32, bfloat16, int64}) {
    const Tensor x = integers({40, 64}, 9, dtype), rows = integers({50}, 40), each = integers({50, 64}, 40),
                 source = integers({50, 64}, 9, dtype), y = result({40, 64}, dtype), places = integers({50}, 64),
                 values = integers({50}, 9, dtype), more = integers({40, 64}, 9, dtype), where = mask({40, 64});
    expect_replays("scatter", {y}, [&] { scatter(x, 0, each, source, {.out = y}); });
    expect_replays("scatter_add_", {x}, [&] { scatter_add_(x, 0, each, source); });
    for (const char* reduce : {"sum", "prod", "mean", "amax", "amin"})
      expect_replays(std::string("scatter_reduce ") + reduce, {y},
                     [&] { scatter_reduce(x, 0, each, source, reduce, {.out = y}); });
    expect_replays("index_add", {y}, [&] { index_add(x, 0, rows, source, {.alpha = 2, .out = y}); });
    expect_replays("index_add_", {x}, [&] { index_add_(x, 0, rows, source); });
    expect_replays("index_put", {y}, [&] { index_put(x, {rows, places}, values, {.out = y}); });
    expect_replays("index_put_ accumulated", {x}, [&] { index_put_(x, {rows, places}, values, {.accumulate = true}); });
    expect_replays("index_put_ by a mask", {x}, [&] { index_put_(x, {where}, Scalar(3)); });
    expect_replays("masked_scatter", {y}, [&] { masked_scatter(x, where, more, {.out = y}); });
    expect_replays("assign_", {x}, [&] { assign_(x, select(y, 0, 3)); });
  }
}

TEST_F(IndexCudaCapture, ColumnsAndFewRows) {
  const Tensor x = normal({40, 300}), each = integers({50, 300}, 40), source = normal({50, 300}), y = result({40, 300}),
               rows = integers({50}, 40);
  expect_replays("scatter", {y}, [&] { scatter(x, 0, each, source, {.out = y}); });
  expect_replays("scatter_add", {y}, [&] { scatter_add(x, 0, each, source, {.out = y}); });
  expect_replays("index_add", {y}, [&] { index_add(x, 0, rows, source, {.out = y}); });
}

TEST_F(IndexCudaCapture, JoinsAndMoves) {
  for (DType dtype : {float32, uint8}) {
    const Tensor a = integers({6, 30}, 100, dtype), b = integers({6, 30}, 100, dtype), wide = result({6, 60}, dtype),
                 y = result({6, 30}, dtype), both = result({2, 6, 30}, dtype), tiled = result({12, 60}, dtype),
                 often = result({18, 30}, dtype);
    expect_replays("cat", {wide}, [&] { cat({a, b}, 1, {.out = wide}); });
    expect_replays("stack", {both}, [&] { stack({a, b}, 0, {.out = both}); });
    const std::vector<Tensor> many(150, a);
    const Tensor all = result({900, 30}, dtype);
    expect_replays("cat of many", {all}, [&] { cat(many, 0, {.out = all}); });
    expect_replays("tile", {tiled}, [&] { tile(a, {2, 2}, {.out = tiled}); });
    expect_replays("repeat", {tiled}, [&] { repeat(a, {2, 2}, {.out = tiled}); });
    expect_replays("repeat_interleave", {often}, [&] { repeat_interleave(a, 3, {.dim = 0, .out = often}); });
    expect_replays("roll", {y}, [&] { roll(a, {1, -2}, {0, 1}, {.out = y}); });
    expect_replays("flip", {a}, [&] { flip(a, {0, 1}, {.out = a}); });
  }
  const Tensor classes = integers({7, 3}, 10), hot = result({7, 3, 10}, int64);
  expect_replays("one_hot", {hot}, [&] { one_hot(classes, {.num_classes = 10, .out = hot}); });
}

TEST_F(IndexCudaCapture, SizesThatDependOnDataAreRefused) {
  const Tensor x = testing::full({5}, int64, 1).to(kGpu), where = testing::full({5}, boolean, 1).to(kGpu),
               rows = testing::full({5, 2}, int64, 1).to(kGpu);
  expect_refused("nonzero", [&] { nonzero(x); });
  expect_refused("masked_select", [&] { masked_select(x, where); });
  expect_refused("masked_select", [&] { index_get(x, {where}); });  // a mask of x's shape
  expect_refused("index_get", [&] { index_get(rows, {where}); });
  expect_refused("one_hot", [&] { one_hot(x); });
  expect_refused("repeat_interleave", [&] { repeat_interleave(x, x); });
}

}  // namespace
}  // namespace tenor
