#include "src/cuda/pointwise_turned.cuh"
#include "src/ops/elementwise/elementwise_kernels.cuh"
#include "src/ops/elementwise/formulas/arithmetic.cuh"
#include "src/ops/elementwise/formulas/division.cuh"

namespace tenor::elementwise {
namespace {

/// One of the operands may lie across the result.
template <Op kOp, class T>
bool two_turned(const CudaCall& c) {
  const Formula<kOp, T> f;
  if constexpr (std::is_same_v<T, float>)
    if (cuda::run_turned<float, T, T>(c.call, f) || cuda::run_turned<BFloat16, T, T>(c.call, f) ||
        cuda::run_turned<Float16, T, T>(c.call, f))
      return true;
  return two<kOp, T>(c, f);
}

template <class T>
bool two_operands(const CudaCall& c) {
  switch (c.op) {
    case Op::kAdd:
      return two_turned<Op::kAdd, T>(c);
    case Op::kSub:
      return two_turned<Op::kSub, T>(c);
    case Op::kMul:
      return two_turned<Op::kMul, T>(c);
    case Op::kDiv:
      return two_turned<Op::kDiv, T>(c);
    case Op::kTruncDivide:
      return two<Op::kTruncDivide, T>(c);
    case Op::kMaximum:
    case Op::kClampMin:
      return two<Op::kMaximum, T>(c);
    case Op::kMinimum:
    case Op::kClampMax:
      return two<Op::kMinimum, T>(c);
    default:
      return false;
  }
}

template <class T>
bool other_arity(const CudaCall& c) {
  switch (c.op) {
    case Op::kClamp:
      return three<Op::kClamp, T>(c);
    case Op::kLerp:
      return three<Op::kLerp, T>(c);
    case Op::kNeg:
      return one<Op::kNeg, T>(c);
    case Op::kAbs:
      return one<Op::kAbs, T>(c);
    case Op::kSign:
      return one<Op::kSign, T>(c);
    case Op::kRelu:
      return one<Op::kRelu, T>(c);
    case Op::kFloor:
      return one<Op::kFloor, T>(c);
    case Op::kCeil:
      return one<Op::kCeil, T>(c);
    case Op::kRound:
      return one<Op::kRound, T>(c);
    case Op::kTrunc:
      return one<Op::kTrunc, T>(c);
    default:
      return false;
  }
}

template <class T>
bool floats(const CudaCall& c) {
  return two_operands<T>(c) || other_arity<T>(c);
}

}  // namespace

bool takes_turned(Op op) { return op == Op::kAdd || op == Op::kSub || op == Op::kMul || op == Op::kDiv; }

bool arithmetic_cuda(const CudaCall& c) {
  return by_float(c.compute, [&]<class T>() { return floats<T>(c); });
}

}  // namespace tenor::elementwise
