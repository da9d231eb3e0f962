// Error of math-inl.h and math_circular-inl.h in ulp against the C library in a wider type, and its values at the
// limits.
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <random>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/math_test.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/math_circular-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace {

template <class T, class Fn>
HWY_ATTR void apply(const T* x, T* y, size_t n, Fn fn) {
  map_row(x, y, n, fn);
}

template <class T>
void run_all(int which, const T* x, T* y, size_t n) {
  const auto with = [&](auto fn) { apply(x, y, n, fn); };
  switch (which) {
    case 0:
      return with([](auto d, auto v) HWY_ATTR { return math::exp(d, v); });
    case 1:
      return with([](auto d, auto v) HWY_ATTR { return math::exp2(d, v); });
    case 2:
      return with([](auto d, auto v) HWY_ATTR { return math::expm1(d, v); });
    case 3:
      return with([](auto d, auto v) HWY_ATTR { return math::log(d, v); });
    case 4:
      return with([](auto d, auto v) HWY_ATTR { return math::log1p(d, v); });
    case 5:
      return with([](auto d, auto v) HWY_ATTR { return math::log2(d, v); });
    case 6:
      return with([](auto d, auto v) HWY_ATTR { return math::log10(d, v); });
    case 7:
      return with([](auto d, auto v) HWY_ATTR { return math::sigmoid(d, v); });
    case 8:
      return with([](auto d, auto v) HWY_ATTR { return math::tanh(d, v); });
    case 9:
      return with([](auto d, auto v) HWY_ATTR { return math::erf(d, v); });
    case 10:
      return with([](auto d, auto v) HWY_ATTR {  // as gelu weighs its argument
        return hn::IfThenElse(hn::IsNaN(v), v, math::normal_cdf(d, v));
      });
    case 11:
      return with([](auto d, auto v) HWY_ATTR { return math::sin(d, v); });
    case 12:
      return with([](auto d, auto v) HWY_ATTR { return math::cos(d, v); });
    case 13:
      return with([](auto d, auto v) HWY_ATTR { return math::tan(d, v); });
    case 14:
      return with([](auto d, auto v) HWY_ATTR { return math::asin(d, v); });
    case 15:
      return with([](auto d, auto v) HWY_ATTR { return math::acos(d, v); });
    case 16:
      return with([](auto d, auto v) HWY_ATTR { return math::atan(d, v); });
    case 17:
      return with([](auto d, auto v) HWY_ATTR { return math::sinh(d, v); });
    case 18:
      return with([](auto d, auto v) HWY_ATTR { return math::cosh(d, v); });
    case 19:
      return with([](auto d, auto v) HWY_ATTR { return math::asinh(d, v); });
    case 20:
      return with([](auto d, auto v) HWY_ATTR { return math::acosh(d, v); });
    case 21:
      return with([](auto d, auto v) HWY_ATTR { return math::atanh(d, v); });
  }
}
void run_float(int which, const float* x, float* y, size_t n) { run_all(which, x, y, n); }
void run_double(int which, const double* x, double* y, size_t n) { run_all(which, x, y, n); }

}  // namespace
}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
HWY_EXPORT(run_float);
HWY_EXPORT(run_double);
namespace {

struct Function {
  const char* name;
  long double (*exact)(long double);
  double bound, double_bound;  // ulp; the float64 forms of the rare functions are the C library's
};
using L = long double;
const Function kFunctions[] = {
    {"exp", [](L v) { return std::exp(v); }, 1.5, 1.5},
    {"exp2", [](L v) { return std::exp2(v); }, 1.5, 1.5},
    {"expm1", [](L v) { return std::expm1(v); }, 2, 2},
    {"log", [](L v) { return std::log(v); }, 1.5, 1.5},
    {"log1p", [](L v) { return std::log1p(v); }, 2, 2},
    {"log2", [](L v) { return std::log2(v); }, 1, 1},
    {"log10", [](L v) { return std::log10(v); }, 1, 2},
    {"sigmoid", [](L v) { return 1 / (1 + std::exp(-v)); }, 2.5, 2.5},
    {"tanh", [](L v) { return std::tanh(v); }, 2.5, 2.5},
    {"erf", [](L v) { return std::erf(v); }, 2, 2},
    {"normal_cdf", [](L v) { return std::erfc(-v / std::sqrt(L(2))) / 2; }, 6, 2000},
    {"sin", [](L v) { return std::sin(v); }, 1, 1},
    {"cos", [](L v) { return std::cos(v); }, 1, 1},
    {"tan", [](L v) { return std::tan(v); }, 1, 1},
    {"asin", [](L v) { return std::asin(v); }, 1, 1},
    {"acos", [](L v) { return std::acos(v); }, 1, 1},
    {"atan", [](L v) { return std::atan(v); }, 1, 1},
    {"sinh", [](L v) { return std::sinh(v); }, 1, 2.5},
    {"cosh", [](L v) { return std::cosh(v); }, 1, 2.5},
    {"asinh", [](L v) { return std::asinh(v); }, 1, 2.5},
    {"acosh", [](L v) { return std::acosh(v); }, 1, 2.5},
    {"atanh", [](L v) { return std::atanh(v); }, 1, 2.5},
};

/// Random signs and magnitudes over the whole range, moderate ones, and the special values.
template <class T>
std::vector<T> arguments() {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> unit(-1, 1);
  std::vector<T> x = {0,
                      T(-0.0),
                      1,
                      -1,
                      2,
                      -2,
                      0.5,
                      std::numeric_limits<T>::infinity(),
                      -std::numeric_limits<T>::infinity(),
                      std::numeric_limits<T>::quiet_NaN(),
                      std::numeric_limits<T>::max(),
                      -std::numeric_limits<T>::max(),
                      std::numeric_limits<T>::min(),
                      std::numeric_limits<T>::denorm_min(),
                      -std::numeric_limits<T>::denorm_min(),
                      std::numeric_limits<T>::min() / 3,
                      88,
                      89,
                      -87.5,
                      -103,
                      -104,
                      709,
                      710,
                      -745,
                      1e6,
                      -1e7,
                      1000,
                      10,
                      8,
                      1024};
  for (int i = 0; i < 200000; ++i) x.push_back(static_cast<T>(unit(random)));
  for (int i = 0; i < 100000; ++i) x.push_back(static_cast<T>(12 * unit(random)));
  for (int i = 0; i < 100000; ++i) x.push_back(static_cast<T>(110 * unit(random)));
  for (int i = 0; i < 100000; ++i)
    x.push_back(static_cast<T>(std::exp(sizeof(T) == 4 ? 85 * unit(random) : 700 * unit(random))));
  for (int i = 0; i < 50000; ++i) x.push_back(static_cast<T>(1 + unit(random) * 1e-3));
  return x;
}

/// |got - want| in units of the last place of want in T.
template <class T>
double ulps(T got, long double want) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : 1e30;
  const T rounded = static_cast<T>(want);
  if (got == rounded) return 0;
  if (std::isinf(rounded) || std::isinf(got))
    return std::isinf(rounded) && got == std::copysign(std::numeric_limits<T>::max(), rounded) ? 1 : 1e30;
  int exponent;
  std::frexp(want, &exponent);
  const int lowest = std::numeric_limits<T>::min_exponent;
  const L unit = std::ldexp(L(1), std::max(exponent, lowest) - std::numeric_limits<T>::digits);
  return static_cast<double>(std::abs(static_cast<L>(got) - want) / unit);
}

