// The "tiles" candidate on CUDA: 16-bit products by the Hopper GEMM of src/cuda/gemm. Operands that it cannot read
// where they lie are copied, so that it takes every shape and stride: under batch_invariant() it alone serves these
// dtypes, and a row has the same bits alone and in any batch.
#include "src/core/output.h"
#include "src/cuda/gemm/sm90_gemm.h"
#include "src/cuda/gemm/small_gemm.h"
#include "src/cuda/runtime.h"
#include "src/ops/contract/epilogue.h"
#include "src/ops/contract/gemm_cuda_candidates.h"
#include "src/ops/contract/gemm_kernels.h"

namespace tenor::contract {
namespace {

cuda::gemm::GemmProblem sm90_problem(const GemmProblem& p, bool b_outer) {
  cuda::gemm::GemmProblem out{p.a.data,
                              p.b.data,
                              p.c.data,
                              static_cast<int>(p.m),
                              static_cast<int>(p.n),
                              static_cast<int>(p.k),
                              p.a.row,
                              b_outer ? p.b.row : p.b.col,
                              p.c.row,
                              p.a.dtype == DType::kBFloat16};
  out.b_outer = b_outer, out.float_result = p.c.dtype == DType::kFloat32, out.column_c = p.c.col;
  for (size_t d = 0; d < p.batch.size(); ++d) {
    out.batch[d] = static_cast<int>(p.batch[d]);
    out.batch_a[d] = p.a.batch[d], out.batch_b[d] = p.b.batch[d], out.batch_c[d] = p.c.batch[d];
  }
  out.bias = p.bias, out.bias_float = p.bias_dtype == DType::kFloat32, out.bias_row = p.bias_row,
  out.bias_column = p.bias_col;
  return out;
}

cuda::gemm::ChainStep chain_step(const EpilogueStep& step, int first) {
  using cuda::gemm::ChainOp;
  using elementwise::Op;
  const int other = first + step.operand;
  const bool number = step.operand < 0;
  switch (step.op) {
    case Op::kMul:
      return {number ? ChainOp::kScale : ChainOp::kMul, other, step.scalar};
    case Op::kDiv:
      return {ChainOp::kScale, 0, 1 / step.scalar};
    case Op::kAdd:
      return {number ? ChainOp::kShift : ChainOp::kAdd, other, number ? step.scalar : 1};
    case Op::kNeg:
      return {ChainOp::kScale, 0, -1};
    case Op::kRelu:
      return {ChainOp::kRelu, 0, 0};
    case Op::kSigmoid:
      return {ChainOp::kSigmoid, 0, 0};
    case Op::kTanh:
      return {ChainOp::kTanh, 0, 0};
    case Op::kSilu:
      return {ChainOp::kSilu, 0, 0};
    case Op::kGelu:
      return {ChainOp::kGelu, 0, 0};
    default:
      return {ChainOp::kGeluTanh, 0, 0};
  }
}

/// other - y is -y + other.
void push_difference(cuda::gemm::Chain& chain, const EpilogueStep& step, int first) {
  using cuda::gemm::ChainOp;
  const bool number = step.operand < 0;
  if (step.reversed) chain.step[chain.steps++] = {ChainOp::kScale, 0, -1};
  if (number)
    chain.step[chain.steps++] = {ChainOp::kShift, 0, step.reversed ? step.scalar : -step.scalar};
  else
    chain.step[chain.steps++] = {ChainOp::kAdd, first + step.operand, step.reversed ? 1.0f : -1.0f};
}

/// The epilogue, the bias its first step.
cuda::gemm::Chain chain_of(const GemmProblem& p, const Epilogue& epilogue) {
  using cuda::gemm::ChainOp;
  static_assert(cuda::gemm::Chain::kSteps >= 2 * kEpilogueSteps + 1 &&
                cuda::gemm::Chain::kOperands > kEpilogueOperands);
  cuda::gemm::Chain chain{};
  int operands = 0;
  if (p.bias) {
    chain.step[chain.steps++] = {ChainOp::kAdd, operands, 1};
    chain.operand[operands++] = {p.bias, p.bias_dtype == DType::kFloat32, p.bias_row, p.bias_col, {0, 0}};
  }
  const int first = operands;
  for (const Matrix& x : p.operands) {
    chain.operand[operands] = {x.data, x.dtype == DType::kFloat32, x.row, x.col, {0, 0}};
    for (size_t d = 0; d < x.batch.size(); ++d) chain.operand[operands].batch[d] = x.batch[d];
    ++operands;
  }
  for (const EpilogueStep& step : epilogue.steps) {
    if (step.op == elementwise::Op::kSub)
      push_difference(chain, step, first);
    else
      chain.step[chain.steps++] = chain_step(step, first);
  }
  return chain;
}

void run_tiles(const GemmProblem& problem, const Epilogue* epilogue) {
  const cuda::DeviceGuard guard(problem.device);
  TilesProblem t = tiles_problem(problem);
  GemmProblem& p = t.problem;
  const Tensor a = t.copy_a ? align_rows(p.a, p.batch, p.m, p.k, p.device) : Tensor();
  Matrix columns = turned(p.b);
  const Tensor b = t.copy_b ? align_rows(columns, p.batch, p.n, p.k, p.device) : Tensor();
  p.b = turned(columns);
  for_each_part(p, 2, [&](const GemmProblem& part) {
    cuda::gemm::GemmProblem sm90 = sm90_problem(part, t.b_outer);
    if (!epilogue && cuda::gemm::small_gemm_suits(sm90))
      return cuda::check(cuda::gemm::small_gemm(sm90, current_stream(p.device).handle), "matmul");
    const cuda::gemm::GemmPlan plan =
        epilogue ? cuda::gemm::sm90_gemm_epilogue_choice(sm90) : cuda::gemm::sm90_gemm_choice(sm90);
    const int64_t bytes = static_cast<int64_t>(cuda::gemm::sm90_gemm_workspace(sm90, plan));
    const Tensor workspace = bytes ? Tensor::empty({bytes}, uint8, p.device) : Tensor();
    sm90.workspace = bytes ? workspace.raw() : nullptr;
    const cudaStream_t stream = current_stream(p.device).handle;
    if (!epilogue) return cuda::check(cuda::gemm::sm90_gemm(sm90, plan, stream), "matmul");
    sm90.bias = nullptr;
    cuda::check(cuda::gemm::sm90_gemm(sm90, chain_of(part, *epilogue), plan, stream), "matmul");
  });
}

}  // namespace

void cuda_tiles_run(const GemmProblem& problem) { run_tiles(problem, nullptr); }

void run_with_epilogue_cuda(const GemmProblem& problem, const Epilogue& epilogue) { run_tiles(problem, &epilogue); }

}  // namespace tenor::contract
