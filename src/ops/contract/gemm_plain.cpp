// The reference candidate: any types, any strides, one multiply-add at a time over k in order.
#include <algorithm>
#include <cmath>

#include "src/core/numeric.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/contract/gemm_kernels.h"

namespace tenor::contract {
namespace {

/// acc + a * b: fused for floats, wrapping for integers, "or" of "and" for bool.
template <class T>
T multiply_add(T a, T b, T acc) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fma(a, b, acc);
  } else if constexpr (std::is_same_v<T, bool>) {
    return acc || (a && b);
  } else {
    using Wide = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;  // unsigned wraps, and nothing promotes to int
    return static_cast<T>(static_cast<Wide>(acc) + static_cast<Wide>(a) * static_cast<Wide>(b));
  }
}

template <class F>
void visit_compute(DType compute, F&& fn) {
  if (compute == DType::kFloat32) return fn.template operator()<float>();
  if (compute == DType::kFloat64) return fn.template operator()<double>();
  if (compute == DType::kBool) return fn.template operator()<bool>();
  core::visit_integer(compute, fn);
}

/// Element i of an array of any dtype. Not inlined: the reference reads every dtype as every compute type, and the
/// switch inside its loops would be compiled thousands of times over.
template <class T>
[[gnu::noinline]] T element(DType dtype, const char* data, int64_t i) {
  return core::visit(dtype, [&]<class S>() { return core::cast<T>(reinterpret_cast<const S*>(data)[i]); });
}
template <class T>
[[gnu::noinline]] void set_element(DType dtype, char* data, int64_t i, T value) {
  core::visit(dtype, [&]<class S>() { reinterpret_cast<S*>(data)[i] = core::cast<S>(value); });
}

/// Rows [first, last) of all matrices of the batch, counted through.
template <class F>
void for_each_row(const GemmProblem& p, int64_t first, int64_t last, F&& fn) {
  for (int64_t at = first; at < last;) {
    const int64_t matrix = at / p.m, end = std::min(last, (matrix + 1) * p.m);
    for_each_matrix(p, matrix, matrix + 1, [&](const char* a, const char* b, char* c) {
      for (; at < end; ++at) fn(a, b, c, at % p.m);
    });
  }
}

int64_t row_grain(const GemmProblem& p) { return cpu::grain_of(std::max<int64_t>(p.n, 1) * std::max<int64_t>(p.k, 1)); }

}  // namespace

void reference_run(const GemmProblem& p) {
  visit_compute(p.compute, [&]<class T>() {
    const T* bias = static_cast<const T*>(p.bias);
    cpu::parallel_for(product(p.batch) * p.m, row_grain(p), [&](int64_t first, int64_t last) {
      for_each_row(p, first, last, [&](const char* a, const char* b, char* c, int64_t i) {
        for (int64_t j = 0; j < p.n; ++j) {
          T acc(0);
          for (int64_t k = 0; k < p.k; ++k)
            acc = multiply_add(element<T>(p.a.dtype, a, i * p.a.row + k * p.a.col),
                               element<T>(p.b.dtype, b, k * p.b.row + j * p.b.col), acc);
          if (bias) acc = multiply_add(T(1), bias[i * p.bias_row + j * p.bias_col], acc);
          set_element(p.c.dtype, c, i * p.c.row + j * p.c.col, acc);
        }
      });
    });
  });
}

}  // namespace tenor::contract
