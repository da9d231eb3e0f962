#include <limits>

#include "src/ops/scan/scan_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/scan/scan_cpu_simd.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/math-inl.h"
#include "src/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::scan::HWY_NAMESPACE {
using namespace tenor::cpu::HWY_NAMESPACE;
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// ---- products: plain loops, which vectorise over the lines ----

/// Unsigned, so that integers wrap.
template <class A>
using Wrapping = std::conditional_t<std::is_floating_point_v<A>, A, uint64_t>;

template <class A>
struct Products {
  static A multiply(A a, A b) { return static_cast<A>(static_cast<Wrapping<A>>(a) * static_cast<Wrapping<A>>(b)); }

  static void start(void* state, int64_t lines) {
    for (int64_t i = 0; i < 2 * lines; ++i) static_cast<A*>(state)[i] = 1;
  }

  static void next_block(void* state, int64_t lines) {
    A *before = static_cast<A*>(state), *local = before + lines;
    for (int64_t l = 0; l < lines; ++l) {
      before[l] = multiply(before[l], local[l]);
      local[l] = 1;
    }
  }

  // x may be y: each place is read before it is written, so the loops must not be told otherwise.
  static void columns(const void* from, int64_t x_stride, void* to, int64_t y_stride, int64_t n, int64_t lines,
                      void* state) {
    const A* HWY_RESTRICT before = static_cast<const A*>(state);
    A* HWY_RESTRICT local = static_cast<A*>(state) + lines;
    for (int64_t i = 0; i < n; ++i) {
      const A* x = static_cast<const A*>(from) + i * x_stride;
      A* y = static_cast<A*>(to) + i * y_stride;
#pragma GCC ivdep
      for (int64_t l = 0; l < lines; ++l) {
        const A product = multiply(local[l], x[l]);
        local[l] = product;
        y[l] = multiply(before[l], product);
      }
    }
  }

  template <int64_t kLines>
  static void rows_of(const A* x, int64_t x_stride, A* y, int64_t y_stride, int64_t n, A* before, A* local) {
    A b[kLines], running[kLines];
    for (int64_t l = 0; l < kLines; ++l) b[l] = before[l], running[l] = local[l];
    for (int64_t i = 0; i < n; ++i) {
      // All loads before all stores: where lines lie a multiple of 4096 bytes apart, a load behind a store of the same
      // low address bits would wait for it.
#pragma GCC unroll 8
      for (int64_t l = 0; l < kLines; ++l) running[l] = multiply(running[l], x[l * x_stride + i]);
#pragma GCC unroll 8
      for (int64_t l = 0; l < kLines; ++l) y[l * y_stride + i] = multiply(b[l], running[l]);
    }
    for (int64_t l = 0; l < kLines; ++l) local[l] = running[l];
  }

  static void rows(const void* from, int64_t x_stride, void* to, int64_t y_stride, int64_t n, int64_t lines,
                   void* state) {
    const A* x = static_cast<const A*>(from);
    A *y = static_cast<A*>(to), *before = static_cast<A*>(state), *local = before + lines;
    int64_t l = 0;
    for (; l + kRowLines <= lines; l += kRowLines)
      rows_of<kRowLines>(x + l * x_stride, x_stride, y + l * y_stride, y_stride, n, before + l, local + l);
    for (; l < lines; ++l) rows_of<1>(x + l * x_stride, x_stride, y + l * y_stride, y_stride, n, before + l, local + l);
  }

  static constexpr Kernels kTable{
      std::is_floating_point_v<A> ? (sizeof(A) == 4 ? DType::kFloat32 : DType::kFloat64) : DType::kInt64, start,
      next_block, columns, rows};
};

// ---- log of the sum of exponentials: the running maximum, and the sum relative to it, in double ----

void start_log(void* state, int64_t lines) {
  double *top = static_cast<double*>(state), *sum = top + lines;
  for (int64_t l = 0; l < lines; ++l) top[l] = -std::numeric_limits<double>::infinity(), sum[l] = 0;
}

