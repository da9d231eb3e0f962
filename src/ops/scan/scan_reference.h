// The scans as obvious float64 loops over one line: the oracle of the tests.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

namespace tenor::scan {

inline std::vector<double> reference_sum(std::vector<double> x) {
  for (size_t i = 1; i < x.size(); ++i) x[i] += x[i - 1];
  return x;
}

inline std::vector<double> reference_prod(std::vector<double> x) {
  for (size_t i = 1; i < x.size(); ++i) x[i] *= x[i - 1];
  return x;
}

/// The places of the running extremes: a NaN stays, else the first of equals.
inline std::vector<double> reference_places(const std::vector<double>& x, bool largest) {
  std::vector<double> places;
  size_t best = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isnan(x[best]) && (std::isnan(x[i]) || (largest ? x[i] > x[best] : x[i] < x[best]))) best = i;
    places.push_back(static_cast<double>(best));
  }
  return places;
}

/// Each result on its own, about its own maximum.
inline std::vector<double> reference_logsumexp(const std::vector<double>& x) {
  std::vector<double> out;
  for (size_t n = 1; n <= x.size(); ++n) {
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (size_t i = 0; i < n; ++i) top = std::isnan(x[i]) || x[i] > top ? x[i] : top;
    if (std::isinf(top)) top = 0;
    for (size_t i = 0; i < n; ++i) sum += std::exp(x[i] - top);
    out.push_back(std::log(sum) + top);
  }
  return out;
}

}  // namespace tenor::scan
