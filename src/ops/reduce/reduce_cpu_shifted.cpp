// Sums of float functions that read a shift, or that cost more than their memory: deviations, exponentials, powers.
#include <cmath>

#include "src/ops/reduce/reduce_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/reduce/reduce_cpu_shifted.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/deviations-inl.h"
#include "src/cpu/math-inl.h"
#include "src/ops/reduce/reduce_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::reduce::HWY_NAMESPACE {
namespace {

struct Shifted {
  using Combine = Add;
  static constexpr bool kShifted = true;
};
struct Deviation : Shifted {
  template <class D, class V>
  static HWY_INLINE V map(D, V x, V shift, double) {
    return hn::Sub(x, shift);
  }
};
struct SquareDeviation : Shifted {
  template <class D, class V>
  static HWY_INLINE V map(D, V x, V shift, double) {
    const V difference = hn::Sub(x, shift);
    return hn::Mul(difference, difference);
  }
};
struct ShiftedExp : Shifted {
  static constexpr bool kCostly = true;
  template <class D, class V>
  static HWY_INLINE V map(D d, V x, V shift, double) {
    return cpu::HWY_NAMESPACE::math::exp(d, hn::Sub(x, shift));
  }
};
/// |x|^p by the C library, lane by lane: its error must stay below a rounding whatever p.
struct Power {
  using Combine = Add;
  static constexpr bool kShifted = false, kCostly = true;
  template <class D, class V>
  static HWY_INLINE V map(D d, V x, V, double power) {
    using C = hn::TFromD<D>;
    HWY_ALIGN C values[HWY_MAX_BYTES / sizeof(C)];
    hn::Store(x, d, values);
    for (size_t i = 0; i < hn::Lanes(d); ++i) values[i] = std::pow(std::abs(values[i]), static_cast<C>(power));
    return hn::Load(d, values);
  }
};

template <class T>
const Kernels* find(Pass pass) {
  switch (pass) {
    case Pass::kSumShifted:
      return &FloatKernels<T, Deviation>::kTable;
    case Pass::kSumShiftedSquares:
      return &FloatKernels<T, SquareDeviation>::kTable;
    case Pass::kSumExp:
      return &FloatKernels<T, ShiftedExp>::kTable;
    default:
      return &FloatKernels<T, Power>::kTable;
  }
}

/// Both sums of var in one reading, of several short rows at once, which asks for the next call's.
template <class T>
void deviations(const void* x, int64_t stride, int64_t rows, int64_t n, const void* shifts, void* sums, void* squares) {
  using C = core::Compute<T>;
  constexpr int64_t kRows = cpu::HWY_NAMESPACE::kRowsAtOnce<T>;
  const C* about = static_cast<const C*>(shifts);
  C *sum = static_cast<C*>(sums), *square = static_cast<C*>(squares);
  const auto row = [&](int64_t r) { return static_cast<const T*>(x) + r * stride; };
  int64_t r = 0;
  if constexpr (kRows > 1)
    for (; cpu::HWY_NAMESPACE::side_by_side<T>(n) && r + kRows <= rows; r += kRows)
      cpu::HWY_NAMESPACE::block_deviations<kRows>(row(r), stride, static_cast<size_t>(n), about + r, rows * stride,
                                                  sum + r, square + r);
  for (; r < rows; ++r) {
    const auto found = cpu::HWY_NAMESPACE::row_deviations(row(r), static_cast<size_t>(n), about[r]);
    sum[r] = found.sum;
    square[r] = found.squares;
  }
}

DeviationsFn find_deviations(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return deviations<Float16>;
    case DType::kBFloat16:
      return deviations<BFloat16>;
    case DType::kFloat32:
      return deviations<float>;
    default:
      return deviations<double>;
  }
}

const Kernels* find_shifted_kernels(Pass pass, DType dtype) {
  if (dtype == float32) return find<float>(pass);
  return dtype == float64 ? find<double>(pass) : nullptr;
}

}  // namespace
}  // namespace tenor::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::reduce {
HWY_EXPORT(find_shifted_kernels);
HWY_EXPORT(find_deviations);
const Kernels* shifted_kernels(Pass pass, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(find_shifted_kernels)(pass, dtype);
}
DeviationsFn deviations(DType dtype) { return HWY_DYNAMIC_DISPATCH(find_deviations)(dtype); }
}  // namespace tenor::reduce
#endif
