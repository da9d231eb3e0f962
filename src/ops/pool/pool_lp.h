// The p-norm of a window and its slope, as both devices compute them.
#pragma once

#include <cmath>

#include "src/core/numeric.h"

namespace tenor::pool {

/// The order of a norm: the common ones take no power.
template <class C>
struct Power {
  enum class Kind : uint8_t { kOne, kTwo, kInfinite, kOther };

  explicit Power(double p)
      : kind(p == 1          ? Kind::kOne
             : p == 2        ? Kind::kTwo
             : std::isinf(p) ? Kind::kInfinite
                             : Kind::kOther),
        p(static_cast<C>(p)),
        inverse(static_cast<C>(1 / p)) {}

  Kind kind;
  C p, inverse;
};

/// `sources(fn)` calls fn(x, index) for each input of the window in the order of indices, twice. Sizes are taken over
/// the largest, so that no power over- or underflows. `place`: of the first NaN, else of the first largest |x|; -1 of
/// nothing.
template <class C, class Sources>
TENOR_HOST_DEVICE C window_norm(const Power<C>& power, Sources sources, int64_t& place) {
  using Kind = typename Power<C>::Kind;
  C largest = 0, sum = 0;
  place = -1;
  sources([&](C x, int64_t at) {
    const C size = std::fabs(x);
    sum += size;
    if (place < 0 || size > largest || (size != size && largest == largest)) largest = size, place = at;
  });
  if (power.kind == Kind::kOne) return sum;
  if (power.kind == Kind::kInfinite || !(largest > 0) || std::isinf(largest)) return largest;
  sum = 0;
  sources([&](C x, int64_t) {
    const C part = std::fabs(x) / largest;
    sum += power.kind == Kind::kTwo ? part * part : std::pow(part, power.p);
  });
  return largest * (power.kind == Kind::kTwo ? std::sqrt(sum) : std::pow(sum, power.inverse));
}

/// d norm / d x = sign(x) (|x| / norm)^(p - 1), for p = inf at the window's place; 0 where the norm or x is 0.
template <class C>
TENOR_HOST_DEVICE C norm_slope(const Power<C>& power, C x, C norm) {
  using Kind = typename Power<C>::Kind;
  if (x != x) return x;
  if (x == 0 || norm == 0) return 0;
  const C sign = x < 0 ? C(-1) : C(1);
  if (power.kind == Kind::kOne || power.kind == Kind::kInfinite) return sign;
  const C part = x / norm;
  return power.kind == Kind::kTwo ? part : sign * std::pow(std::fabs(part), power.p - 1);
}

}  // namespace tenor::pool
