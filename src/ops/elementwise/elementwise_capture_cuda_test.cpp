// Every row of the elementwise table captured in a CUDA graph, the forms in place, conversion and assignment.
#include "src/cuda/capture_testing.h"
#include "src/ops/elementwise/elementwise_run.h"
#include "tenor/elementwise.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using elementwise::Call;
using elementwise::OpRow;
using elementwise::Rule;

class ElementwiseCudaCapture : public testing::CudaCaptureTest {
 protected:
  Tensor argument(const Dims& shape, DType dtype) {
    return is_float(dtype) ? normal(shape, dtype) : integers(shape, 7, dtype);
  }

  void expect_row_replays(const OpRow& r, DType dtype) {
    static const double params[3] = {0.25, 0.5, 1};
    std::vector<Tensor> inputs;
    for (int i = 0; i < r.arity; ++i)
      inputs.push_back(r.rule == Rule::kSelect && i == 0 ? mask({9, 70}) : argument({9, 70}, dtype));
    const Operand a(inputs[0]), b(inputs[inputs.size() > 1 ? 1 : 0]), c(inputs[inputs.size() > 2 ? 2 : 0]);
    Call call{.op = r.op, .operands = {&a, &b, &c}, .params = params};
    try {
      call.out = result({9, 70}, elementwise::run(call).dtype());
    } catch (const DTypeError&) {
      return;  // the operator does not take it
    }
    expect_replays(std::string(r.name) + " " + std::string(name(dtype)), {call.out}, [&] { elementwise::run(call); });
  }
};

TEST_F(ElementwiseCudaCapture, EveryRow) {
  for (const OpRow& r : elementwise::table())
    for (DType dtype : {float32, bfloat16, int32, boolean}) expect_row_replays(r, dtype);
}

TEST_F(ElementwiseCudaCapture, InPlaceConversionAndAssignment) {
  const Tensor x = normal({40, 70}), row = normal({70}), across = normal({70, 40}), half = result({40, 70}, bfloat16),
               where = mask({40, 70});
  expect_replays("add_", {x}, [&] { add_(x, row, 2); });
  expect_replays("gelu_", {x}, [&] { gelu_(x); });
  expect_replays("masked_fill_", {x}, [&] { masked_fill_(x, where, 3); });
  expect_replays("clamp_", {x}, [&] { clamp_(x, Operand(-0.5), Operand(row)); });
  expect_replays("to", {half}, [&] { to(x, bfloat16, {.out = half}); });
  expect_replays("copy_", {x}, [&] { copy_(x, transpose(across, 0, 1)); });
  expect_replays("add over a shifted input", {narrow(x, 0, 1, 39)},
                 [&] { add(narrow(x, 0, 0, 39), row, {.out = narrow(x, 0, 1, 39)}); });
}

}  // namespace
}  // namespace tenor
