#include "src/ops/elementwise/elementwise_kernels.cuh"
#include "src/ops/elementwise/formulas/division.cuh"

namespace tenor::elementwise {
namespace {

template <class T>
bool floats(const CudaCall& c) {
  switch (c.op) {
    case Op::kFmod:
      return two<Op::kFmod, T>(c);
    case Op::kRemainder:
      return two<Op::kRemainder, T>(c);
    case Op::kFloorDivide:
      return two<Op::kFloorDivide, T>(c);
    case Op::kPow:
      return two<Op::kPow, T>(c);
    case Op::kAtan2:
      return two<Op::kAtan2, T>(c);
    default:
      return false;
  }
}

}  // namespace

bool division_cuda(const CudaCall& c) {
  return by_float(c.compute, [&]<class T>() { return floats<T>(c); });
}

}  // namespace tenor::elementwise
