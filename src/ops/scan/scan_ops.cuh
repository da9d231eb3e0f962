// What a scan is to its CUDA kernels: accumulators, how they meet (the earlier one first), and what they are stored as.
#pragma once

#include <limits>

#include "src/cuda/convert.cuh"
#include "src/ops/scan/scan_cuda.h"

namespace tenor::scan {

using cuda::convert;
using cuda::widen;

/// From T, formed in C, to U.
template <class T, class C, class U>
struct SumScan {
  using In = T;
  using Out = U;
  using Acc = C;
  static constexpr bool kIndices = false;
  __device__ C identity() const { return 0; }
  __device__ C leaf(T x, int64_t) const {
    if constexpr (std::is_floating_point_v<C>)
      return widen(x);
    else
      return static_cast<C>(static_cast<int64_t>(x));
  }
  __device__ C merge(C a, C b) const { return a + b; }
  __device__ U value(C a) const { return convert<U>(a); }
};

template <class T, class C>
struct ProdScan {
  using In = T;
  using Out = T;
  using Acc = C;
  static constexpr bool kIndices = false;
  __device__ C identity() const { return 1; }
  __device__ C leaf(T x, int64_t) const { return static_cast<C>(widen(x)); }
  __device__ C merge(C a, C b) const { return a * b; }
  __device__ T value(C a) const { return core::cast<T>(a); }  // once, not through float32
};

/// The running extreme and its place, an I: of equals the first, and the first NaN for good.
template <class T, class I>
struct ExtremeScan {
  using In = T;
  using Out = T;
  using K = core::Compute<T>;
  struct Acc {
    K value;
    I index;
  };
  static constexpr bool kIndices = true;
  bool smallest;
  __device__ Acc identity() const {
    if constexpr (std::is_floating_point_v<K>)
      return {-std::numeric_limits<K>::infinity(), -1};
    else
      return {std::numeric_limits<K>::lowest(), -1};
  }
  __device__ K mirrored(K x) const {
    if constexpr (std::is_floating_point_v<K>)
      return smallest ? -x : x;
    else
      return smallest ? static_cast<K>(~x) : x;
  }
  __device__ Acc leaf(T x, int64_t i) const { return {mirrored(widen(x)), static_cast<I>(i)}; }
  __device__ Acc merge(const Acc& a, const Acc& b) const {
    bool take = b.value > a.value || a.index < 0;
    if constexpr (std::is_floating_point_v<K>) take = take || (b.value != b.value && a.value == a.value);
    return take && b.index >= 0 ? b : a;
  }
  __device__ T value(const Acc& a) const { return convert<T>(mirrored(a.value)); }
};

/// log(sum e^x) as the largest x and the sum relative to it. Infinities are never subtracted.
template <class T>
struct LogSumScan {
  using In = T;
  using Out = T;
  using C = core::Compute<T>;
  struct Acc {
    C top, sum;
  };
  static constexpr bool kIndices = false;
  __device__ Acc identity() const { return {-std::numeric_limits<C>::infinity(), 0}; }
  __device__ Acc leaf(T x, int64_t) const { return {widen(x), 1}; }
  __device__ Acc merge(Acc a, Acc b) const {
    const bool first = a.top != a.top || a.top >= b.top;
    const Acc more = first ? a : b, less = first ? b : a;
    const C about = isinf(more.top) ? C(0) : more.top;
    // The share of an exponential in the sum falls faster than its argument's rounding grows, so that the quick one
    // will do.
    const C scale = std::is_same_v<C, float> ? __expf(less.top - about) : exp(less.top - about);
    return {more.top, less.sum == 0 ? more.sum : more.sum + less.sum * scale};
  }
  __device__ T value(Acc a) const { return convert<T>(isinf(a.top) ? a.top : log(a.sum) + a.top); }
};

}  // namespace tenor::scan
