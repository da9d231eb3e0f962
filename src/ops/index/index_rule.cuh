// How kernels combine what a place holds with what is written to it.
#pragma once

#include <limits>

#include "src/core/scalar_value.h"
#include "src/ops/index/index_arith.h"
#include "src/ops/index/index_cuda.h"

namespace tenor::index {

/// A CombineRule in the type that it computes in.
template <class C>
struct Rule {
  DeviceCombine combine;
  bool include_self, scaled;
  C alpha, identity;

  __device__ C operator()(C sum, C x) const {
    if (scaled) x = Multiply()(alpha, x);
    switch (combine) {
      case DeviceCombine::kMultiply:
        return Multiply()(sum, x);
      case DeviceCombine::kMaximum:
        return Maximum()(sum, x);
      case DeviceCombine::kMinimum:
        return Minimum()(sum, x);
      default:
        return Add()(sum, x);
    }
  }
};

/// The value that leaves any other as it is.
template <class C>
C identity_of(DeviceCombine combine) {
  using Limits = std::numeric_limits<C>;
  switch (combine) {
    case DeviceCombine::kMultiply:
      return C(1);
    case DeviceCombine::kMaximum:
      return Limits::has_infinity ? static_cast<C>(-Limits::infinity()) : Limits::lowest();
    case DeviceCombine::kMinimum:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    default:
      return C(0);
  }
}

template <class C>
Rule<C> rule_of(const CombineRule& given) {
  const C alpha = core::scalar_as<C>(given.alpha);
  return {given.combine, given.include_self, alpha != C(1), alpha, identity_of<C>(given.combine)};
}

}  // namespace tenor::index
