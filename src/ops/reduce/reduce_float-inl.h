// Float kernels of a reduction, from its element function and its combine; see reduce_kernels.h. Both the row and the
// column form walk core/reduction_order.h, so a result's bits do not depend on which of them ran.
#if defined(TENOR_REDUCE_FLOAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_REDUCE_FLOAT_INL_H_
#undef TENOR_REDUCE_FLOAT_INL_H_
#else
#define TENOR_REDUCE_FLOAT_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "src/cpu/simd-inl.h"
#include "src/ops/reduce/reduce_kernels.h"
#include "src/ops/reduce/reduce_short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::reduce::HWY_NAMESPACE {
using namespace tenor::cpu::HWY_NAMESPACE;  // load, store, reduce_block
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
inline constexpr bool kMaxKeepsNaN = false;
#else
inline constexpr bool kMaxKeepsNaN = true;  ///< Max(b, a) is NaN where a is: its second operand on x86, always on Arm
#endif

struct Add {
  template <class C>
  static constexpr C identity() {
    return C(0);
  }
  template <class D, class V>
  static HWY_INLINE V combine(D, V a, V b) {
    return hn::Add(a, b);
  }
};
struct Multiply {
  template <class C>
  static constexpr C identity() {
    return C(1);
  }
  template <class D, class V>
  static HWY_INLINE V combine(D, V a, V b) {
    return hn::Mul(a, b);
  }
};
/// The larger one, or a NaN.
struct Larger {
  template <class C>
  static constexpr C identity() {
    return -std::numeric_limits<C>::infinity();
  }
  template <class D, class V>
  static HWY_INLINE V combine(D, V a, V b) {
    if constexpr (kMaxKeepsNaN) return hn::IfThenElse(hn::IsNaN(b), b, hn::Max(b, a));
    return hn::IfThenElse(hn::Or(hn::IsNaN(b), hn::Gt(b, a)), b, a);
  }
};
struct Smaller {
  template <class C>
  static constexpr C identity() {
    return std::numeric_limits<C>::infinity();
  }
  template <class D, class V>
  static HWY_INLINE V combine(D, V a, V b) {
    if constexpr (kMaxKeepsNaN) return hn::IfThenElse(hn::IsNaN(b), b, hn::Min(b, a));
    return hn::IfThenElse(hn::Or(hn::IsNaN(b), hn::Lt(b, a)), b, a);
  }
};

/// Op: `map(d, x, shift, power)`, the element function; `Combine`; `kShifted`, whether it reads a shift; `kShortRows`,
/// where it is there, that short rows are worth kernels of their own, and `kCostly` that memory does not set the pace.
template <class T, class Op>
struct FloatKernels {
  using C = core::Compute<T>;
  using D = ComputeTag<T>;
  using V = hn::Vec<D>;
  using Combine = typename Op::Combine;
  static constexpr int64_t kLanes = core::kReductionLanes;
  static constexpr size_t kUnroll = requires { Op::kCostly; }
  ? 1 : 4;                             // what costs more than its memory is not unrolled
  static constexpr int64_t kFold = 4;  // rows of a lane folded while its accumulators are in registers
  static constexpr int64_t kFoldBytes =
      16 << 10;  // of narrow rows, more of them: these are walked once for every two vectors

  /// Elements from one of a run to the one that is asked for meanwhile: the next run, of which the hardware's
  /// prefetchers know nothing, follows this one.
  static constexpr int64_t kRunAhead = 4096 / static_cast<int64_t>(sizeof(T));

  static void rows(const void* x, int64_t stride, int64_t rows, int64_t n, const void* shifts, double power,
                   void* results) {
    const bool long_rows = n >= 16 * kLanes;  // short ones gain nothing by rounds of several sets of lanes
    for (int64_t r = 0; r < rows; ++r) {
      const T* row = static_cast<const T*>(x) + r * stride;
      const C shift = Op::kShifted ? static_cast<const C*>(shifts)[r] : C(0);
      static_cast<C*>(results)[r] = long_rows ? block<kUnroll>(row, n, shift, power) : block<1>(row, n, shift, power);
    }
  }
  template <size_t kSets>
  static HWY_INLINE C block(const T* x, int64_t n, C about, double power) {
    const D d;
    const V shift = hn::Set(d, about);
    return reduce_block<kSets>(
        x, static_cast<size_t>(n), Combine::template identity<C>(),
        [&](D t, V v) HWY_ATTR { return Op::map(t, v, shift, power); },
        [](D t, V a, V b) HWY_ATTR { return Combine::combine(t, a, b); });
  }

