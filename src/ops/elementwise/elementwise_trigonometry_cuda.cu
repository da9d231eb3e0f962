#include "src/ops/elementwise/elementwise_kernels.cuh"

namespace tenor::elementwise {
namespace {

template <class T>
bool floats(const CudaCall& c) {
  switch (c.op) {
    case Op::kSin: return one<T>(c, [] __device__(T v) { return sin(v); });
    case Op::kCos: return one<T>(c, [] __device__(T v) { return cos(v); });
    case Op::kTan: return one<T>(c, [] __device__(T v) { return tan(v); });
    case Op::kAsin: return one<T>(c, [] __device__(T v) { return asin(v); });
    case Op::kAcos: return one<T>(c, [] __device__(T v) { return acos(v); });
    case Op::kAtan: return one<T>(c, [] __device__(T v) { return atan(v); });
    case Op::kSinh: return one<T>(c, [] __device__(T v) { return sinh(v); });
    case Op::kCosh: return one<T>(c, [] __device__(T v) { return cosh(v); });
    case Op::kAsinh: return one<T>(c, [] __device__(T v) { return asinh(v); });
    case Op::kAcosh: return one<T>(c, [] __device__(T v) { return acosh(v); });
    case Op::kAtanh: return one<T>(c, [] __device__(T v) { return atanh(v); });
    default: return false;
  }
}

}  // namespace

bool trigonometry_cuda(const CudaCall& c) {
  return by_float(c.compute, [&]<class T>() { return floats<T>(c); });
}

}  // namespace tenor::elementwise