/// fn() once on every instruction set of this build that this machine has.
template <class Fn>
void on_every_target(Fn fn) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    fn();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

template <class T, class Run>
void check_all(Run run) {
  const std::vector<T> x = arguments<T>();
  std::vector<T> y(x.size());
  int which = 0;
  for (const Function& f : kFunctions) {
    run(which++, x.data(), y.data(), x.size());
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const long double want = f.exact(x[i]);
      if (which - 1 == 10 && y[i] == 0 && std::abs(want) < 1e-37L) continue;  // flushed
      const double e = ulps(y[i], want);
      if (e > worst) worst = e, at = i;
    }
    EXPECT_LE(worst, sizeof(T) == 4 ? f.bound : f.double_bound)
        << f.name << " at " << x[at] << ": " << y[at] << ", expected " << static_cast<double>(f.exact(x[at]));
  }
}

TEST(Math, Float32) {
  on_every_target([] {
    check_all<float>([](int which, const float* x, float* y, size_t n) {
      HWY_DYNAMIC_DISPATCH(run_float)(which, x, y, n);
    });
  });
}
TEST(Math, Float64) {
  on_every_target([] {
    check_all<double>([](int which, const double* x, double* y, size_t n) {
      HWY_DYNAMIC_DISPATCH(run_double)(which, x, y, n);
    });
  });
}

TEST(Math, SignsOfZero) {
  for (int which : {2, 4, 8, 9, 11, 13, 14, 16, 17, 19, 21}) {
    const float x[2] = {-0.0f, 0.0f};
    float y[2];
    HWY_DYNAMIC_DISPATCH(run_float)(which, x, y, 2);
    EXPECT_TRUE(std::signbit(y[0]) && !std::signbit(y[1])) << kFunctions[which].name;
  }
}

}  // namespace
}  // namespace tenor::cpu
#endif
