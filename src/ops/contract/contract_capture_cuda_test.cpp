// Contractions captured in a CUDA graph, by every strategy.
#include "src/cuda/capture_testing.h"
#include "src/ops/contract/gemm.h"
#include "tenor/contract.h"
#include "tenor/modes.h"
#include "tenor/view.h"

namespace tenor {
namespace {

class ContractCudaCapture : public testing::CudaCaptureTest {
 protected:
  Tensor argument(const Dims& shape, DType dtype) {
    return is_float(dtype) ? normal(shape, dtype) : integers(shape, 7, dtype);
  }

  /// Whether the strategy takes the product at all; found out without capturing.
  bool takes(const std::string& strategy, const Tensor& x, const Tensor& w) {
    const contract::StrategyGuard guard(strategy);
    try {
      matmul(x, w);
      return true;
    } catch (const UnsupportedError&) {
      return false;
    }
  }
};

TEST_F(ContractCudaCapture, ProductsByEveryStrategy) {
  // The first product by each library is captured, whatever ran before it.
  for (DType dtype : {bfloat16, float16, float32, float64, int32})
    for (int64_t rows : {1, 7, 200}) {
      const Tensor x = argument({rows, 320}, dtype), w = argument({136, 320}, dtype), y = result({rows, 136}, dtype);
      const std::string what = std::string(name(dtype)) + " " + std::to_string(rows);
      expect_replays("matmul " + what, {y}, [&] { matmul(x, transpose(w, 0, 1), {.out = y}); });
      for (const std::string& strategy : contract::gemm_strategies(DeviceType::kCuda)) {
        if (!takes(strategy, x, transpose(w, 0, 1))) continue;
        const contract::StrategyGuard guard(strategy);
        expect_replays("matmul " + strategy + " " + what, {y}, [&] { matmul(x, transpose(w, 0, 1), {.out = y}); });
      }
    }
}

/// One row against many long columns, and products of one wave of small blocks: kernels of their own.
TEST_F(ContractCudaCapture, LongColumnsAndSmallProducts) {
  for (DType dtype : {bfloat16, float16, float32}) {
    const std::string what(name(dtype));
    for (const int64_t k : {1032, 2056, 4104, 9000}) {
      const Tensor x = normal({1, k}, dtype), w = normal({2113, k}, dtype), y = result({1, 2113}, dtype);
      expect_replays("linear of a row " + what, {y}, [&] { linear(x, w, {}, {.out = y}); });
    }
    const Tensor x = normal({70, 200}, dtype), w = normal({130, 200}, dtype), bias = normal({130}, dtype),
                 y = result({70, 130}, dtype);
    expect_replays("small linear " + what, {y}, [&] { linear(x, w, bias, {.out = y}); });
  }
}

TEST_F(ContractCudaCapture, EveryOperator) {
  for (DType dtype : {bfloat16, float32, int64}) {
    const Tensor a = argument({3, 20, 40}, dtype), b = argument({3, 40, 24}, dtype), w = argument({24, 40}, dtype),
                 bias = argument({24}, dtype), u = argument({50}, dtype), v = argument({50}, dtype),
                 y = result({3, 20, 24}, dtype), one = result({}, dtype), square = result({50, 50}, dtype),
                 line = result({24}, dtype);
    const std::string what(name(dtype));
    expect_replays("bmm " + what, {y}, [&] { bmm(a, b, {.out = y}); });
    expect_replays("linear " + what, {y}, [&] { linear(a, w, bias, {.out = y}); });
    expect_replays("outer " + what, {square}, [&] { outer(u, v, {.out = square}); });
    expect_replays("dot " + what, {one}, [&] { dot(u, v, {.out = one}); });
    expect_replays("tensordot " + what, {y}, [&] { tensordot(a, w, Dims{2}, Dims{1}, {.out = y}); });
    const std::vector<Tensor> operands = {a, b, bias};
    expect_replays("einsum " + what, {line}, [&] { einsum("bij,bjk,k->k", operands, {.out = line}); });
  }
}

TEST_F(ContractCudaCapture, BatchInvariantProducts) {
  const BatchInvariantGuard guard(true);
  for (DType dtype : {bfloat16, float32}) {
    const Tensor x = normal({70, 320}, dtype), w = normal({136, 320}, dtype), y = result({70, 136}, dtype);
    expect_replays("matmul", {y}, [&] { matmul(x, transpose(w, 0, 1), {.out = y}); });
  }
}

}  // namespace
}  // namespace tenor
