// Comparisons and predicates.
#pragma once

#include "src/ops/elementwise/formulas/formula.cuh"

namespace tenor::elementwise {

/// a kOp b.
template <Op kOp, class T>
__device__ bool compares(T a, T b) {
  if constexpr (kOp == Op::kEq)
    return a == b;
  else if constexpr (kOp == Op::kNe)
    return a != b;
  else if constexpr (kOp == Op::kLt)
    return a < b;
  else if constexpr (kOp == Op::kLe)
    return a <= b;
  else if constexpr (kOp == Op::kGt)
    return a > b;
  else
    return a >= b;
}
template <Op kOp, class T>
requires(kOp == Op::kEq || kOp == Op::kNe || kOp == Op::kLt || kOp == Op::kLe || kOp == Op::kGt ||
         kOp == Op::kGe) struct Formula<kOp, T> {
  __device__ bool operator()(T a, T b) const { return compares<kOp>(a, b); }
};

template <class T>
struct Formula<Op::kIsnan, T> {
  __device__ bool operator()(T v) const {
    if constexpr (kIsFloat<T>) return v != v;
    return false;
  }
};
template <class T>
struct Formula<Op::kIsinf, T> {
  __device__ bool operator()(T v) const {
    if constexpr (kIsFloat<T>) return fabs(v) == static_cast<T>(INFINITY);
    return false;
  }
};
template <class T>
struct Formula<Op::kIsfinite, T> {
  __device__ bool operator()(T v) const {
    if constexpr (kIsFloat<T>) return fabs(v) < static_cast<T>(INFINITY);
    return true;
  }
};

/// |a - b| <= atol + rtol |b|, or equal, or (where asked for) both NaN.
template <class T>
struct Formula<Op::kIsclose, T> {
  double rtol, atol;
  bool nan;
  __device__ bool operator()(T a, T b) const {
    if constexpr (kIsFloat<T>) {
      const double gap = fabs(a - b);
      return a == b || (gap < INFINITY && gap <= atol + rtol * fabs(b)) || (nan && a != a && b != b);
    } else {
      const uint64_t gap = a > b ? static_cast<uint64_t>(a) - static_cast<uint64_t>(b)
                                 : static_cast<uint64_t>(b) - static_cast<uint64_t>(a);
      return a == b || static_cast<double>(gap) <= atol + rtol * fabs(static_cast<double>(b));
    }
  }
};

}  // namespace tenor::elementwise
