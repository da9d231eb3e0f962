#include "src/ops/elementwise/elementwise_kernels.cuh"

// Integers of every width are computed in 64 bits and wrap when stored: sums, products, shifts and negations modulo 2^64
// are right modulo every smaller power of two, and the other formulas see the values themselves.
namespace tenor::elementwise {
namespace {

template <class T>
__device__ T trunc_divide(T a, T b) {
  if (b == 0) return 0;
  if (b == static_cast<T>(-1) && std::is_signed_v<T>) return static_cast<T>(0 - static_cast<uint64_t>(a));  // the most negative value wraps
  return a / b;
}
/// The rest with the dividend's sign.
template <class T>
__device__ T rest_of(T a, T b) {
  if (b == 0 || (b == static_cast<T>(-1) && std::is_signed_v<T>)) return 0;
  return a % b;
}
/// The rest with the divisor's sign.
template <class T>
__device__ T floor_rest(T a, T b) {
  const T r = rest_of(a, b);
  return r != 0 && is_negative(r) != is_negative(b) ? r + b : r;
}
/// The quotient towards minus infinity, 0 where b is 0.
template <class T>
__device__ T floor_divide(T a, T b) {
  const T r = rest_of(a, b);
  return r != 0 && is_negative(r) != is_negative(b) ? a / b - 1 : trunc_divide(a, b);
}
/// a^b modulo 2^64; a negative exponent leaves 1 and -1, and 0 of everything else.
template <class T>
__device__ T power(T a, T b) {
  if (is_negative(b)) return a == 1 ? 1 : a == static_cast<T>(-1) ? (b % 2 ? -1 : 1) : 0;
  uint64_t result = 1, base = static_cast<uint64_t>(a);
  for (uint64_t rest = static_cast<uint64_t>(b); rest != 0; rest >>= 1, base *= base)
    if (rest & 1) result *= base;
  return static_cast<T>(result);
}

template <class T>
bool modular(const CudaCall& c) {
  switch (c.op) {
    case Op::kAdd: return two<T>(c, [] __device__(T a, T b) { return static_cast<uint64_t>(a) + static_cast<uint64_t>(b); });
    case Op::kSub: return two<T>(c, [] __device__(T a, T b) { return static_cast<uint64_t>(a) - static_cast<uint64_t>(b); });
    case Op::kMul: return two<T>(c, [] __device__(T a, T b) { return static_cast<uint64_t>(a) * static_cast<uint64_t>(b); });
    case Op::kNeg: return one<T>(c, [] __device__(T v) { return 0 - static_cast<uint64_t>(v); });
    case Op::kFloor:
    case Op::kCeil:
    case Op::kRound:
    case Op::kTrunc: return one<T>(c, [] __device__(T v) { return v; });
    default: return false;
  }
}
template <class T>
bool division(const CudaCall& c) {
  switch (c.op) {
    case Op::kFloorDivide: return two<T>(c, [] __device__(T a, T b) { return floor_divide(a, b); });
    case Op::kTruncDivide: return two<T>(c, [] __device__(T a, T b) { return trunc_divide(a, b); });
    case Op::kRemainder: return two<T>(c, [] __device__(T a, T b) { return floor_rest(a, b); });
    case Op::kFmod: return two<T>(c, [] __device__(T a, T b) { return rest_of(a, b); });
    case Op::kPow: return two<T>(c, [] __device__(T a, T b) { return power(a, b); });
    default: return false;
  }
}
template <class T>
bool ordered(const CudaCall& c) {
  switch (c.op) {
    case Op::kMaximum:
    case Op::kClampMin: return two<T>(c, [] __device__(T a, T b) { return a > b ? a : b; });
    case Op::kMinimum:
    case Op::kClampMax: return two<T>(c, [] __device__(T a, T b) { return a < b ? a : b; });
    case Op::kClamp: return three<T>(c, [] __device__(T v, T low, T high) {
      const T up = v > low ? v : low;
      return up < high ? up : high;
    });
    case Op::kAbs: return one<T>(c, [] __device__(T v) { return is_negative(v) ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v); });
    case Op::kSign: return one<T>(c, [] __device__(T v) { return (v > 0) - is_negative(v); });
    case Op::kRelu: return one<T>(c, [] __device__(T v) { return v > 0 ? v : T(0); });
    default: return false;
  }
}
/// Sums are "or", products "and"; differences and quotients have no meaning.
bool bools(const CudaCall& c) {
  switch (c.op) {
    case Op::kAdd:
    case Op::kMaximum:
    case Op::kClampMin: return two<bool>(c, [] __device__(bool a, bool b) { return a || b; });
    case Op::kMul:
    case Op::kMinimum:
    case Op::kClampMax: return two<bool>(c, [] __device__(bool a, bool b) { return a && b; });
    case Op::kClamp: return three<bool>(c, [] __device__(bool v, bool low, bool high) { return (v || low) && high; });
    case Op::kAbs:
    case Op::kSign:
    case Op::kRelu:
    case Op::kFloor:
    case Op::kCeil:
    case Op::kRound:
    case Op::kTrunc: return one<bool>(c, [] __device__(bool v) { return v; });
    default: return false;
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
