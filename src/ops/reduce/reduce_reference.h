// The reductions as obvious float64 loops over one output's elements: the oracle of the tests.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace tenor::reduce {

inline double reference_sum(const std::vector<double>& x) {
  double sum = 0;
  for (double v : x) sum += v;
  return sum;
}

inline double reference_extreme(const std::vector<double>& x, bool largest) {
  double best = x.at(0);
  for (double v : x)
    if (std::isnan(v) || (!std::isnan(best) && (largest ? v > best : v < best))) best = v;
  return best;
}

inline double reference_arg(const std::vector<double>& x, bool largest) {
  const double best = reference_extreme(x, largest);
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i] == best || (std::isnan(best) && std::isnan(x[i]))) return static_cast<double>(i);
  return -1;
}

inline double reference_norm(const std::vector<double>& x, double p) {
  std::vector<double> terms;
  for (double v : x) terms.push_back(std::isinf(p) ? std::abs(v) : p == 0 ? v != 0 : std::pow(std::abs(v), p));
  if (std::isinf(p)) return reference_extreme(terms, p > 0);
  return p == 0 ? reference_sum(terms) : std::pow(reference_sum(terms), 1 / p);
}

inline double reference_var(const std::vector<double>& x, double correction) {
  const double n = static_cast<double>(x.size()), mean = reference_sum(x) / n;
  double squares = 0;
  for (double v : x) squares += (v - mean) * (v - mean);
  return n - correction > 0 ? squares / (n - correction) : std::numeric_limits<double>::quiet_NaN();
}

inline double reference_logsumexp(const std::vector<double>& x) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (double v : x) top = std::isnan(v) || v > top ? v : top;
  if (std::isinf(top)) top = 0;
  for (double v : x) sum += std::exp(v - top);
  return std::log(sum) + top;
}

}  // namespace tenor::reduce
