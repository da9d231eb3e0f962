// Quotients, rests and powers.
#pragma once

#include "src/ops/elementwise/formulas/formula.cuh"

namespace tenor::elementwise {

/// The quotient of integers towards 0, 0 by zero; the most negative value by -1 wraps.
template <class T>
__device__ T trunc_divide(T a, T b) {
  if (b == 0) return 0;
  if (b == static_cast<T>(-1) && std::is_signed_v<T>) return static_cast<T>(0 - static_cast<uint64_t>(a));
  return a / b;
}
/// The rest of integers with the dividend's sign.
template <class T>
__device__ T rest_of(T a, T b) {
  if (b == 0 || (b == static_cast<T>(-1) && std::is_signed_v<T>)) return 0;
  return a % b;
}

template <class T>
struct Formula<Op::kDiv, T> {
  __device__ T operator()(T a, T b) const { return a / b; }
};
template <class T>
struct Formula<Op::kTruncDivide, T> {
  __device__ T operator()(T a, T b) const {
    if constexpr (kIsFloat<T>)
      return trunc(a / b);
    else
      return trunc_divide(a, b);
  }
};
template <class T>
struct Formula<Op::kFmod, T> {
  __device__ T operator()(T a, T b) const {
    if constexpr (kIsFloat<T>)
      return fmod(a, b);
    else
      return rest_of(a, b);
  }
};

/// The rest with the divisor's sign, as Python's %; a zero rest of floats too has the divisor's sign.
template <class T>
struct Formula<Op::kRemainder, T> {
  __device__ T operator()(T a, T b) const {
    if constexpr (kIsFloat<T>) {
      const T r = fmod(a, b);
      if (r == 0) return copysign(T(0), b);
      return (r < 0) != (b < 0) ? r + b : r;
    } else {
      const T r = rest_of(a, b);
      return r != 0 && is_negative(r) != is_negative(b) ? r + b : r;
    }
  }
};

/// Python's //: of integers the quotient towards minus infinity, 0 where b is 0; of floats from the rest, so that
/// 1 // 0.1 is 9, and by zero a / b. In double, where the quotient of floats is exact enough.
template <class T>
struct Formula<Op::kFloorDivide, T> {
  __device__ T operator()(T a, T b) const {
    if constexpr (kIsFloat<T>) {
      return static_cast<T>(of_doubles(a, b));
    } else {
      const T r = rest_of(a, b);
      return r != 0 && is_negative(r) != is_negative(b) ? a / b - 1 : trunc_divide(a, b);
    }
  }
  __device__ static double of_doubles(double a, double b) {
    if (b == 0) return a / b;
    const double r = fmod(a, b);
    double q = (a - r) / b;
    if (r != 0 && (r < 0) != (b < 0)) q -= 1;
    if (q == 0) return copysign(0.0, a / b);
    const double floor = ::floor(q);
    return q - floor > 0.5 ? floor + 1 : floor;
  }
};

/// Of integers a^b modulo 2^64; a negative exponent leaves 1 and -1, and 0 of everything else.
template <class T>
struct Formula<Op::kPow, T> {
  __device__ T operator()(T a, T b) const {
    if constexpr (kIsFloat<T>) {
      return pow(a, b);
    } else {
      if (is_negative(b)) return a == 1 ? 1 : a == static_cast<T>(-1) ? (b % 2 ? -1 : 1) : 0;
      uint64_t result = 1, base = static_cast<uint64_t>(a);
      for (uint64_t rest = static_cast<uint64_t>(b); rest != 0; rest >>= 1, base *= base)
        if (rest & 1) result *= base;
      return static_cast<T>(result);
    }
  }
};
template <class T>
struct Formula<Op::kAtan2, T> {
  __device__ T operator()(T a, T b) const { return atan2(a, b); }
};

}  // namespace tenor::elementwise
