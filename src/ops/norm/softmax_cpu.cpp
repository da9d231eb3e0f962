// softmax and log_softmax over dense rows.
#include <memory>

#include "src/core/visit.h"
#include "src/ops/norm/norm_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/norm/softmax_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/math-inl.h"
#include "src/ops/norm/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

struct Itself {
  template <class D, class V>
  HWY_INLINE V operator()(D, V v) const {
    return v;
  }
};
struct MaxOp {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Max(a, b);
  }
};

/// The row's largest element. A NaN may be passed over: then the sum of exponentials is NaN, and with it the row.
template <class T>
HWY_INLINE core::Compute<T> row_max(const T* x, size_t n) {
  return reduce_row(x, n, -std::numeric_limits<core::Compute<T>>::infinity(), Itself(), MaxOp());
}

/// e = exp(x - top), and its sum in the reduction order, block by block while both are in cache.
template <class T, class C = core::Compute<T>>
HWY_INLINE C exp_row(const T* x, C* e, size_t n, C top) {
  const ComputeTag<T> d;
  const auto t = hn::Set(d, top);
  core::BlockCounter<C> blocks;
  const auto add = [](C a, C b) { return a + b; };
  for (size_t start = 0; start < n; start += core::kReductionBlock) {
    const size_t m = std::min<size_t>(core::kReductionBlock, n - start);
    for_lanes(d, m, [&](size_t i, auto io) HWY_ATTR {
      io.store(d, math::exp(d, hn::Sub(io.load(d, x + start + i), t)), e + start + i);
    });
    blocks.push(reduce_block(e + start, m, C(0), Itself(), AddOp()), add);
  }
  return blocks.finish(C(0), add);
}

void softmax_block(const RowBlock& block, DType dtype) {
  core::visit_float(dtype, [&]<class T>() HWY_ATTR {
    using C = core::Compute<T>;
    const ComputeTag<T> d;
    const size_t n = static_cast<size_t>(block.length);
    std::unique_ptr<C[]> scratch;  // where the result itself cannot hold the exponentials
    if constexpr (!std::is_same_v<T, C>) scratch.reset(new C[n]);
    for (int64_t r = 0; r < block.count; ++r) {
      const T* x = block.row<const T>(0, r);
      T* y = block.row<T>(1, r);
      C* e = scratch.get();
      if constexpr (std::is_same_v<T, C>) e = y;
      const auto sum = hn::Set(d, exp_row(x, e, n, row_max(x, n)));
      for_lanes(d, n, [&](size_t i, auto io) HWY_ATTR { io.store(d, hn::Div(io.load(d, e + i), sum), y + i); });
    }
  });
}

void log_softmax_block(const RowBlock& block, DType dtype) {
  core::visit_float(dtype, [&]<class T>() HWY_ATTR {
    using C = core::Compute<T>;
    const ComputeTag<T> d;
    const size_t n = static_cast<size_t>(block.length);
    for (int64_t r = 0; r < block.count; ++r) {
      const T* x = block.row<const T>(0, r);
      T* y = block.row<T>(1, r);
      const auto top = hn::Set(d, row_max(x, n));
      const C sum = reduce_row(x, n, C(0), [&](auto, auto v) HWY_ATTR { return math::exp(d, hn::Sub(v, top)); }, AddOp());
      const auto log_sum = hn::Set(d, static_cast<C>(std::log(static_cast<double>(sum))));
      for_lanes(d, n, [&](size_t i, auto io) HWY_ATTR {
        io.store(d, hn::Sub(hn::Sub(io.load(d, x + i), top), log_sum), y + i);
      });
    }
  });
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(softmax_block);
HWY_EXPORT(log_softmax_block);

void softmax_rows(const RowBlock& block, DType dtype) { HWY_DYNAMIC_DISPATCH(softmax_block)(block, dtype); }
void log_softmax_rows(const RowBlock& block, DType dtype) { HWY_DYNAMIC_DISPATCH(log_softmax_block)(block, dtype); }

}  // namespace tenor::cpu
#endif  // HWY_ONCE
