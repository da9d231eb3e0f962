// argmax and argmin: where the extreme of a row is, and running extremes of columns with their places.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "src/core/visit.h"
#include "src/ops/reduce/reduce_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/reduce/arg_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::reduce::HWY_NAMESPACE {
using namespace tenor::cpu::HWY_NAMESPACE;
namespace hn = hwy::HWY_NAMESPACE;
namespace {

/// The first place where `hit(d, v)` holds, or n: of four vectors at once, then of one.
template <class T, class Hit>
HWY_INLINE int64_t find_first(const T* HWY_RESTRICT x, int64_t n, Hit hit) {
  const ComputeTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto at = [&](int64_t i) HWY_ATTR { return hit(d, load(d, x + i)); };
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes)
    if (!hn::AllFalse(d, hn::Or(hn::Or(at(i), at(i + lanes)), hn::Or(at(i + 2 * lanes), at(i + 3 * lanes))))) break;
  for (; i + lanes <= n; i += lanes)
    if (const intptr_t place = hn::FindFirstTrue(d, at(i)); place >= 0) return i + place;
  if (i == n) return n;
  const size_t rest = static_cast<size_t>(n - i);
  const intptr_t place = hn::FindFirstTrue(d, hn::And(hn::FirstN(d, rest), hit(d, load_n(d, x + i, rest))));
  return place >= 0 ? i + place : n;
}

template <class T>
int64_t find_float(const void* data, int64_t n, const void* value) {
  using C = core::Compute<T>;
  const T* x = static_cast<const T*>(data);
  const C wanted = *static_cast<const C*>(value);
  if (std::isnan(wanted)) return find_first(x, n, [](auto, auto v) HWY_ATTR { return hn::IsNaN(v); });
  return find_first(x, n, [wanted](auto d, auto v) HWY_ATTR { return hn::Eq(v, hn::Set(d, wanted)); });
}

/// The larger (or smaller) one; where one is NaN, either.
template <bool kLargest, class V>
HWY_INLINE V extreme_of(V a, V b) {
  return kLargest ? hn::Max(a, b) : hn::Min(a, b);
}

/// The place of the first NaN, else of the first extreme. Of groups of eight vectors extremes meet first, and lanes
/// keep theirs with the number of its group, whose elements alone are looked at afterwards. Sums, which keep a NaN, go
/// beside them; they tell of one also where infinities meet.
template <class T, bool kLargest>
int64_t row_place(const void* data, int64_t n) {
  using C = core::Compute<T>;
  using V = hn::Vec<ComputeTag<T>>;
  constexpr int64_t kTogether = 8;
  const ComputeTag<T> d;
  const T* x = static_cast<const T*>(data);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), group = kTogether * lanes;
  const V none = hn::Set(d, (kLargest ? -1 : 1) * std::numeric_limits<C>::infinity());
  V best = none, number = hn::Zero(d), sum = hn::Zero(d);
  const auto meet = [&](V extreme, int64_t i) HWY_ATTR {
    const auto better = kLargest ? hn::Gt(extreme, best) : hn::Lt(extreme, best);
    best = extreme_of<kLargest>(extreme, best);
    number = hn::IfThenElse(better, hn::Set(d, static_cast<C>(i / group)), number);
  };
  int64_t i = 0;
  for (; i + group <= n; i += group) {
    V extremes[kTogether], sums[kTogether];
    for (int64_t k = 0; k < kTogether; ++k) extremes[k] = sums[k] = load(d, x + i + k * lanes);
    for (int64_t half = kTogether / 2; half > 0; half /= 2)
      for (int64_t k = 0; k < half; ++k) {
        extremes[k] = extreme_of<kLargest>(extremes[k], extremes[k + half]);
        sums[k] = hn::Add(sums[k], sums[k + half]);
      }
    sum = hn::Add(sum, sums[0]);
    meet(extremes[0], i);
  }
  for (int64_t j = i; j < n; j += lanes) {
    const size_t rest = static_cast<size_t>(n - j);
    const V v = j + lanes <= n ? load(d, x + j) : hn::IfThenElse(hn::FirstN(d, rest), load_n(d, x + j, rest), none);
    sum = hn::Add(sum, v);
    meet(v, i);
  }
  if (!hn::AllFalse(d, hn::IsNaN(sum))) {
    const int64_t place = find_first(x, n, [](auto, auto v) HWY_ATTR { return hn::IsNaN(v); });
    if (place < n) return place;
  }
  const V extreme = kLargest ? hn::MaxOfLanes(d, best) : hn::MinOfLanes(d, best);
  const V numbers = hn::IfThenElse(hn::Eq(best, extreme), number, hn::Set(d, std::numeric_limits<C>::max()));
  const int64_t first = static_cast<int64_t>(hn::GetLane(hn::MinOfLanes(d, numbers))) * group;
  return first + find_first(x + first, std::min(group, n - first),
                            [extreme](auto, auto v) HWY_ATTR { return hn::Eq(v, extreme); });
}

