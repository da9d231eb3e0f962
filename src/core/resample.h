// The index map of resampling: for every output index of a dim, the source positions it reads and their weights. Shared
// by interpolation, its gradient and grid sampling; on the host and in kernels. Positions are float64, whatever is
// resampled.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "src/core/numeric.h"

namespace tenor::core {

enum class ResampleKind : uint8_t { kNearest, kNearestExact, kLinear, kCubic, kArea, kLanczos };

/// A of the cubic kernel (Keys 1981), and of the one that antialiases.
inline constexpr double kCubicA = -0.75, kCubicAntialiasA = -0.5;

/// One dim of a resampling. The default is the identity of one element.
struct ResampleAxis {
  int64_t in = 1, out = 1;  ///< sizes, at least 1
  ResampleKind kind = ResampleKind::kNearest;
  bool align_corners = false;
  bool antialias = false;
  double scale = 0;  ///< the factor as the caller gave it; 0: the sizes give it
  double step = -1;  ///< resample_step, where it is known; kernels are spared the division
};

/// What one output index reads: `count` neighbouring positions from `first` on. Where the kind repeats the edge,
/// positions beyond it stand for the edge: clamp_index.
struct ResampleTaps {
  int64_t first;
  int64_t count;
  double at;    ///< the source position that weights refer to
  double norm;  ///< what they are divided by
};

TENOR_HOST_DEVICE inline int64_t clamp_index(int64_t i, int64_t size) { return i < 0 ? 0 : i < size ? i : size - 1; }

/// (a * b) / c where the product has more than 63 bits and the quotient has not: bit by bit.
TENOR_HOST_DEVICE inline int64_t long_quotient(uint64_t a, uint64_t b, uint64_t c) {
  const uint64_t low = (a & 0xffffffffu) * (b & 0xffffffffu), middle = (a >> 32) * (b & 0xffffffffu) + (low >> 32),
                 other = (a & 0xffffffffu) * (b >> 32);
  const uint64_t sum = (middle & 0xffffffffu) + (other & 0xffffffffu);
  uint64_t rest = (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32) + (sum >> 32), quotient = 0;
  const uint64_t bits = (sum << 32) | (low & 0xffffffffu);
  for (int i = 63; i >= 0; --i) {
    rest = rest << 1 | (bits >> i & 1);
    quotient <<= 1;
    if (rest >= c) rest -= c, quotient |= 1;
  }
  return static_cast<int64_t>(quotient);
}
/// (a * b) / c without overflow, 0 <= a, b; c > 0.
TENOR_HOST_DEVICE inline int64_t multiply_divide(int64_t a, int64_t b, int64_t c) {
  if (a < (int64_t{1} << 32) && b < (int64_t{1} << 31)) {
    const auto product = static_cast<uint64_t>(a * b);
    if (product < (uint64_t{1} << 32) && c < (int64_t{1} << 32))
      return static_cast<uint32_t>(product) / static_cast<uint32_t>(c);
    return static_cast<int64_t>(product / static_cast<uint64_t>(c));
  }
  return long_quotient(static_cast<uint64_t>(a), static_cast<uint64_t>(b), static_cast<uint64_t>(c));
}

/// The cubic convolution kernel at distance t.
template <class R>
TENOR_HOST_DEVICE inline R cubic_kernel(R t, R a) {
  t = t < 0 ? -t : t;
  return t <= 1 ? ((a + 2) * t - (a + 3)) * t * t + 1 : t < 2 ? (((t - 5) * t + 8) * t - 4) * a : R(0);
}
/// Its slope at t, which may be negative.
template <class R>
TENOR_HOST_DEVICE inline R cubic_slope(R t, R a) {
  const R d = t < 0 ? -t : t;
  const R rise = d <= 1 ? (3 * (a + 2) * d - 2 * (a + 3)) * d : d < 2 ? a * ((3 * d - 10) * d + 8) : R(0);
  return t > 0 ? rise : -rise;
}
/// sinc(t) sinc(t/3) within 3.
TENOR_HOST_DEVICE inline double lanczos3_kernel(double t) {
  constexpr double kPi = 3.14159265358979323846;
  if (t == 0) return 1;
  if (!(t > -3 && t < 3)) return 0;
  return std::sin(kPi * t) * std::sin(kPi * t / 3) * 3 / (kPi * kPi * t * t);
}

/// Source positions from one output index to the next.
TENOR_HOST_DEVICE inline double resample_step(const ResampleAxis& a) {
  if (a.step >= 0) return a.step;
  if (a.align_corners) return a.out > 1 ? static_cast<double>(a.in - 1) / static_cast<double>(a.out - 1) : 0.0;
  return a.scale == 0 ? static_cast<double>(a.in) / static_cast<double>(a.out) : 1 / a.scale;
}

inline ResampleAxis with_step(ResampleAxis a) {
  a.step = resample_step(a);
  return a;
}

/// Half the width of the kernel, in source positions before it is widened.
TENOR_HOST_DEVICE inline int resample_reach(ResampleKind kind) {
  return kind == ResampleKind::kCubic ? 2 : kind == ResampleKind::kLanczos ? 3 : 1;
}

TENOR_HOST_DEVICE inline int64_t nearest_source(const ResampleAxis& a, int64_t i) {
  const bool exact = a.kind == ResampleKind::kNearestExact;
  const int64_t at = a.scale == 0
                         ? multiply_divide(2 * i + (exact ? 1 : 0), a.in, 2 * a.out)
                         : static_cast<int64_t>(std::floor((static_cast<double>(i) + (exact ? 0.5 : 0.0)) / a.scale));
  return at < a.in ? at : a.in - 1;
}

/// The weight of position first + k before it is normalised.
TENOR_HOST_DEVICE inline double raw_weight(const ResampleAxis& a, const ResampleTaps& t, int64_t k) {
  const double position = static_cast<double>(t.first + k);
  if (a.antialias) {
    const double step = resample_step(a), distance = (position - t.at + 0.5) / (step > 1 ? step : 1);
    if (a.kind == ResampleKind::kCubic) return cubic_kernel(distance, kCubicAntialiasA);
    if (a.kind == ResampleKind::kLanczos) return lanczos3_kernel(distance);
    const double w = 1 - std::fabs(distance);
    return w > 0 ? w : 0;
  }
  switch (a.kind) {
    case ResampleKind::kLinear:
      return k == 0 ? 1 - (t.at - position) : t.at - (position - 1);
    case ResampleKind::kCubic:
      return cubic_kernel(t.at - position, kCubicA);
    case ResampleKind::kLanczos:
      return lanczos3_kernel(t.at - position);
    default:
      return 1;
  }
}
TENOR_HOST_DEVICE inline double tap_weight(const ResampleAxis& a, const ResampleTaps& t, int64_t k) {
  return t.norm == 1 ? raw_weight(a, t, k) : raw_weight(a, t, k) / t.norm;
}

/// A window of the image with the weights' sum as norm.
TENOR_HOST_DEVICE inline ResampleTaps normalized_window(const ResampleAxis& a, int64_t first, int64_t end, double at) {
  ResampleTaps t{first, end - first, at, 0};
  for (int64_t k = 0; k < t.count; ++k) t.norm += raw_weight(a, t, k);
  return t;
}

/// What output index i reads.
TENOR_HOST_DEVICE inline ResampleTaps resample_taps(const ResampleAxis& a, int64_t i) {
  if (a.kind == ResampleKind::kNearest || a.kind == ResampleKind::kNearestExact) return {nearest_source(a, i), 1, 0, 1};
  if (a.kind == ResampleKind::kArea) {
    const int64_t first = multiply_divide(i, a.in, a.out), end = multiply_divide(i + 1, a.in, a.out);
    const int64_t count =
        end - first + (end < a.in && multiply_divide(end, a.out, 1) < multiply_divide(i + 1, a.in, 1) ? 1 : 0);
    return {first, count, 0, static_cast<double>(count)};
  }
  const double step = resample_step(a), at = static_cast<double>(i);
  if (a.antialias) {
    const double centre = (at + 0.5) * step, reach = resample_reach(a.kind) * (step > 1 ? step : 1.0);
    const int64_t first = static_cast<int64_t>(centre - reach + 0.5), end = static_cast<int64_t>(centre + reach + 0.5);
    return normalized_window(a, first > 0 ? first : 0, end < a.in ? end : a.in, centre);
  }
  const double u = a.align_corners ? at * step : (at + 0.5) * step - 0.5;
  if (a.kind == ResampleKind::kLinear) {
    const double from = u > 0 ? u : 0;
    const int64_t j = static_cast<int64_t>(from);
    return {j < a.in ? j : a.in - 1, 2, from, 1};
  }
  const int64_t j = static_cast<int64_t>(std::floor(u));
  if (a.kind == ResampleKind::kCubic) return {j - 1, 4, u, 1};
  return normalized_window(a, j > 2 ? j - 2 : 0, j + 4 < a.in ? j + 4 : a.in, u);
}

/// Taps of every output where that is one number (nearest, linear and cubic without antialiasing), else 0.
TENOR_HOST_DEVICE inline int fixed_taps(const ResampleAxis& a) {
  if (a.antialias || a.kind == ResampleKind::kArea || a.kind == ResampleKind::kLanczos) return 0;
  return a.kind == ResampleKind::kLinear ? 2 : a.kind == ResampleKind::kCubic ? 4 : 1;
}

/// Taps of kinds that have a fixed number of them (K of fixed_taps): the first position, and the weights in C, of a
/// fraction that is rounded once.
template <int K, class C>
struct FixedTaps {
  int64_t first;
  C weight[K];
};
/// `t`: the fraction by which the output lies behind `whole`.
template <int K, class C>
TENOR_HOST_DEVICE inline FixedTaps<K, C> fixed_taps_of(int64_t whole, C t) {
  if constexpr (K == 2) {
    return {whole, {1 - t, t}};
  } else {
    static_assert(K == 4);
    // cubic_kernel at t + 1, t, t - 1, t - 2, without its cancellations.
    const C s = 1 - t, cubic = static_cast<C>(kCubicA);
    return {whole - 1,
            {cubic * t * s * s, ((cubic + 2) * t - (cubic + 3)) * t * t + 1,
             ((cubic + 2) * s - (cubic + 3)) * s * s + 1, cubic * t * t * s}};
  }
}
template <int K, class C>
TENOR_HOST_DEVICE inline FixedTaps<K, C> fixed_taps_at(const ResampleAxis& a, int64_t i) {
  if constexpr (K == 1) {
    return {nearest_source(a, i), {C(1)}};
  } else {
    const double at = static_cast<double>(i), step = resample_step(a),
                 u = a.align_corners ? at * step : (at + 0.5) * step - 0.5;
    if constexpr (K == 2) {
      const double from = u > 0 ? u : 0;
      const int64_t whole = static_cast<int64_t>(from), j = whole < a.in ? whole : a.in - 1;
      return fixed_taps_of<K>(j, static_cast<C>(from - static_cast<double>(j)));
    } else {
      const double j = std::floor(u);
      return fixed_taps_of<K>(static_cast<int64_t>(j), static_cast<C>(u - j));
    }
  }
}

/// The outputs that read source j: from the first whose last tap is not before it to the first whose first tap is
/// beyond. Taps move one way as i grows, so that these are neighbours.
struct ResampleReaders {
  int64_t first, end;
};
TENOR_HOST_DEVICE inline ResampleReaders resample_readers(const ResampleAxis& a, int64_t j) {
  const auto bisect = [&](auto passed) {
    int64_t low = 0, high = a.out;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (passed(resample_taps(a, middle)))
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  };
  return {bisect([&](const ResampleTaps& t) { return clamp_index(t.first + t.count - 1, a.in) >= j; }),
          bisect([&](const ResampleTaps& t) { return clamp_index(t.first, a.in) > j; })};
}
/// The weight with which output i reads source j: taps beyond the edge count for the edge.
TENOR_HOST_DEVICE inline double reader_weight(const ResampleAxis& a, int64_t i, int64_t j) {
  const ResampleTaps t = resample_taps(a, i);
  double w = 0;
  for (int64_t k = 0; k < t.count; ++k)
    if (clamp_index(t.first + k, a.in) == j) w += tap_weight(a, t, k);
  return w;
}

/// No row of a table is wider: taps of an output, or with `transposed` readers of a source.
int64_t resample_width(const ResampleAxis& a, bool transposed);

/// A table of a whole dim. Row r: positions first[r] .. first[r] + count[r] - 1 of the other side, to be clamped, with
/// weights [r * width ..]. Forward its rows are outputs; transposed they are sources, and the positions their readers.
struct ResampleTable {
  int64_t rows = 0, width = 0, others = 0;  ///< others: the size that positions are clamped to
  std::vector<int64_t> first;
  std::vector<int64_t> count;
  std::vector<double> weight;
};
ResampleTable resample_table(const ResampleAxis& a, bool transposed);

}  // namespace tenor::core
