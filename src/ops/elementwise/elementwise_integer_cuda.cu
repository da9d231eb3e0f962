#include "src/ops/elementwise/elementwise_kernels.cuh"
#include "src/ops/elementwise/formulas/arithmetic.cuh"
#include "src/ops/elementwise/formulas/division.cuh"

namespace tenor::elementwise {
namespace {

template <class T>
bool modular(const CudaCall& c) {
  switch (c.op) {
    case Op::kAdd:
      return two<Op::kAdd, T>(c);
    case Op::kSub:
      return two<Op::kSub, T>(c);
    case Op::kMul:
      return two<Op::kMul, T>(c);
    case Op::kNeg:
      return one<Op::kNeg, T>(c);
    case Op::kFloor:
    case Op::kCeil:
    case Op::kRound:
    case Op::kTrunc:
      return one<Op::kTrunc, T>(c);  // whole already
    default:
      return false;
  }
}
template <class T>
bool division(const CudaCall& c) {
  switch (c.op) {
    case Op::kFloorDivide:
      return two<Op::kFloorDivide, T>(c);
    case Op::kTruncDivide:
      return two<Op::kTruncDivide, T>(c);
    case Op::kRemainder:
      return two<Op::kRemainder, T>(c);
    case Op::kFmod:
      return two<Op::kFmod, T>(c);
    case Op::kPow:
      return two<Op::kPow, T>(c);
    default:
      return false;
  }
}
template <class T>
bool ordered(const CudaCall& c) {
  switch (c.op) {
    case Op::kMaximum:
    case Op::kClampMin:
      return two<Op::kMaximum, T>(c);
    case Op::kMinimum:
    case Op::kClampMax:
      return two<Op::kMinimum, T>(c);
    case Op::kClamp:
      return three<Op::kClamp, T>(c);
    case Op::kAbs:
      return one<Op::kAbs, T>(c);
    case Op::kSign:
      return one<Op::kSign, T>(c);
    case Op::kRelu:
      return one<Op::kRelu, T>(c);
    default:
      return false;
  }
}
/// Sums are "or", products "and"; differences and quotients have no meaning.
bool bools(const CudaCall& c) {
  switch (c.op) {
    case Op::kAdd:
    case Op::kMaximum:
    case Op::kClampMin:
      return two<Op::kAdd, bool>(c);
    case Op::kMul:
    case Op::kMinimum:
    case Op::kClampMax:
      return two<Op::kMul, bool>(c);
    case Op::kClamp:
      return three<Op::kClamp, bool>(c);
    case Op::kAbs:
    case Op::kSign:
    case Op::kRelu:
    case Op::kFloor:
    case Op::kCeil:
    case Op::kRound:
    case Op::kTrunc:
      return one<Op::kTrunc, bool>(c);
    default:
      return false;
  }
}

template <class T>
bool integers(const CudaCall& c) {
  return modular<T>(c) || division<T>(c) || ordered<T>(c);
}

}  // namespace

bool integer_cuda(const CudaCall& c) {
  if (c.compute == boolean) return bools(c);
  if (c.compute == uint64) return integers<uint64_t>(c);
  return c.compute == int64 && integers<int64_t>(c);
}

}  // namespace tenor::elementwise
