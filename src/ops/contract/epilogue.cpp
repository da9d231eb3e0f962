#include "src/ops/contract/epilogue.h"

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/ops/contract/gemm_kernels.h"

namespace tenor::contract {

bool is_epilogue_op(elementwise::Op op, bool alone) {
  using elementwise::Op;
  switch (op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kDiv:
    case Op::kMaximum:
    case Op::kMinimum:
      return !alone;
    case Op::kNeg:
    case Op::kRelu:
    case Op::kSigmoid:
    case Op::kTanh:
    case Op::kSilu:
    case Op::kGelu:
    case Op::kGeluTanh:
      return alone;
    default:
      return false;
  }
}

int64_t& least_epilogue_tiles() {
  static int64_t least = 64;
  return least;
}

std::string epilogue_why_not(const GemmProblem& problem, const Epilogue& epilogue) {
  if (problem.compute != DType::kFloat32) return "its sums are not float32";
  if (problem.k == 0 || problem.m == 0 || problem.n == 0 || product(problem.batch) == 0) return "it has an empty dim";
  if (!reads_as_float(problem.c.dtype)) return "its result is not float32, bfloat16 or float16";
  for (const Matrix& x : problem.operands)
    if (!reads_as_float(x.dtype)) return "an operand of what follows is not float32, bfloat16 or float16";
  for (const EpilogueStep& step : epilogue.steps)
    if (!is_epilogue_op(step.op, step.alone)) return "what follows is no epilogue step";
  if (core::runs_on(problem.device) == DeviceType::kCpu) return {};
  return cuda_epilogue_why_not(normalized(problem), epilogue);
}

std::string explain_epilogue(const GemmProblem& problem, const Epilogue&) {
  if (core::runs_on(problem.device) == DeviceType::kCpu)
    return "epilogue on blocks in the cache\nproduct: " + explain_gemm(problem);
  return "tiles with an epilogue";
}

void run_with_epilogue(const GemmProblem& problem, const Epilogue& epilogue) {
  if (const std::string why = epilogue_why_not(problem, epilogue); !why.empty())
    core::fail<UnsupportedError>("matmul: no epilogue: {}", why);
  const GemmProblem p = normalized(problem);
  if constexpr (core::kHasCuda) {
    if (p.device.type == DeviceType::kCuda) return run_with_epilogue_cuda(p, epilogue);
  }
  run_with_epilogue_cpu(p, epilogue);
}

}  // namespace tenor::contract