  static void runs(const void* data, int64_t stride, int64_t outputs, int64_t n, double power, void* lanes) {
    const D d;
    constexpr int64_t kVectors = kLanes / static_cast<int64_t>(hn::MaxLanes(D()));
    const int64_t width = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t r = 0; r < outputs; ++r) {
      const T* x = static_cast<const T*>(data) + r * stride;
      C* own = static_cast<C*>(lanes) + r * kLanes;
      V acc[kVectors];
      for (int64_t v = 0; v < kVectors; ++v) acc[v] = hn::LoadU(d, own + v * width);
      for (int64_t i = 0; i < n; i += kLanes)
        for (int64_t v = 0; v < kVectors; ++v) {
          hwy::Prefetch(x + i + v * width + kRunAhead);
          acc[v] = Combine::combine(d, acc[v], Op::map(d, load(d, x + i + v * width), hn::Zero(d), power));
        }
      for (int64_t v = 0; v < kVectors; ++v) hn::StoreU(acc[v], d, own + v * width);
    }
  }

  /// acc[c] takes the elements x[j * stride + c], j < count, in order. `ahead`: where the elements of the next call
  /// lie, for which this one asks: the hardware's prefetchers follow neither several rows nor vectors that cross cache
  /// lines.
  template <int64_t kCount = 0>
  static void fold(const T* x, int64_t stride, int64_t count, int64_t width, const C* shifts, double power, C* acc,
                   int64_t ahead = 0) {
    const D d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t c = 0;
    for (; c + 2 * lanes <= width; c += 2 * lanes) {  // two chains of additions
      const V shift = Op::kShifted ? hn::LoadU(d, shifts + c) : hn::Zero(d);
      const V next_shift = Op::kShifted ? hn::LoadU(d, shifts + c + lanes) : hn::Zero(d);
      V a = hn::LoadU(d, acc + c), b = hn::LoadU(d, acc + c + lanes);
      const int64_t n = kCount > 0 ? kCount : count;
#pragma GCC unroll 4
      for (int64_t j = 0; j < n; ++j) {
        const char* next = reinterpret_cast<const char*>(x + j * stride + c) + ahead * static_cast<int64_t>(sizeof(T));
        for (size_t at = 0; ahead && at < 2 * hn::Lanes(d) * sizeof(T); at += 64) hwy::Prefetch(next + at);
        a = Combine::combine(d, a, Op::map(d, load(d, x + j * stride + c), shift, power));
        b = Combine::combine(d, b, Op::map(d, load(d, x + j * stride + c + lanes), next_shift, power));
      }
      hn::StoreU(a, d, acc + c);
      hn::StoreU(b, d, acc + c + lanes);
    }
    for (; c + lanes <= width; c += lanes) {
      const V shift = Op::kShifted ? hn::LoadU(d, shifts + c) : hn::Zero(d);
      V a = hn::LoadU(d, acc + c);
      for (int64_t j = 0; j < count; ++j)
        a = Combine::combine(d, a, Op::map(d, load(d, x + j * stride + c), shift, power));
      hn::StoreU(a, d, acc + c);
    }
    if (c == width) return;
    const size_t rest = static_cast<size_t>(width - c);
    const V shift = Op::kShifted ? load_n(d, shifts + c, rest) : hn::Zero(d);
    V a = load_n(d, acc + c, rest);
    for (int64_t j = 0; j < count; ++j)
      a = Combine::combine(d, a, Op::map(d, load_n(d, x + j * stride + c, rest), shift, power));
    store_n(d, a, acc + c, rest);
  }

  static void columns(const void* data, int64_t stride, int64_t rows, int64_t first, int64_t width, const void* shifts,
                      double power, void* lanes, int64_t pitch) {
    const T* x = static_cast<const T*>(data);
    C* acc = static_cast<C*>(lanes);
    const C* shift = static_cast<const C*>(shifts);
    while (rows > 0) {
      const int64_t lane = first % kLanes;
      const bool narrow = !Op::kShifted && stride == width && pitch == width;
      const int64_t most =
          narrow ? std::max<int64_t>(kFold, kFoldBytes / static_cast<int64_t>(sizeof(T)) / (kLanes * width)) : kFold;
      const int64_t groups = rows / kLanes < most ? rows / kLanes : most;
      int64_t taken = 1;
      if (lane != 0 || rows < 2) {
        fold(x, stride, 1, width, shift, power, acc + lane * pitch);
      } else if (narrow) {
        // Narrow dense rows: 32 of them are one row of accumulators.
        taken = groups > 0 ? groups * kLanes : rows;
        fold(x, kLanes * width, groups > 0 ? groups : 1, (groups > 0 ? kLanes : rows) * width, nullptr, power, acc,
             kFoldBytes / static_cast<int64_t>(sizeof(T)));
      } else if (groups > 0) {
        for (int64_t l = 0; l < kLanes; ++l)
          if (sizeof(T) >= 4 && groups == kFold)  // unrolled; 16-bit floats only lose by it
            fold<kFold>(x + l * stride, kLanes * stride, groups, width, shift, power, acc + l * pitch, stride);
          else
            fold(x + l * stride, kLanes * stride, groups, width, shift, power, acc + l * pitch, stride);
        taken = groups * kLanes;
      } else {
        fold(x, stride, 1, width, shift, power, acc);
      }
      x += taken * stride;
      first += taken;
      rows -= taken;
    }
  }

  static void start(void* accumulators, int64_t n) {
    for (int64_t i = 0; i < n; ++i) static_cast<C*>(accumulators)[i] = Combine::template identity<C>();
  }

  static void combine(void* into, const void* from, int64_t n) {
    const D d;
    C* a = static_cast<C*>(into);
    const C* b = static_cast<const C*>(from);
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(Combine::combine(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, a + i);
    if (i < n) {
      const size_t rest = static_cast<size_t>(n - i);
      store_n(d, Combine::combine(d, load_n(d, a + i, rest), load_n(d, b + i, rest)), a + i, rest);
    }
  }

  static void finish(void* lanes, int64_t rows, int64_t width, int64_t pitch) {
    // Lanes that took nothing hold the identity, and combine(x, identity) is x: they are skipped.
    C* acc = static_cast<C*>(lanes);
    for (int64_t half = kLanes / 2; half > 0; half /= 2)
      if (pitch == width && rows >= kLanes)
        combine(acc, acc + half * pitch, half * width);
      else
        for (int64_t l = 0; l < half && l + half < rows; ++l) combine(acc + l * pitch, acc + (l + half) * pitch, width);
  }

#if HWY_TARGET != HWY_SCALAR
  static void short_rows(const void* data, int64_t stride, int64_t rows, int64_t n, double power, void* results) {
    const auto run = [&]<int kWidth>() HWY_ATTR {
      HWY_NAMESPACE::short_rows<kWidth>(
          static_cast<const T*>(data), stride, rows, n, Combine::template identity<C>(),
          [power](D d, V v) HWY_ATTR { return Op::map(d, v, hn::Zero(d), power); },
          [](D d, V a, V b) HWY_ATTR { return Combine::combine(d, a, b); }, static_cast<C*>(results));
    };
    n <= 2    ? run.template operator()<2>()
    : n <= 4  ? run.template operator()<4>()
    : n <= 8  ? run.template operator()<8>()
    : n <= 16 ? run.template operator()<16>()
              : run.template operator()<32>();
  }
#endif
  static constexpr auto short_kernel() -> decltype(Kernels::short_rows) {
#if HWY_TARGET != HWY_SCALAR
    if constexpr (requires { Op::kShortRows; }) return short_rows;
#endif
    return nullptr;
  }

  static constexpr Kernels kTable{sizeof(C) == 4 ? DType::kFloat32 : DType::kFloat64,
                                  rows,
                                  columns,
                                  start,
                                  finish,
                                  combine,
                                  short_kernel(),
                                  Op::kShifted ? nullptr : runs};
};

}  // namespace tenor::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TENOR_REDUCE_FLOAT_INL_H_
