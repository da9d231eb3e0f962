// Reductions captured in a CUDA graph, those among them whose blocks leave partial results in workspace.
#include "src/cuda/capture_testing.h"
#include "tenor/reduce.h"

namespace tenor {
namespace {

using testing::CudaCaptureTest;

/// x and what is reduced: rows, columns, everything; few outputs and many.
struct Shape {
  Dims shape;
  std::optional<Dims> dim;
  Dims result;
};
const Shape kShapes[] = {{{70, 90}, Dims{1}, {70}},   {{70, 90}, Dims{0}, {90}}, {{3, 200000}, Dims{1}, {3}},
                         {{100000, 5}, Dims{0}, {5}}, {{1 << 18}, {}, {}},       {{4, 50, 60}, Dims{0, 2}, {50}}};

class ReduceCudaCapture : public CudaCaptureTest {};

TEST_F(ReduceCudaCapture, Sums) {
  for (DType dtype : {float32, bfloat16, int32})
    for (const Shape& s : kShapes) {
      const bool whole = !is_float(dtype);
      const Tensor x = whole ? integers(s.shape, 9, dtype) : normal(s.shape, dtype),
                   y = result(s.result, whole ? int64 : dtype), f = result(s.result, whole ? float32 : dtype);
      const std::string what = std::string(name(dtype)) + to_string(s.shape);
      expect_replays("sum " + what, {y}, [&] { sum(x, {.dim = s.dim, .out = y}); });
      expect_replays("prod " + what, {y}, [&] { prod(x, {.dim = s.dim, .out = y}); });
      expect_replays("mean " + what, {f}, [&] { mean(x, {.dim = s.dim, .out = f}); });
      expect_replays("norm " + what, {f}, [&] { norm(x, {.dim = s.dim, .out = f}); });
      expect_replays("var " + what, {f}, [&] { var(x, {.dim = s.dim, .out = f}); });
      expect_replays("std " + what, {f}, [&] { std(x, {.dim = s.dim, .out = f}); });
      expect_replays("logsumexp " + what, {f}, [&] { logsumexp(x, {.dim = s.dim, .out = f}); });
    }
}

/// A row that one launch adds; within a graph its counter is the graph's own.
TEST_F(ReduceCudaCapture, LongLine) {
  for (DType dtype : {float32, bfloat16}) {
    const Tensor x = normal({1 << 23}, dtype), y = result({}, dtype);
    expect_replays("sum of a long line " + std::string(name(dtype)), {y}, [&] { sum(x, {.out = y}); });
  }
}

TEST_F(ReduceCudaCapture, ExtremesAndCounts) {
  for (DType dtype : {float32, bfloat16, int32})
    for (const Shape& s : kShapes) {
      const Tensor x = is_float(dtype) ? normal(s.shape, dtype) : integers(s.shape, 9, dtype),
                   y = result(s.result, dtype), truth = result(s.result, boolean), count = result(s.result, int64);
      const std::string what = std::string(name(dtype)) + to_string(s.shape);
      expect_replays("amax " + what, {y}, [&] { amax(x, {.dim = s.dim, .out = y}); });
      expect_replays("amin " + what, {y}, [&] { amin(x, {.dim = s.dim, .out = y}); });
      expect_replays("any " + what, {truth}, [&] { any(x, {.dim = s.dim, .out = truth}); });
      expect_replays("all " + what, {truth}, [&] { all(x, {.dim = s.dim, .out = truth}); });
      expect_replays("count_nonzero " + what, {count}, [&] { count_nonzero(x, {.dim = s.dim, .out = count}); });
      if (s.dim && s.dim->size() > 1) continue;
      const auto dim = s.dim ? std::optional<int64_t>((*s.dim)[0]) : std::nullopt;
      expect_replays("argmax " + what, {count}, [&] { argmax(x, {.dim = dim, .out = count}); });
      expect_replays("argmin " + what, {count}, [&] { argmin(x, {.dim = dim, .out = count}); });
      if (!dim) {
        expect_replays("max of all " + what, {y}, [&] { max(x, ReduceOptions{.out = y}); });
        continue;
      }
      expect_replays("max " + what, {y, count}, [&] { max(x, *dim, {.out = y, .out_indices = count}); });
      expect_replays("min " + what, {y, count}, [&] { min(x, *dim, {.out = y, .out_indices = count}); });
    }
}

}  // namespace
}  // namespace tenor
