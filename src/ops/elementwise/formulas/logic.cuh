// Logic, bits and selection.
#pragma once

#include "src/ops/elementwise/formulas/formula.cuh"

namespace tenor::elementwise {

template <class T>
struct Formula<Op::kBitwiseAnd, T> {
  __device__ T operator()(T a, T b) const { return a & b; }
};
template <class T>
struct Formula<Op::kBitwiseOr, T> {
  __device__ T operator()(T a, T b) const { return a | b; }
};
template <class T>
struct Formula<Op::kBitwiseXor, T> {
  __device__ T operator()(T a, T b) const { return a ^ b; }
};
template <class T>
struct Formula<Op::kBitwiseNot, T> {
  __device__ T operator()(T v) const {
    if constexpr (kIsBool<T>)
      return !v;
    else
      return ~v;
  }
};
template <class T>
struct Formula<Op::kLogicalAnd, T> : Formula<Op::kBitwiseAnd, T> {};
template <class T>
struct Formula<Op::kLogicalOr, T> : Formula<Op::kBitwiseOr, T> {};
template <class T>
struct Formula<Op::kLogicalXor, T> : Formula<Op::kBitwiseXor, T> {};
template <class T>
struct Formula<Op::kLogicalNot, T> : Formula<Op::kBitwiseNot, T> {};

// A negative count is a large one: everything is shifted out, to the right the sign fills in. What a narrower store
// drops is what its own shift would have.
template <class T>
struct Formula<Op::kBitwiseLeftShift, T> {
  __device__ uint64_t operator()(T a, T b) const {
    return static_cast<uint64_t>(b) < 64 ? static_cast<uint64_t>(a) << static_cast<uint64_t>(b) : uint64_t{0};
  }
};
template <class T>
struct Formula<Op::kBitwiseRightShift, T> {
  __device__ T operator()(T a, T b) const {
    const uint64_t count = static_cast<uint64_t>(b);
    return count < 64 ? a >> count : is_negative(a) ? static_cast<T>(-1) : T(0);
  }
};

// By size: the values are moved, whatever they are. The condition comes as 0 or 1 of the same type.
template <class U>
struct Formula<Op::kWhere, U> {
  __device__ U operator()(U which, U a, U b) const { return which != 0 ? a : b; }
};
template <class U>
struct Formula<Op::kMaskedFill, U> : Formula<Op::kWhere, U> {};

}  // namespace tenor::elementwise
