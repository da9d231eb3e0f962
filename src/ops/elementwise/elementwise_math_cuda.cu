#include "src/ops/elementwise/elementwise_kernels.cuh"
#include "src/ops/elementwise/formulas/activation.cuh"
#include "src/ops/elementwise/formulas/math.cuh"

namespace tenor::elementwise {
namespace {

template <class T>
bool floats(const CudaCall& c) {
  switch (c.op) {
    case Op::kExp:
      return one<Op::kExp, T>(c);
    case Op::kExp2:
      return one<Op::kExp2, T>(c);
    case Op::kExpm1:
      return one<Op::kExpm1, T>(c);
    case Op::kLog:
      return one<Op::kLog, T>(c);
    case Op::kLog2:
      return one<Op::kLog2, T>(c);
    case Op::kLog10:
      return one<Op::kLog10, T>(c);
    case Op::kLog1p:
      return one<Op::kLog1p, T>(c);
    case Op::kSqrt:
      return one<Op::kSqrt, T>(c);
    case Op::kRsqrt:
      return one<Op::kRsqrt, T>(c);
    case Op::kReciprocal:
      return one<Op::kReciprocal, T>(c);
    case Op::kErf:
      return one<Op::kErf, T>(c);
    case Op::kTanh:
      return one<Op::kTanh, T>(c);
    case Op::kSigmoid:
      return one<Op::kSigmoid, T>(c);
    default:
      return false;
  }
}

}  // namespace

bool math_cuda(const CudaCall& c) {
  return by_float(c.compute, [&]<class T>() { return floats<T>(c); });
}

}  // namespace tenor::elementwise
