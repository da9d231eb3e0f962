#include "src/ops/elementwise/elementwise_kernels.cuh"
#include "src/ops/elementwise/formulas/activation.cuh"

namespace tenor::elementwise {
namespace {

template <class T>
bool floats(const CudaCall& c) {
  const T p = c.params ? static_cast<T>(c.params[0]) : T(0);
  switch (c.op) {
    case Op::kLeakyRelu:
      return one<Op::kLeakyRelu, T>(c, {p});
    case Op::kElu:
      return one<Op::kElu, T>(c, {p});
    case Op::kSilu:
      return one<Op::kSilu, T>(c);
    case Op::kGelu:
      return one<Op::kGelu, T>(c);
    case Op::kGeluTanh:
      return one<Op::kGeluTanh, T>(c);
    case Op::kSoftplus:
      return one<Op::kSoftplus, T>(c, {p});
    case Op::kMish:
      return one<Op::kMish, T>(c);
    case Op::kHardswish:
      return one<Op::kHardswish, T>(c);
    default:
      return false;
  }
}

}  // namespace

bool activation_cuda(const CudaCall& c) {
  return by_float(c.compute, [&]<class T>() { return floats<T>(c); });
}

}  // namespace tenor::elementwise
