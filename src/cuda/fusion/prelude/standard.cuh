// What the embedded headers need of the standard library, which the run-time compiler does not have: it stands in for
// every standard header.
#pragma once

using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long;
using size_t = decltype(sizeof(0));
using uintptr_t = unsigned long;

#define INT32_MAX 0x7fffffff
#define INT64_MAX 0x7fffffffffffffffL
#define INFINITY __int_as_float(0x7f800000)

namespace std {

using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::size_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;

template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;

template <bool kFirst, class A, class B>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool kFirst, class A, class B>
using conditional_t = typename conditional<kFirst, A, B>::type;

template <class T>
inline constexpr bool is_floating_point_v = is_same_v<T, float> || is_same_v<T, double>;
template <class T>
inline constexpr bool is_integral_v = false;
template <>
inline constexpr bool is_integral_v<bool> = true;
template <>
inline constexpr bool is_integral_v<int8_t> = true;
template <>
inline constexpr bool is_integral_v<int16_t> = true;
template <>
inline constexpr bool is_integral_v<int32_t> = true;
template <>
inline constexpr bool is_integral_v<int64_t> = true;
template <>
inline constexpr bool is_integral_v<long long> = true;
template <>
inline constexpr bool is_integral_v<uint8_t> = true;
template <>
inline constexpr bool is_integral_v<uint16_t> = true;
template <>
inline constexpr bool is_integral_v<uint32_t> = true;
template <>
inline constexpr bool is_integral_v<uint64_t> = true;
template <>
inline constexpr bool is_integral_v<unsigned long long> = true;
template <class T>
inline constexpr bool is_arithmetic_v = is_floating_point_v<T> || is_integral_v<T>;
template <class T, bool kArithmetic = is_arithmetic_v<T>>
inline constexpr bool is_signed_v = false;
template <class T>
inline constexpr bool is_signed_v<T, true> = T(-1) < T(0);

template <class To, class From>
__device__ constexpr To bit_cast(const From& from) {
  return __builtin_bit_cast(To, from);
}

template <class T>
struct numeric_limits {  // of integers
  static constexpr T kHighest =
      is_signed_v<T> ? T(~(uint64_t{1} << (8 * sizeof(T) - 1)) & (~uint64_t{0} >> (64 - 8 * sizeof(T)))) : T(~T(0));
  __device__ static constexpr T max() { return kHighest; }
  __device__ static constexpr T min() { return is_signed_v<T> ? T(-kHighest - 1) : T(0); }
  __device__ static constexpr T lowest() { return min(); }
};
template <>
struct numeric_limits<float> {
  __device__ static float infinity() { return __int_as_float(0x7f800000); }
  __device__ static float quiet_NaN() { return __int_as_float(0x7fffffff); }
};
template <>
struct numeric_limits<double> {
  __device__ static double infinity() { return __longlong_as_double(0x7ff0000000000000LL); }
  __device__ static double quiet_NaN() { return __longlong_as_double(0x7fffffffffffffffLL); }
};

template <class T>
__device__ inline bool isnan(T x) {
  return x != x;
}
__device__ inline float ldexp(float x, int by) { return ::ldexpf(x, by); }

class string_view;

}  // namespace std
