#include "src/ops/elementwise/elementwise_kernels.cuh"

namespace tenor::elementwise {
namespace {

/// C's fmod with the divisor's sign, as Python's %; a zero rest too has the divisor's sign.
template <class T>
__device__ T remainder_of(T a, T b) {
  const T r = fmod(a, b);
  if (r == 0) return copysign(T(0), b);
  return (r < 0) != (b < 0) ? r + b : r;
}
/// Python's //: from the rest, so that 1 // 0.1 is 9; by zero a / b. In double, where the quotient of floats is exact enough.
__device__ double floor_divide_of(double a, double b) {
  if (b == 0) return a / b;
  const double r = fmod(a, b);
  double q = (a - r) / b;
  if (r != 0 && (r < 0) != (b < 0)) q -= 1;
  if (q == 0) return copysign(0.0, a / b);
  const double floor = ::floor(q);
  return q - floor > 0.5 ? floor + 1 : floor;
}

template <class T>
bool floats(const CudaCall& c) {
  switch (c.op) {
    case Op::kFmod: return two<T>(c, [] __device__(T a, T b) { return fmod(a, b); });
    case Op::kRemainder: return two<T>(c, [] __device__(T a, T b) { return remainder_of(a, b); });
    case Op::kFloorDivide: return two<T>(c, [] __device__(T a, T b) { return static_cast<T>(floor_divide_of(a, b)); });
    case Op::kPow: return two<T>(c, [] __device__(T a, T b) { return pow(a, b); });
    case Op::kAtan2: return two<T>(c, [] __device__(T a, T b) { return atan2(a, b); });
    default: return false;
  }
}

}  // namespace

bool division_cuda(const CudaCall& c) {
  return by_float(c.compute, [&]<class T>() { return floats<T>(c); });
}

}  // namespace tenor::elementwise
