// The formulas of the elementwise operators on CUDA, one a row of the table: what the eager kernels and the fused ones,
// which are compiled at run time, both compute. Formula<kOp, T> takes values of the compute type T (float, double,
// int64_t, uint64_t, bool; where() also bits of any size) and gives a value that is then cast to the kernel's result
// type. `brief(v)`, where there is one, is what results of 16 bits are computed by; it errs by less than 2^-14 of them.
// Integers of every width are computed in 64 bits and wrap when stored: sums, products, shifts and negations modulo
// 2^64 are right modulo every smaller power of two, and the other formulas see the values themselves.
//
// The run-time compiler sees these files too: they include nothing but one another and src/cuda/gelu.cuh.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "src/ops/elementwise/elementwise_op.h"

namespace tenor::elementwise {

template <Op kOp, class T>
struct Formula;

template <class T>
inline constexpr bool kIsFloat = std::is_same_v<T, float> || std::is_same_v<T, double>;
template <class T>
inline constexpr bool kIsBool = std::is_same_v<T, bool>;

/// Below zero; an unsigned value never is.
template <class T>
__device__ constexpr bool is_negative(T v) {
  if constexpr (std::is_signed_v<T>) return v < 0;
  return false;
}

}  // namespace tenor::elementwise
