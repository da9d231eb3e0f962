// Arithmetic of the operators that combine, on the CPU and in CUDA kernels: integers wrap, bool is or/and, NaN wins
// extremes.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "src/core/numeric.h"
#include "src/core/visit.h"

namespace tenor::index {

struct Put {
  template <class T>
  TENOR_HOST_DEVICE T operator()(T, T b) const {
    return b;
  }
};
struct Add {
  template <class T>
  TENOR_HOST_DEVICE T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) return a || b;
    if constexpr (std::integral<T>) return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    return static_cast<T>(a + b);
  }
};
struct Multiply {
  template <class T>
  TENOR_HOST_DEVICE T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) return a && b;
    if constexpr (std::integral<T>) return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    return static_cast<T>(a * b);
  }
};
struct Maximum {
  template <class T>
  TENOR_HOST_DEVICE T operator()(T a, T b) const {
    return a != a || a > b ? a : b;
  }
};
struct Minimum {
  template <class T>
  TENOR_HOST_DEVICE T operator()(T a, T b) const {
    return a != a || a < b ? a : b;
  }
};

/// visit() over the dtypes that operators compute in: compute_dtype() of any.
template <class F>
void visit_compute(DType dtype, F&& fn) {
  core::visit(dtype, [&]<class T>() {
    if constexpr (!core::kStorageFloat<T>) fn.template operator()<T>();
  });
}

}  // namespace tenor::index
