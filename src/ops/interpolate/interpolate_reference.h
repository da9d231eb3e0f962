// interpolate in float64 over contiguous values, written from the formulas of the modes and sharing nothing with the
// kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "tenor/dims.h"

namespace tenor::testing {

using ReferenceTaps = std::vector<std::pair<int64_t, double>>;  // input, weight

inline double keys(double t, double a) {
  t = std::abs(t);
  if (t <= 1) return (a + 2) * t * t * t - (a + 3) * t * t + 1;
  return t < 2 ? a * t * t * t - 5 * a * t * t + 8 * a * t - 4 * a : 0;
}
inline double sinc(double t) { return t == 0 ? 1 : std::sin(std::numbers::pi * t) / (std::numbers::pi * t); }
inline double lanczos(double t) { return std::abs(t) < 3 ? sinc(t) * sinc(t / 3) : 0; }

/// The kernel that a windowed mode weighs distances by.
inline double reference_kernel(const std::string& mode, double t) {
  if (mode == "bicubic") return keys(t, -0.5);
  return mode == "lanczos3" ? lanczos(t) : std::max(0.0, 1 - std::abs(t));
}

/// What output i of m reads of n inputs; scale 0: the sizes give the step.
inline ReferenceTaps reference_taps(const std::string& mode, int64_t n, int64_t m, int64_t i, double scale, bool align,
                                    bool antialias) {
  const auto edge = [&](int64_t j) { return std::clamp<int64_t>(j, 0, n - 1); };
  const double half = mode == "nearest-exact" ? 0.5 : 0;
  if (mode == "nearest" || mode == "nearest-exact") {
    const auto at = static_cast<int64_t>(
        std::floor(scale > 0 ? (static_cast<double>(i) + half) / scale
                             : static_cast<double>((2 * i + static_cast<int64_t>(2 * half)) * n / (2 * m))));
    return {{edge(at), 1.0}};
  }
  ReferenceTaps taps;
  if (mode == "area") {
    const int64_t first = i * n / m, end = ((i + 1) * n + m - 1) / m;
    for (int64_t j = first; j < end; ++j) taps.emplace_back(j, 1.0 / static_cast<double>(end - first));
    return taps;
  }
  const double step = align       ? (m > 1 ? static_cast<double>(n - 1) / static_cast<double>(m - 1) : 0)
                      : scale > 0 ? 1 / scale
                                  : static_cast<double>(n) / static_cast<double>(m);
  const double at = static_cast<double>(i), u = align ? at * step : (at + 0.5) * step - 0.5;
  const auto j = static_cast<int64_t>(std::floor(u));
  if (!antialias && mode == "bicubic") {
    for (int64_t k = j - 1; k <= j + 2; ++k) taps.emplace_back(edge(k), keys(u - static_cast<double>(k), -0.75));
    return taps;
  }
  if (!antialias && mode != "lanczos3") {
    const double from = std::max(u, 0.0);
    const auto low = static_cast<int64_t>(from);
    return {{edge(low), 1 - (from - static_cast<double>(low))}, {edge(low + 1), from - static_cast<double>(low)}};
  }
  const double wide = antialias ? std::max(step, 1.0) : 1.0, reach = mode == "bicubic" ? 2 : mode == "lanczos3" ? 3 : 1;
  const double centre = antialias ? (at + 0.5) * step - 0.5 : u;
  double sum = 0;
  for (int64_t k = 0; k < n; ++k) {
    const double distance = (static_cast<double>(k) - centre) / wide;
    if (std::abs(distance) >= reach) continue;
    taps.emplace_back(k, reference_kernel(mode, distance));
    sum += taps.back().second;
  }
  for (auto& [k, w] : taps) w /= sum;
  return taps;
}

struct ReferenceResize {
  std::string mode;
  Dims from, to;               // shapes [N, C, *S]
  std::vector<double> scales;  // empty: sizes
  bool align = false, antialias = false;

  ReferenceTaps taps(size_t d, int64_t i) const {
    return reference_taps(mode, from[d], to[d], i, scales.empty() ? 0 : scales[d - 2], align, antialias);
  }
};

/// Dim d of x (contiguous, of that shape) from `from` to `to` entries; transposed the other way.
inline std::vector<double> resize_dim(const std::vector<double>& x, const Dims& shape, size_t d,
                                      const ReferenceResize& r, bool transposed) {
  int64_t outer = 1, inner = 1;
  for (size_t k = 0; k < shape.size(); ++k) (k < d ? outer : k > d ? inner : outer) *= k == d ? 1 : shape[k];
  const int64_t n = r.from[d], m = r.to[d], made = transposed ? n : m, had = transposed ? m : n;
  std::vector<double> y(static_cast<size_t>(outer * made * inner), 0.0);
  for (int64_t i = 0; i < m; ++i)
    for (const auto& [j, w] : r.taps(d, i))
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t e = 0; e < inner; ++e) {
          const int64_t to = transposed ? j : i, source = transposed ? i : j;
          y[static_cast<size_t>((o * made + to) * inner + e)] +=
              w * x[static_cast<size_t>((o * had + source) * inner + e)];
        }
  return y;
}

inline std::vector<double> interpolate_reference(std::vector<double> x, const ReferenceResize& r,
                                                 bool transposed = false) {
  Dims shape = transposed ? r.to : r.from;
  for (size_t d = 2; d < shape.size(); ++d) {
    x = resize_dim(x, shape, d, r, transposed);
    shape[d] = transposed ? r.from[d] : r.to[d];
  }
  return x;
}

}  // namespace tenor::testing
