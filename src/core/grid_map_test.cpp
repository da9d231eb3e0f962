// The index map of grid sampling: every size, padding and mode at sixteenths of a pixel, far beyond the image on either
// side, against its definition by steps.
#include "src/core/grid_map.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace tenor::core {
namespace {

constexpr GridPadding kPaddings[] = {GridPadding::kZeros, GridPadding::kBorder, GridPadding::kReflection};

std::string text(const GridAxis& a) {
  return "size " + std::to_string(a.size) + ", padding " + std::to_string(static_cast<int>(a.padding)) +
         (a.align_corners ? " aligned" : "");
}

/// u folded at the image's edges until it lies between them.
double mirrored(double u, const GridAxis& a) {
  const double low = a.align_corners ? 0 : -0.5,
               high = low + static_cast<double>(a.align_corners ? a.size - 1 : a.size);
  if (low == high) return 0;
  while (u < low || u > high) u = u < low ? 2 * low - u : 2 * high - u;
  return u;
}
double clipped(double u, int64_t size) { return std::min(std::max(u, 0.0), static_cast<double>(size - 1)); }

/// Pixel i of the image that goes on beyond its edges.
double pixel(const std::vector<double>& image, double i, const GridAxis& a) {
  if (a.padding == GridPadding::kReflection) i = mirrored(i, a);
  if (a.padding != GridPadding::kZeros) i = clipped(i, a.size);
  return i >= 0 && i < static_cast<double>(a.size) ? image[static_cast<size_t>(i)] : 0;
}
double keys(double distance) {
  const double t = std::fabs(distance), a = -0.75;
  if (t <= 1) return (a + 2) * t * t * t - (a + 3) * t * t + 1;
  return t < 2 ? a * t * t * t - 5 * a * t * t + 8 * a * t - 4 * a : 0;
}
/// The image at position u: of 1 tap the nearest pixel, of 2 a line between pixels, of 4 Keys' cubic.
double expected(const std::vector<double>& image, int taps, double u, const GridAxis& a) {
  if (taps < 4) {
    if (a.padding == GridPadding::kReflection) u = mirrored(u, a);
    if (a.padding != GridPadding::kZeros) u = clipped(u, a.size);
  }
  if (taps == 1) return pixel(image, std::nearbyint(u), {a.size});
  const double first = std::floor(u) - (taps == 4 ? 1 : 0);
  double sum = 0;
  for (int k = 0; k < taps; ++k) {
    const double at = first + k;
    sum += taps == 4 ? keys(u - at) * pixel(image, at, a) : (1 - std::fabs(u - at)) * pixel(image, at, {a.size});
  }
  return sum;
}

template <int K, class R>
double through(const std::vector<double>& image, const GridTaps<R, K>& taps, const R (GridTaps<R, K>::*factors)[K]) {
  double sum = 0;
  for (int k = 0; k < K; ++k)
    if (taps.index[k] >= 0) sum += static_cast<double>((taps.*factors)[k]) * image[static_cast<size_t>(taps.index[k])];
  return sum;
}

/// Every axis at every sixteenth of a pixel from four images before it to four behind; check(axis, u, coordinate of u).
template <class F>
void for_places(F&& check) {
  for (int64_t size = 1; size <= 17; ++size)
    for (const GridPadding padding : kPaddings)
      for (const bool align : {false, true}) {
        const GridAxis a{size, padding, align};
        const double half = static_cast<double>(align ? size - 1 : size) / 2, shift = align ? half : half - 0.5;
        for (int64_t i = -64 * size; i <= 80 * size; ++i) {
          const double u = static_cast<double>(i) / 16;
          half == 0 ? check(a, 0.0, u) : check(a, u, (u - shift) / half);
        }
      }
}
std::vector<double> image_of(int64_t size) {
  std::vector<double> image;
  for (int64_t i = 0; i < size; ++i) image.push_back(static_cast<double>((i * 7 + 3) % 11) - 4.5);
  return image;
}
/// Whether a rounding of the coordinate moves no value by more than itself: halves are ties of the nearest pixel.
bool is_tie(double u) { return u - std::floor(u) == 0.5; }

template <int K, class R>
void check_values(double tolerance) {
  for_places([&](const GridAxis& a, double u, double g) {
    if (K == 1 && is_tie(u)) return;
    const auto image = image_of(a.size);
    const auto taps = grid_taps<K>(static_cast<R>(g), a);
    double sum = 0;
    for (int k = 0; k < K; ++k) {
      ASSERT_TRUE(taps.index[k] >= -1 && taps.index[k] < a.size) << text(a) << " at " << u;
      ASSERT_TRUE(taps.index[k] >= 0 || a.padding == GridPadding::kZeros || taps.weight[k] == 0)
          << text(a) << " at " << u;
      sum += static_cast<double>(taps.weight[k]);
    }
    ASSERT_NEAR(sum, 1, tolerance) << text(a) << " at " << u;
    ASSERT_NEAR((through<K, R>(image, taps, &GridTaps<R, K>::weight)), expected(image, K, u, a), tolerance * 40)
        << K << " taps, " << text(a) << " at " << u;
  });
}

TEST(GridMap, EveryPlaceHasTheValueOfItsDefinition) {
  check_values<1, double>(1e-12);
  check_values<2, double>(1e-12);
  check_values<4, double>(1e-12);
}

TEST(GridMap, FloatsFindTheSamePlaces) {
  check_values<1, float>(1e-4);
  check_values<2, float>(1e-4);
  check_values<4, float>(1e-4);
}

TEST(GridMap, NearestTiesGoToTheEvenPixel) {
  for (int64_t size = 2; size <= 16; size *= 2)  // whose halves are exact coordinates
    for (int64_t i = 0; i + 1 < size; ++i) {
      const GridAxis a{size, GridPadding::kZeros, false};
      const double g = static_cast<double>(2 * i + 2) / static_cast<double>(size) - 1;
      EXPECT_EQ(grid_taps<1>(g, a).index[0], i % 2 == 0 ? i : i + 1) << text(a);
    }
}

/// d weight / d coordinate of the taps against differences, off the places where the definition has a corner.
template <int K>
void check_slopes() {
  constexpr double kStep = 1e-5;
  for_places([&](const GridAxis& a, double u, double g) {
    const auto image = image_of(a.size);
    const auto taps = grid_taps<K>(g, a);
    const double half = static_cast<double>(a.align_corners ? a.size - 1 : a.size) / 2;
    const double have = through<K, double>(image, taps, &GridTaps<double, K>::slope);
    if (half == 0 || u * 2 == std::floor(u * 2)) return;  // corners: pixels' centres and edges
    const double want = (expected(image, K, u + kStep, a) - expected(image, K, u - kStep, a)) / (2 * kStep) * half;
    ASSERT_NEAR(have, want, 1e-6 * static_cast<double>(a.size)) << K << " taps, " << text(a) << " at " << u;
  });
}

TEST(GridMap, SlopesAreDifferencesOfTheDefinition) {
  check_slopes<1>();
  check_slopes<2>();
  check_slopes<4>();
}

TEST(GridMap, WhatNoPlaceHas) {
  for (const GridPadding padding : kPaddings) {
    EXPECT_TRUE(is_lost(std::nan(""), padding));
    EXPECT_EQ(is_lost(HUGE_VAL, padding), padding == GridPadding::kReflection);
    EXPECT_FALSE(is_lost(1e300, padding));
  }
}

}  // namespace
}  // namespace tenor::core
