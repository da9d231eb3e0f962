// A router's scores, the same bits on the CPU and on CUDA devices: every step is one rounded operation (both compile
// without contraction), and sums run in an order written down here.
#pragma once

#include <bit>

#include "src/core/order_key.h"

namespace tenor::moe {

/// exp(x) within two units in the last place (float), by Cody and Waite's reduction: x = n ln 2 + r. NaN stays.
TENOR_HOST_DEVICE inline float exponential(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest whole number in the low bits
  const float bounded = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
  const float shifted = bounded * 1.44269504f + kRound, n = shifted - kRound;
  const float r = (bounded - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // 2^n in two factors, so that subnormal results are rounded once.
  const uint32_t whole = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound);
  const auto half = static_cast<uint32_t>(static_cast<int32_t>(whole) >> 1);
  return p * std::bit_cast<float>((half + 127u) << 23) * std::bit_cast<float>((whole - half + 127u) << 23);
}
TENOR_HOST_DEVICE inline double exponential(double x) { return std::exp(x); }

/// The score of route_sigmoid_grouped.
template <class C>
TENOR_HOST_DEVICE inline C sigmoid(C x) {
  return C(1) / (C(1) + exponential(-x));
}

/// silu(gate) * up; the limit 0 where gate is -inf.
template <class C>
TENOR_HOST_DEVICE inline C gated(C gate, C up) {
  const C activated = gate == -std::numeric_limits<C>::infinity() ? C(0) : gate / (C(1) + exponential(-gate));
  return activated * up;
}

/// The bits that a score is ordered by.
template <class C>
using Rank = std::conditional_t<sizeof(C) == 8, uint64_t, uint32_t>;

/// What is out of the running has rank 0.
inline constexpr int kOutOfTheRunning = 0;

/// Larger ranks come first: NaN below -inf, -0 with +0.
template <class C>
TENOR_HOST_DEVICE inline Rank<C> rank_of(C score) {
  using K = Rank<C>;
  constexpr K kInfinity = sizeof(C) == 8 ? static_cast<K>(0x7FF0000000000000) : K(0x7F800000);
  if (score != score) return K(1);
  return core::encode(std::bit_cast<K>(score), core::KeyCode{core::KeyKind::kFloat, kInfinity, false});
}
/// The score of a rank that is no NaN's; -0 is +0.
template <class C>
TENOR_HOST_DEVICE inline C score_of(Rank<C> rank) {
  return std::bit_cast<C>(core::decode(rank, core::KeyCode{core::KeyKind::kFloat, 0, false}));
}

/// Experts whose exponentials are added by one lane each, in ascending order; the lanes then meet in a tree of
/// exchanges with the lane whose number differs in one bit, the highest bit first.
inline constexpr int kLanes = 32;

/// A router's scores of one token once its softmax is known: p = exp(x - top) / sum.
template <class C>
struct Softmax {
  C top, sum;
  /// Whether the row has a distribution: no NaN, no +inf, not -inf alone.
  TENOR_HOST_DEVICE bool usable() const { return sum == sum; }
  TENOR_HOST_DEVICE C operator()(C x) const { return exponential(x - top) / sum; }
  /// What a row without a distribution is ordered by are its logits.
  TENOR_HOST_DEVICE Rank<C> rank(C x) const { return rank_of(usable() ? (*this)(x) : x); }
};

}  // namespace tenor::moe
