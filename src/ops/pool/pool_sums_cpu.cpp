// Sums of sizes or of squares in float64, of neighbouring channels: what lp_pool's rows of outputs are made of.
#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/pool/pool_sums_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/core/visit.h"
#include "src/cpu/simd-inl.h"
#include "src/ops/pool/pool_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

using Wide = hn::ScalableTag<double>;
using Narrow = hn::Rebind<float, Wide>;

template <bool Squares, class V>
HWY_INLINE V sized(V v) {
  if constexpr (Squares) return hn::Mul(v, v);
  return hn::Abs(v);
}

template <bool Squares, class T>
void add_channels(const T* from, int64_t hop, int64_t count, int64_t channels, double* sums) {
  const Wide d;
  const Narrow narrow;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t t = 0; t < count; ++t, from += hop, sums += channels) {
    int64_t l = 0;
    for (; l + lanes <= channels; l += lanes) {
      const auto v = hn::PromoteTo(d, load(narrow, from + l));
      hn::StoreU(hn::Add(hn::LoadU(d, sums + l), sized<Squares>(v)), d, sums + l);
    }
    for (; l < channels; ++l) {
      const double v = core::widen(from[l]);
      sums[l] += Squares ? v * v : std::fabs(v);
    }
  }
}

void give_floats(const double* sums, int64_t n, bool squares, float* to) {
  const Wide d;
  const Narrow narrow;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto sum = hn::LoadU(d, sums + i);
    hn::StoreU(hn::DemoteTo(narrow, squares ? hn::Sqrt(sum) : sum), narrow, to + i);
  }
  for (; i < n; ++i) to[i] = static_cast<float>(squares ? std::sqrt(sums[i]) : sums[i]);
}

template <class To>
void give_norms(const double* sums, int64_t n, bool squares, To* to) {
  if constexpr (std::is_same_v<To, float>) return give_floats(sums, n, squares, to);
  constexpr int64_t kRun = 64;
  float norms[kRun];
  for (int64_t i = 0; i < n; i += kRun) {
    const int64_t count = std::min(kRun, n - i);
    give_floats(sums + i, count, squares, norms);
    map_row(norms, to + i, static_cast<size_t>(count), [](auto, auto v) HWY_ATTR { return v; });
  }
}

void add_channels_of(DType dtype, const void* from, int64_t hop, int64_t count, int64_t channels, bool squares,
                     double* sums) {
  core::visit_float(dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) {
      const T* typed = static_cast<const T*>(from);
      if (squares)
        add_channels<true>(typed, hop, count, channels, sums);
      else
        add_channels<false>(typed, hop, count, channels, sums);
    }
  });
}

void give_norms_of(const double* sums, int64_t n, bool squares, DType dtype, void* to) {
  core::visit_float(dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) give_norms(sums, n, squares, static_cast<T*>(to));
  });
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
HWY_EXPORT(add_channels_of);
HWY_EXPORT(give_norms_of);

void add_channel_sizes(DType dtype, const void* from, int64_t hop, int64_t count, int64_t channels, bool squares,
                       double* sums) {
  HWY_DYNAMIC_DISPATCH(add_channels_of)(dtype, from, hop, count, channels, squares, sums);
}
void give_norms(const double* sums, int64_t n, bool squares, DType dtype, void* to) {
  HWY_DYNAMIC_DISPATCH(give_norms_of)(sums, n, squares, dtype, to);
}

}  // namespace tenor::cpu
#endif
