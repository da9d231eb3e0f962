// grid_sample and its gradients in float64 over contiguous values, one place after the other.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "src/core/testing.h"
#include "tenor/dims.h"

namespace tenor::testing {

struct GridReference {
  std::string mode, padding;
  bool align = false;
};

/// A tap of one coordinate: pixel (-1: outside), weight, d weight / d coordinate.
struct GridTap {
  int64_t at;
  double weight, slope;
};

/// u mirrored into [low, low + span], and the sign of its change.
inline std::pair<double, double> mirrored(double u, double size, bool align) {
  const double low = align ? 0 : -0.5, span = align ? size - 1 : size;
  if (span == 0) return {0, 0};
  double sign = 1;
  u -= low;
  if (u < 0) u = -u, sign = -1;
  const double turns = std::floor(u / span), rest = u - turns * span;
  const bool back = std::fmod(turns, 2) != 0;
  return {(back ? span - rest : rest) + low, back ? -sign : sign};
}

inline double keys_cubic(double t) {
  constexpr double a = -0.75;
  t = std::abs(t);
  return t <= 1 ? (a + 2) * t * t * t - (a + 3) * t * t + 1 : t < 2 ? a * (t * t * t - 5 * t * t + 8 * t - 4) : 0;
}
inline double keys_cubic_slope(double t) {
  constexpr double a = -0.75;
  const double d = std::abs(t), rise = d <= 1  ? 3 * (a + 2) * d * d - 2 * (a + 3) * d
                                       : d < 2 ? a * (3 * d * d - 10 * d + 8)
                                               : 0;
  return t < 0 ? -rise : rise;
}

/// The taps of coordinate g; none where it reaches nothing.
inline std::vector<GridTap> grid_reference_taps(double g, int64_t n, const GridReference& r) {
  const double size = static_cast<double>(n), slope = (r.align ? size - 1 : size) / 2;
  if (std::isnan(g) || (std::isinf(g) && r.padding == "reflection")) return {};
  double u = std::isinf(g) ? (g > 0 ? size + 8 : -8) : (g + 1) * slope - (r.align ? 0 : 0.5), change = slope;
  if (r.padding != "reflection") u = std::clamp(u, -8.0, size + 8);
  const auto outside = [&](int64_t i) { return i >= 0 && i < n ? i : -1; };
  if (r.mode == "bicubic") {
    std::vector<GridTap> taps;
    const double j = std::floor(u);
    for (int k = -1; k <= 2; ++k) {
      double i = j + k;
      if (r.padding == "reflection") i = mirrored(i, size, r.align).first;
      if (r.padding != "zeros") i = std::clamp(i, 0.0, size - 1);
      taps.push_back({outside(static_cast<int64_t>(i)), keys_cubic(u - j - k), keys_cubic_slope(u - j - k) * slope});
    }
    return taps;
  }
  if (r.padding == "reflection") {
    const auto [to, sign] = mirrored(u, size, r.align);
    u = to, change *= sign;
  }
  if (r.padding != "zeros" && (u <= 0 || u >= size - 1)) u = std::clamp(u, 0.0, size - 1), change = 0;
  if (r.mode == "nearest") return {{outside(static_cast<int64_t>(std::nearbyint(u))), 1, 0}};
  const auto j = static_cast<int64_t>(std::floor(u));
  const double t = u - static_cast<double>(j);
  return {{outside(j), 1 - t, -change}, {outside(j + 1), t, change}};
}

/// Calls fn(pixel, weight, slopes [dims], x first) for every tap inside the image of a place; false where it reaches
/// nothing.
template <class F>
bool for_grid_taps(const double* g, const Dims& image, const GridReference& r, F&& fn) {
  const size_t dims = image.size() - 2;
  std::vector<std::vector<GridTap>> axes;  // slowest first
  for (size_t d = 0; d < dims; ++d) {
    axes.push_back(grid_reference_taps(g[dims - 1 - d], image[d + 2], r));
    if (axes.back().empty()) return false;
  }
  size_t count = 1;
  for (const auto& a : axes) count *= a.size();
  for (size_t i = 0; i < count; ++i) {
    size_t rest = i;
    int64_t pixel = 0;
    bool inside = true;
    double weight = 1;
    std::vector<double> slopes(dims, 1);
    std::vector<const GridTap*> taps(dims);
    for (size_t d = dims; d-- > 0; rest /= axes[d].size()) taps[d] = &axes[d][rest % axes[d].size()];
    for (size_t d = 0; d < dims; ++d) {
      inside = inside && taps[d]->at >= 0;
      pixel = pixel * image[d + 2] + taps[d]->at;
      weight *= taps[d]->weight;
      for (size_t k = 0; k < dims; ++k) slopes[dims - 1 - k] *= k == d ? taps[d]->slope : taps[d]->weight;
    }
    if (inside) fn(pixel, weight, slopes);
  }
  return true;
}

/// x [N, C, *S], grid [N, *places, dims] -> [N, C, *places].
inline std::vector<double> grid_sample_reference(const std::vector<double>& x, const Dims& image,
                                                 const std::vector<double>& grid, int64_t places,
                                                 const GridReference& r) {
  const int64_t n = image[0], channels = image[1], dims = static_cast<int64_t>(image.size()) - 2;
  int64_t pixels = 1;
  for (size_t d = 2; d < image.size(); ++d) pixels *= image[d];
  std::vector<double> y(static_cast<size_t>(n * channels * places), 0.0);
  for (int64_t b = 0; b < n; ++b)
    for (int64_t s = 0; s < places; ++s) {
      const auto to = [&](int64_t c) -> double& { return y[static_cast<size_t>((b * channels + c) * places + s)]; };
      const bool found = for_grid_taps(grid.data() + (b * places + s) * dims, image, r,
                                       [&](int64_t pixel, double w, const std::vector<double>&) {
                                         for (int64_t c = 0; c < channels; ++c)
                                           to(c) += w * x[static_cast<size_t>((b * channels + c) * pixels + pixel)];
                                       });
      for (int64_t c = 0; c < channels && !found; ++c) to(c) = kNan;
    }
  return y;
}

struct GridGradients {
  std::vector<double> x, grid;
};
inline GridGradients grid_gradient_reference(const std::vector<double>& g, const std::vector<double>& x,
                                             const Dims& image, const std::vector<double>& grid, int64_t places,
                                             const GridReference& r) {
  const int64_t n = image[0], channels = image[1], dims = static_cast<int64_t>(image.size()) - 2;
  const auto pixels = static_cast<int64_t>(x.size()) / std::max<int64_t>(n * channels, 1);
  GridGradients out{std::vector<double>(x.size(), 0.0), std::vector<double>(grid.size(), 0.0)};
  for (int64_t b = 0; b < n; ++b)
    for (int64_t s = 0; s < places; ++s) {
      double* to = out.grid.data() + (b * places + s) * dims;
      const bool found = for_grid_taps(grid.data() + (b * places + s) * dims, image, r,
                                       [&](int64_t pixel, double w, const std::vector<double>& slopes) {
                                         for (int64_t c = 0; c < channels; ++c) {
                                           const double up = g[static_cast<size_t>((b * channels + c) * places + s)];
                                           const auto at = static_cast<size_t>((b * channels + c) * pixels + pixel);
                                           out.x[at] += w * up;
                                           for (int64_t d = 0; d < dims && r.mode != "nearest"; ++d)
                                             to[d] += up * x[at] * slopes[static_cast<size_t>(d)];
                                         }
                                       });
      for (int64_t d = 0; d < dims && !found; ++d) to[d] = kNan;
    }
  return out;
}

}  // namespace tenor::testing
