// Scans captured in a CUDA graph: what passes from tile to tile starts anew at every replay.
#include "src/cuda/capture_testing.h"
#include "tenor/scan.h"

namespace tenor {
namespace {

using ScanCudaCapture = testing::CudaCaptureTest;

TEST_F(ScanCudaCapture, EveryScan) {
  const std::pair<Dims, int64_t> lines[] = {
      {{30, 70}, 1}, {{70, 30}, 0}, {{2, 150000}, 1}, {{150000, 2}, 0}, {{1 << 19}, 0}};
  for (DType dtype : {float32, bfloat16, int32})
    for (const auto& [shape, dim] : lines) {
      const bool whole = !is_float(dtype);
      const Tensor x = whole ? integers(shape, 9, dtype) : normal(shape, dtype), y = result(shape, dtype),
                   sums = result(shape, whole ? int64 : dtype), places = result(shape, int64);
      const std::string what = std::string(name(dtype)) + to_string(shape);
      expect_replays("cumsum " + what, {sums}, [&] { cumsum(x, dim, {.out = sums}); });
      expect_replays("cumprod " + what, {sums}, [&] { cumprod(x, dim, {.out = sums}); });
      expect_replays("cummax " + what, {y, places}, [&] { cummax(x, dim, {.out = y, .out_indices = places}); });
      expect_replays("cummin " + what, {y, places}, [&] { cummin(x, dim, {.out = y, .out_indices = places}); });
      if (!whole) expect_replays("logcumsumexp " + what, {y}, [&] { logcumsumexp(x, dim, {.out = y}); });
    }
}

}  // namespace
}  // namespace tenor
