#include "src/cpu/any_nan.h"

#include <algorithm>
#include <atomic>

#include "src/core/visit.h"
#include "src/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/any_nan.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// Of 16-bit floats: whether a size is above that of infinity.
bool any_above(const int16_t* data, int64_t n, int16_t infinity) {
  const hn::ScalableTag<int16_t> d;
  const auto size = hn::Set(d, int16_t{0x7FFF});
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto most = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) most = hn::Max(most, hn::And(hn::LoadU(d, data + i), size));
  bool found = !hn::AllFalse(d, hn::Gt(most, hn::Set(d, infinity)));
  for (; i < n; ++i) found |= (data[i] & 0x7FFF) > infinity;
  return found;
}

template <class T>
bool any_unequal(const T* data, int64_t n) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);  // NaN once one was met
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, data + i);
    sum = hn::IfThenElse(hn::Eq(v, v), sum, v);
  }
  bool found = !hn::AllTrue(d, hn::Eq(sum, sum));
  for (; i < n; ++i) found |= data[i] != data[i];
  return found;
}

bool any_nan_of(DType dtype, const void* data, int64_t n) {
  if (dtype == DType::kFloat64) return any_unequal(static_cast<const double*>(data), n);
  if (dtype == DType::kFloat32) return any_unequal(static_cast<const float*>(data), n);
  return any_above(static_cast<const int16_t*>(data), n, dtype == DType::kBFloat16 ? 0x7F80 : 0x7C00);
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
HWY_EXPORT(any_nan_of);

bool any_nan(DType dtype, const void* data, int64_t n) {
  const auto item = static_cast<int64_t>(item_size(dtype));
  std::atomic<bool> found = false;
  parallel_for(n, grain_of(item), [&](int64_t first, int64_t last) {
    if (HWY_DYNAMIC_DISPATCH(any_nan_of)(dtype, static_cast<const char*>(data) + first * item, last - first))
      found.store(true, std::memory_order_relaxed);
  });
  return found;
}

}  // namespace tenor::cpu
#endif