/// One step of Lanes(d) lines: sum e^(x - top), kept relative to the largest x so far. NaN stays.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V step_log(D d, V x, V& top, V& sum) {
  const V high = hn::IfThenElse(hn::Or(hn::IsNaN(top), hn::Gt(top, x)), top, x);
  // -inf minus -inf, inf minus inf: against 0 the exponentials are 0 and inf, which is what they stand for.
  const V reference =
      hn::IfThenElse(hn::Eq(hn::Abs(high), hn::Set(d, std::numeric_limits<double>::infinity())), hn::Zero(d), high);
  const V rescaled = hn::IfThenElse(hn::Eq(sum, hn::Zero(d)), sum, hn::Mul(sum, math::exp(d, hn::Sub(top, reference))));
  const V old = hn::IfThenElse(hn::Eq(top, high), sum, rescaled);
  sum = hn::Add(old, math::exp(d, hn::Sub(x, reference)));
  top = high;
  return hn::Add(reference, math::log(d, sum));
}

void columns_log(const void* from, int64_t x_stride, void* to, int64_t y_stride, int64_t n, int64_t lines,
                 void* state) {
  const hn::ScalableTag<double> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const double* x = static_cast<const double*>(from);
  double *y = static_cast<double*>(to), *tops = static_cast<double*>(state), *sums = tops + lines;
  for (int64_t l = 0; l < lines; l += lanes) {
    const size_t width = static_cast<size_t>(lines - l < lanes ? lines - l : lanes);
    const bool whole = width == hn::Lanes(d);
    auto top = whole ? hn::LoadU(d, tops + l) : load_n(d, tops + l, width);
    auto sum = whole ? hn::LoadU(d, sums + l) : load_n(d, sums + l, width);
    for (int64_t i = 0; i < n; ++i) {
      const auto v = whole ? hn::LoadU(d, x + i * x_stride + l) : load_n(d, x + i * x_stride + l, width);
      const auto out = step_log(d, v, top, sum);
      if (whole)
        hn::StoreU(out, d, y + i * y_stride + l);
      else
        store_n(d, out, y + i * y_stride + l, width);
    }
    store_n(d, top, tops + l, width);
    store_n(d, sum, sums + l, width);
  }
}

// ---- running extremes ----

template <class A, bool kLargest>
void extremes(const void* from, void* to, int64_t* places, int64_t n, int64_t lines, int64_t first, void* state,
              int64_t* HWY_RESTRICT at) {
  A* HWY_RESTRICT best = static_cast<A*>(state);
  for (int64_t i = 0; i < n; ++i) {
    const A* HWY_RESTRICT x = static_cast<const A*>(from) + i * lines;
    A* HWY_RESTRICT y = static_cast<A*>(to) + i * lines;
    int64_t* HWY_RESTRICT p = places + i * lines;
    for (int64_t l = 0; l < lines; ++l) {
      const A v = x[l], b = best[l];
      bool take = kLargest ? v > b : v < b;
      if constexpr (std::is_floating_point_v<A>) take = take | ((v != v) & (b == b));
      take = take | (first + i == 0);
      y[l] = best[l] = take ? v : b;
      p[l] = at[l] = take ? first + i : at[l];
    }
  }
}

const Kernels* find_kernels(Op op, DType dtype) {
  static constexpr Kernels kLog{DType::kFloat64, start_log, nullptr, columns_log, nullptr};
  if (op == Op::kLogSumExp) return &kLog;
  if (dtype == float32) return &Products<float>::kTable;
  return dtype == float64 ? &Products<double>::kTable : &Products<int64_t>::kTable;
}

ExtremeFn find_extreme(bool largest, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return largest ? extremes<float, true> : extremes<float, false>;
    case DType::kFloat64:
      return largest ? extremes<double, true> : extremes<double, false>;
    case DType::kUInt64:
      return largest ? extremes<uint64_t, true> : extremes<uint64_t, false>;
    default:
      return largest ? extremes<int64_t, true> : extremes<int64_t, false>;
  }
}

}  // namespace
}  // namespace tenor::scan::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::scan {

HWY_EXPORT(find_kernels);
HWY_EXPORT(find_extreme);

const Kernels& kernels(Op op, DType dtype) { return *HWY_DYNAMIC_DISPATCH(find_kernels)(op, dtype); }
ExtremeFn extreme_kernel(bool largest, DType dtype) { return HWY_DYNAMIC_DISPATCH(find_extreme)(largest, dtype); }

}  // namespace tenor::scan
#endif
