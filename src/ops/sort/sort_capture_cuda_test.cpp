// Order captured in a CUDA graph: rows of every kernel, and the operators whose result's size depends on data.
#include "src/cuda/capture_testing.h"
#include "tenor/sort.h"

namespace tenor {
namespace {

using OrderCudaCapture = testing::CudaCaptureTest;

TEST_F(OrderCudaCapture, SortsAndSelections) {
  for (DType dtype : {float32, bfloat16, int64})
    for (int64_t n : {30, 200, 3000, 9000, 20000, 170001}) {
      const Dims shape{2, n};
      const Tensor x = is_float(dtype) ? normal(shape, dtype) : integers(shape, 1000, dtype),
                   values = result(shape, dtype), places = result(shape, int64), first = result({2, 20}, dtype),
                   at = result({2, 20}, int64), one = result({2}, dtype), where = result({2}, int64),
                   middle = result({}, dtype);
      const std::string what = std::string(name(dtype)) + " " + std::to_string(n);
      expect_replays("sort " + what, {values, places}, [&] { sort(x, {.descending = true, .out = {values, places}}); });
      expect_replays("argsort " + what, {places}, [&] { argsort(x, {.out = places}); });
      expect_replays("topk " + what, {first, at}, [&] { topk(x, 20, {.out = {first, at}}); });
      expect_replays("kthvalue " + what, {one, where}, [&] { kthvalue(x, 7, {.out = {one, where}}); });
      expect_replays("median " + what, {one, where}, [&] { median(x, {.dim = 1, .out = {one, where}}); });
      expect_replays("median of all " + what, {middle}, [&] { median(x, {.out = {middle, {}}}); });
    }
}

TEST_F(OrderCudaCapture, Searches) {
  const Tensor sorted = testing::on_gpu(testing::filled({100}, float32, [](int64_t i) { return i / 10.0 - 5; })),
               wanted = normal({3, 40}), places = result({3, 40}, int64);
  expect_replays("searchsorted", {places}, [&] { searchsorted(sorted, wanted, {.out = places}); });
  const Tensor longer = testing::on_gpu(testing::filled({40000}, float32, [](int64_t i) { return i / 5e3 - 4; })),
               many = normal({20000}), all = result({20000}, int64);
  expect_replays("searchsorted of many", {all}, [&] { searchsorted(longer, many, {.out = all}); });
}

TEST_F(OrderCudaCapture, SizesThatDependOnDataAreRefused) {
  const Tensor x = integers({300}, 40);
  expect_refused("unique", [&] { unique(x, {.return_inverse = true}); });
  expect_refused("unique", [&] { unique(x, {.dim = 0}); });
  expect_refused("bincount", [&] { bincount(x); });
}

}  // namespace
}  // namespace tenor
