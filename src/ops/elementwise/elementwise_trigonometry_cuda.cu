#include "src/ops/elementwise/elementwise_kernels.cuh"
#include "src/ops/elementwise/formulas/math.cuh"

namespace tenor::elementwise {
namespace {

template <class T>
bool floats(const CudaCall& c) {
  switch (c.op) {
    case Op::kSin:
      return one<Op::kSin, T>(c);
    case Op::kCos:
      return one<Op::kCos, T>(c);
    case Op::kTan:
      return one<Op::kTan, T>(c);
    case Op::kAsin:
      return one<Op::kAsin, T>(c);
    case Op::kAcos:
      return one<Op::kAcos, T>(c);
    case Op::kAtan:
      return one<Op::kAtan, T>(c);
    case Op::kSinh:
      return one<Op::kSinh, T>(c);
    case Op::kCosh:
      return one<Op::kCosh, T>(c);
    case Op::kAsinh:
      return one<Op::kAsinh, T>(c);
    case Op::kAcosh:
      return one<Op::kAcosh, T>(c);
    case Op::kAtanh:
      return one<Op::kAtanh, T>(c);
    default:
      return false;
  }
}

}  // namespace

bool trigonometry_cuda(const CudaCall& c) {
  return by_float(c.compute, [&]<class T>() { return floats<T>(c); });
}

}  // namespace tenor::elementwise
