// The norms in float64, one row at a time, as their formulas say: what the kernels are tested against.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace tenor::reference {

using Row = std::vector<double>;

inline double mean(const Row& x) {
  double sum = 0;
  for (double v : x) sum += v;
  return sum / static_cast<double>(x.size());
}

/// gamma and beta may be empty.
inline Row layer_norm(Row x, const Row& gamma, const Row& beta, double epsilon) {
  const double m = mean(x);
  double variance = 0;
  for (double v : x) variance += (v - m) * (v - m) / static_cast<double>(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = (x[i] - m) / std::sqrt(variance + epsilon) * (gamma.empty() ? 1 : gamma[i]) + (beta.empty() ? 0 : beta[i]);
  return x;
}

inline Row rms_norm(Row x, const Row& gamma, double epsilon, double weight_offset) {
  double square = 0;
  for (double v : x) square += v * v / static_cast<double>(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = x[i] / std::sqrt(square + epsilon) * (gamma[i] + weight_offset);
  return x;
}

/// NaN where the row holds NaN or +inf, or only -inf.
inline Row softmax(Row x, bool log) {
  double top = -INFINITY, sum = 0;
  for (double v : x) top = std::isnan(v) ? v : std::max(top, v);
  for (double v : x) sum += std::exp(v - top);
  for (double& v : x) v = log ? v - top - std::log(sum) : std::exp(v - top) / sum;
  return x;
}

inline Row normalize(Row x, double p, double epsilon) {
  double norm = p == -INFINITY ? INFINITY : 0;
  for (double v : x) {
    const double a = std::abs(v);
    if (std::isnan(a) || std::isnan(norm))
      norm = NAN;
    else if (p == INFINITY)
      norm = std::max(norm, a);
    else if (p == -INFINITY)
      norm = std::min(norm, a);
    else
      norm += p == 0 ? a != 0 : std::pow(a, p);
  }
  if (std::isfinite(p) && p != 0) norm = std::pow(norm, 1 / p);
  for (double& v : x) v /= std::isnan(norm) ? norm : std::max(norm, epsilon);
  return x;
}

}  // namespace tenor::reference
