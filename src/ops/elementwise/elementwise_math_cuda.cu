#include "src/ops/elementwise/elementwise_kernels.cuh"

namespace tenor::elementwise {
namespace {

template <class T>
bool floats(const CudaCall& c) {
  switch (c.op) {
    case Op::kExp: return one<T>(c, [] __device__(T v) { return exp(v); });
    case Op::kExp2: return one<T>(c, [] __device__(T v) { return exp2(v); });
    case Op::kExpm1: return one<T>(c, [] __device__(T v) { return expm1(v); });
    case Op::kLog: return one<T>(c, [] __device__(T v) { return log(v); });
    case Op::kLog2: return one<T>(c, [] __device__(T v) { return log2(v); });
    case Op::kLog10: return one<T>(c, [] __device__(T v) { return log10(v); });
    case Op::kLog1p: return one<T>(c, [] __device__(T v) { return log1p(v); });
    case Op::kSqrt: return one<T>(c, [] __device__(T v) { return sqrt(v); });
    case Op::kRsqrt: return one<T>(c, [] __device__(T v) { return T(1) / sqrt(v); });
    case Op::kReciprocal: return one<T>(c, [] __device__(T v) { return T(1) / v; });
    case Op::kErf: return one<T>(c, [] __device__(T v) { return erf(v); });
    case Op::kTanh: return one<T>(c, [] __device__(T v) { return tanh(v); });
    case Op::kSigmoid: return one<T>(c, [] __device__(T v) { return T(1) / (T(1) + exp(-v)); });
    default: return false;
  }
}

}  // namespace

bool math_cuda(const CudaCall& c) {
  return by_float(c.compute, [&]<class T>() { return floats<T>(c); });
}

}  // namespace tenor::elementwise
