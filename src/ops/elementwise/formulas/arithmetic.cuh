// Sums, products, extremes, roundings. Of bool sums are "or", products "and"; differences have no meaning.
#pragma once

#include "src/ops/elementwise/formulas/formula.cuh"

namespace tenor::elementwise {

template <class T>
struct Formula<Op::kAdd, T> {
  __device__ auto operator()(T a, T b) const {
    if constexpr (kIsFloat<T>)
      return a + b;
    else if constexpr (kIsBool<T>)
      return a || b;
    else
      return static_cast<uint64_t>(a) + static_cast<uint64_t>(b);
  }
};
template <class T>
struct Formula<Op::kSub, T> {
  __device__ auto operator()(T a, T b) const {
    if constexpr (kIsFloat<T>)
      return a - b;
    else
      return static_cast<uint64_t>(a) - static_cast<uint64_t>(b);
  }
};
template <class T>
struct Formula<Op::kMul, T> {
  __device__ auto operator()(T a, T b) const {
    if constexpr (kIsFloat<T>)
      return a * b;
    else if constexpr (kIsBool<T>)
      return a && b;
    else
      return static_cast<uint64_t>(a) * static_cast<uint64_t>(b);
  }
};
template <class T>
struct Formula<Op::kNeg, T> {
  __device__ auto operator()(T v) const {
    if constexpr (kIsFloat<T>)
      return -v;
    else
      return 0 - static_cast<uint64_t>(v);
  }
};

// NaN propagates: a NaN in a is returned as a, one in b makes the comparison false.
template <class T>
struct Formula<Op::kMaximum, T> {
  __device__ T operator()(T a, T b) const {
    if constexpr (kIsFloat<T>)
      return a != a || a > b ? a : b;
    else if constexpr (kIsBool<T>)
      return a || b;
    else
      return a > b ? a : b;
  }
};
template <class T>
struct Formula<Op::kMinimum, T> {
  __device__ T operator()(T a, T b) const {
    if constexpr (kIsFloat<T>)
      return a != a || a < b ? a : b;
    else if constexpr (kIsBool<T>)
      return a && b;
    else
      return a < b ? a : b;
  }
};
template <class T>
struct Formula<Op::kClampMin, T> : Formula<Op::kMaximum, T> {};
template <class T>
struct Formula<Op::kClampMax, T> : Formula<Op::kMinimum, T> {};
template <class T>
struct Formula<Op::kClamp, T> {
  __device__ T operator()(T v, T low, T high) const {
    return Formula<Op::kMinimum, T>()(Formula<Op::kMaximum, T>()(v, low), high);
  }
};

/// The end nearer to weight 1 is reached from b, so that weight 1 gives b exactly.
template <class T>
struct Formula<Op::kLerp, T> {
  __device__ T operator()(T a, T b, T w) const { return fabs(w) < T(0.5) ? a + w * (b - a) : b - (b - a) * (T(1) - w); }
};

template <class T>
struct Formula<Op::kAbs, T> {
  __device__ auto operator()(T v) const {
    if constexpr (kIsFloat<T>)
      return fabs(v);
    else if constexpr (kIsBool<T>)
      return v;
    else
      return is_negative(v) ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
  }
};
template <class T>
struct Formula<Op::kSign, T> {
  __device__ auto operator()(T v) const {
    if constexpr (kIsFloat<T>)
      return v > 0 ? T(1) : v < 0 ? T(-1) : v;
    else if constexpr (kIsBool<T>)
      return v;
    else
      return (v > 0) - is_negative(v);
  }
};
template <class T>
struct Formula<Op::kRelu, T> {
  __device__ T operator()(T v) const {
    if constexpr (kIsFloat<T>)
      return v <= 0 ? T(0) : v;
    else if constexpr (kIsBool<T>)
      return v;
    else
      return v > 0 ? v : T(0);
  }
};

// Integers and bool are whole already.
template <class T>
struct Formula<Op::kFloor, T> {
  __device__ T operator()(T v) const {
    if constexpr (kIsFloat<T>) return floor(v);
    return v;
  }
};
template <class T>
struct Formula<Op::kCeil, T> {
  __device__ T operator()(T v) const {
    if constexpr (kIsFloat<T>) return ceil(v);
    return v;
  }
};
template <class T>
struct Formula<Op::kRound, T> {
  __device__ T operator()(T v) const {
    if constexpr (kIsFloat<T>) return rint(v);
    return v;
  }
};
template <class T>
struct Formula<Op::kTrunc, T> {
  __device__ T operator()(T v) const {
    if constexpr (kIsFloat<T>) return trunc(v);
    return v;
  }
};

}  // namespace tenor::elementwise
