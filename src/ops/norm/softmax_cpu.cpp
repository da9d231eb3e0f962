// softmax and log_softmax over dense rows.
#include <memory>

#include "src/core/visit.h"
#include "src/ops/norm/norm_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/norm/softmax_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/norm/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// The row's largest element. A NaN may be passed over: then the sum of exponentials is NaN, and with it the row. The
/// order of a maximum is free, so four chains run side by side.
template <class T, class C = core::Compute<T>>
HWY_INLINE C row_max(const T* x, size_t n) {
  const ComputeTag<T> d;
  const size_t lanes = hn::Lanes(d);
  auto a = hn::Set(d, -std::numeric_limits<C>::infinity()), b = a, c = a, e = a;
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = hn::Max(a, load(d, x + i));
    b = hn::Max(b, load(d, x + i + lanes));
    c = hn::Max(c, load(d, x + i + 2 * lanes));
    e = hn::Max(e, load(d, x + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) a = hn::Max(a, load(d, x + i));
  if (i < n) b = hn::Max(b, load_n(d, x + i, n - i, -std::numeric_limits<C>::infinity()));
  a = hn::Max(hn::Max(a, b), hn::Max(c, e));
  return hn::GetLane(combine_halves(d, a, [](auto, auto u, auto v) HWY_ATTR { return hn::Max(u, v); }));
}

/// e[i] = exp(x[i] - top) for i < n rounded up to a vector, and the sum of the first n in the reduction order. Asks for
/// what lies `ahead` elements behind x.
template <class T, class C = core::Compute<T>>
HWY_INLINE C exp_row(const T* x, C* e, size_t n, C top, int64_t ahead) {
  const ComputeTag<T> d;
  const auto t = hn::Set(d, top);
  const T* next = x + ahead;
  return reduce_row(
      x, n, C(0),
      [&](auto, auto v) HWY_ATTR {
        hwy::Prefetch(next);
        next += hn::Lanes(d);
        const auto value = math::exp(d, hn::Sub(v, t));
        hn::StoreU(value, d, e);  // elements come in order
        e += hn::Lanes(d);
        return value;
      },
      AddOp());
}

void softmax_block(const RowBlock& block, DType dtype) {
  core::visit_float(dtype, [&]<class T>() HWY_ATTR {
    using C = core::Compute<T>;
    const ComputeTag<T> d;
    const size_t n = static_cast<size_t>(block.length), lanes = hn::Lanes(d);
    // The exponentials go where the result will, if that has room for whole vectors of their type.
    const bool apart = !std::is_same_v<T, C> || n % lanes != 0;
    const std::unique_ptr<C[]> scratch(apart ? new C[n + lanes] : nullptr);
    for (int64_t r = 0; r < block.count; ++r) {
      const T* x = block.row<const T>(0, r);
      T* y = block.row<T>(1, r);
      C* e = apart ? scratch.get() : reinterpret_cast<C*>(y);
      const Divisor<T> sum(d, exp_row(x, e, n, row_max(x, n), block.ahead<T>(0)));
      for_lanes(d, n, [&](size_t i, auto io) HWY_ATTR { io.store(d, sum.divide(d, io.load(d, e + i)), y + i); });
    }
  });
}

/// The largest element and the sum of exponentials of rows that are still in cache when they are written.
template <class T, class C = core::Compute<T>>
void log_softmax_some(const RowBlock& block, int64_t first, int64_t count, C* tops, C* logs) {
  const ComputeTag<T> d;
  const size_t n = static_cast<size_t>(block.length);
  for (int64_t r = 0; r < count; ++r) {
    const T* x = block.row<const T>(0, first + r);
    tops[r] = row_max(x, n);
    const auto top = hn::Set(d, tops[r]);
    const T* next = x + block.ahead<T>(0);
    logs[r] = reduce_row(
        x, n, C(0),
        [&](auto, auto v) HWY_ATTR {
          hwy::Prefetch(next);
          next += hn::Lanes(d);
          return math::exp(d, hn::Sub(v, top));
        },
        AddOp());
  }
  logs_of_sums(logs, static_cast<size_t>(count));
  for (int64_t r = 0; r < count; ++r) {
    const T* x = block.row<const T>(0, first + r);
    T* y = block.row<T>(1, first + r);
    const auto top = hn::Set(d, tops[r]), log_sum = hn::Set(d, logs[r]);
    for_lanes(d, n, [&](size_t i, auto io) HWY_ATTR {
      io.store(d, hn::Sub(hn::Sub(io.load(d, x + i), top), log_sum), y + i);
    });
  }
}

void log_softmax_block(const RowBlock& block, DType dtype) {
  core::visit_float(dtype, [&]<class T>() HWY_ATTR {
    constexpr int64_t kRows = 16, kBytes = 16 << 10;  // one vector of logarithms, read from L1
    core::Compute<T> tops[kRows], logs[kRows];
    const int64_t some = std::clamp<int64_t>(kBytes / (block.length * static_cast<int64_t>(sizeof(T)) + 1), 1, kRows);
    for (int64_t r = 0; r < block.count; r += some)
      log_softmax_some<T>(block, r, std::min(some, block.count - r), tops, logs);
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