template <class T>
int64_t find_integer(const void* data, int64_t n, const void* value) {
  const T* x = static_cast<const T*>(data);
  const T wanted = *static_cast<const T*>(value);
  constexpr int64_t kGroup = 64;
  int64_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    T hits = 0;
    for (int64_t j = 0; j < kGroup; ++j) hits |= static_cast<T>(x[i + j] == wanted);
    if (hits) break;
  }
  for (; i < n; ++i)
    if (x[i] == wanted) return i;
  return n;
}

/// The first NaN, then the first extreme.
template <class T, bool kLargest>
void columns(const void* data, int64_t stride, int64_t rows, int64_t first, int64_t width, void* extremes,
             int64_t* HWY_RESTRICT indices) {
  T* HWY_RESTRICT best = static_cast<T*>(extremes);
  for (int64_t r = 0; r < rows; ++r) {
    const T* HWY_RESTRICT x = static_cast<const T*>(data) + r * stride;
    if (first + r == 0) {
      for (int64_t c = 0; c < width; ++c) best[c] = x[c];
      for (int64_t c = 0; c < width; ++c) indices[c] = 0;
      continue;
    }
    for (int64_t c = 0; c < width; ++c) {
      const T v = x[c], b = best[c];
      bool take = kLargest ? v > b : v < b;
      if constexpr (std::is_floating_point_v<T>) take = take | ((v != v) & (b == b));
      best[c] = take ? v : b;
      indices[c] = take ? first + r : indices[c];
    }
  }
}

template <class T>
constexpr ArgKernels float_kernels{find_float<T>, row_place<T, true>, row_place<T, false>};

const ArgKernels* find_arg_kernels(DType dtype) {
  static constexpr ArgKernels kHalf = float_kernels<Float16>, kBrain = float_kernels<BFloat16>,
                              kFloat = float_kernels<float>, kDouble = float_kernels<double>;
  static constexpr ArgKernels k1{find_integer<uint8_t>, nullptr, nullptr}, k2{find_integer<uint16_t>, nullptr, nullptr},
      k4{find_integer<uint32_t>, nullptr, nullptr}, k8{find_integer<uint64_t>, nullptr, nullptr};
  switch (dtype) {
    case DType::kFloat16:
      return &kHalf;
    case DType::kBFloat16:
      return &kBrain;
    case DType::kFloat32:
      return &kFloat;
    case DType::kFloat64:
      return &kDouble;
    default:
      break;
  }
  switch (item_size(dtype)) {
    case 1:
      return &k1;
    case 2:
      return &k2;
    case 4:
      return &k4;
    default:
      return &k8;
  }
}

ArgColumnsFn find_arg_columns(bool largest, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return largest ? columns<float, true> : columns<float, false>;
    case DType::kFloat64:
      return largest ? columns<double, true> : columns<double, false>;
    case DType::kUInt64:
      return largest ? columns<uint64_t, true> : columns<uint64_t, false>;
    default:
      return largest ? columns<int64_t, true> : columns<int64_t, false>;
  }
}

}  // namespace
}  // namespace tenor::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::reduce {

HWY_EXPORT(find_arg_kernels);
HWY_EXPORT(find_arg_columns);

const ArgKernels& arg_kernels(DType dtype) { return *HWY_DYNAMIC_DISPATCH(find_arg_kernels)(dtype); }
ArgColumnsFn arg_columns(bool largest, DType dtype) { return HWY_DYNAMIC_DISPATCH(find_arg_columns)(largest, dtype); }

}  // namespace tenor::reduce
#endif
