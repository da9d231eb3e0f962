#include "src/core/visit.h"
#include "src/ops/moe/moe_kernels.h"
#include "src/ops/moe/moe_score.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/moe/moe_rows_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

void add_weighted(DType dtype, double weight, const void* row, void* sums, size_t n) {
  core::visit_float(dtype, [&]<class T>() HWY_ATTR {
    const ComputeTag<T> d;
    const T* x = static_cast<const T*>(row);
    auto* s = static_cast<core::Compute<T>*>(sums);
    const auto w = hn::Set(d, static_cast<core::Compute<T>>(weight));
    for_lanes(d, n, [&](size_t i, auto io) HWY_ATTR {
      io.store(d, hn::Add(io.load(d, s + i), hn::Mul(w, io.load(d, x + i))), s + i);
    });
  });
}

/// The formula is plain, and the compiler vectorises it: its bits are those of every instruction set and of CUDA.
void gated(DType dtype, const void* gate, const void* up, void* out, size_t n) {
  core::visit_float(dtype, [&]<class T>() HWY_ATTR {
    using C = core::Compute<T>;
    constexpr size_t kStrip = 256;
    const ComputeTag<T> d;
    const C *g = static_cast<const C*>(gate), *u = static_cast<const C*>(up);
    T* y = static_cast<T*>(out);
    C strip[kStrip];
    for (size_t at = 0; at < n; at += kStrip) {
      const size_t some = n - at < kStrip ? n - at : kStrip;
      for (size_t i = 0; i < some; ++i) strip[i] = moe::gated(g[at + i], u[at + i]);
      for_lanes(d, some, [&](size_t i, auto io) HWY_ATTR { io.store(d, io.load(d, strip + i), y + at + i); });
    }
  });
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(add_weighted);
HWY_EXPORT(gated);

void add_weighted_row(DType dtype, double weight, const void* row, void* sums, size_t n) {
  HWY_DYNAMIC_DISPATCH(add_weighted)(dtype, weight, row, sums, n);
}
void gated_row(DType dtype, const void* gate, const void* up, void* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(gated)(dtype, gate, up, out, n);
}

}  // namespace tenor::cpu
#endif  // HWY_ONCE
