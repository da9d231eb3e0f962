// The elementwise formulas in float64 (integers exactly), one value at a time: the oracle of the tests.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>

namespace tenor::reference {

using Unary = double (*)(double);
using Binary = double (*)(double, double);

inline double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
inline double softplus(double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); }
/// x * gate, and the limit 0 at -inf.
inline double gated(double x, double gate) { return x == -INFINITY ? 0 : x * gate; }
inline double maximum(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : a > b ? a : b; }
inline double minimum(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : a < b ? a : b; }

inline double remainder(double a, double b) {
  const double r = std::fmod(a, b);
  if (r == 0) return std::copysign(0.0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}
inline double floor_divide(double a, double b) {
  if (b == 0) return a / b;
  const double r = std::fmod(a, b), q = (a - r) / b - (r != 0 && (r < 0) != (b < 0) ? 1 : 0);
  return std::round(q);
}

inline const std::map<std::string, Unary>& unary_functions() {
  static const std::map<std::string, Unary> all = {
      {"neg", [](double x) { return -x; }},
      {"abs", [](double x) { return std::fabs(x); }},
      {"sign", [](double x) { return x > 0   ? 1.0
                                     : x < 0 ? -1.0
                                             : x; }},
      {"relu", [](double x) { return x <= 0 ? 0 : x; }},
      {"floor", [](double x) { return std::floor(x); }},
      {"ceil", [](double x) { return std::ceil(x); }},
      {"round", [](double x) { return std::nearbyint(x); }},
      {"trunc", [](double x) { return std::trunc(x); }},
      {"exp", [](double x) { return std::exp(x); }},
      {"exp2", [](double x) { return std::exp2(x); }},
      {"expm1", [](double x) { return std::expm1(x); }},
      {"log", [](double x) { return std::log(x); }},
      {"log2", [](double x) { return std::log2(x); }},
      {"log10", [](double x) { return std::log10(x); }},
      {"log1p", [](double x) { return std::log1p(x); }},
      {"sqrt", [](double x) { return std::sqrt(x); }},
      {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
      {"reciprocal", [](double x) { return 1 / x; }},
      {"sin", [](double x) { return std::sin(x); }},
      {"cos", [](double x) { return std::cos(x); }},
      {"tan", [](double x) { return std::tan(x); }},
      {"asin", [](double x) { return std::asin(x); }},
      {"acos", [](double x) { return std::acos(x); }},
      {"atan", [](double x) { return std::atan(x); }},
      {"sinh", [](double x) { return std::sinh(x); }},
      {"cosh", [](double x) { return std::cosh(x); }},
      {"tanh", [](double x) { return std::tanh(x); }},
      {"asinh", [](double x) { return std::asinh(x); }},
      {"acosh", [](double x) { return std::acosh(x); }},
      {"atanh", [](double x) { return std::atanh(x); }},
      {"erf", [](double x) { return std::erf(x); }},
      {"sigmoid", &sigmoid},
      {"silu", [](double x) { return gated(x, sigmoid(x)); }},
      {"mish", [](double x) { return gated(x, std::tanh(softplus(x))); }},
      {"hardswish", [](double x) { return gated(x, minimum(maximum(x + 3, 0), 6) / 6); }},
      {"gelu", [](double x) { return gated(x, std::erfc(-x / std::sqrt(2.0)) / 2); }},
      {"softplus", &softplus},
      {"elu", [](double x) { return x > 0 ? x : std::expm1(x); }},
      {"leaky_relu", [](double x) { return x > 0 ? x : 0.01 * x; }},
  };
  return all;
}

inline const std::map<std::string, Binary>& binary_functions() {
  static const std::map<std::string, Binary> all = {
      {"add", [](double a, double b) { return a + b; }},
      {"sub", [](double a, double b) { return a - b; }},
      {"mul", [](double a, double b) { return a * b; }},
      {"div", [](double a, double b) { return a / b; }},
      {"floor_divide", &floor_divide},
      {"remainder", &remainder},
      {"fmod", [](double a, double b) { return std::fmod(a, b); }},
      {"pow", [](double a, double b) { return std::pow(a, b); }},
      {"maximum", &maximum},
      {"minimum", &minimum},
      {"atan2", [](double a, double b) { return std::atan2(a, b); }},
  };
  return all;
}

/// The quotient to minus infinity and its rest, 0 by zero.
template <class Wide>
Wide integer_floor_divide(Wide a, Wide b) {
  if (b == 0) return 0;
  const Wide q = a / b;
  return a % b != 0 && ((a % b < 0) != (b < 0)) ? q - 1 : q;
}

}  // namespace tenor::reference
