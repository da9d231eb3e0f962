// Running sums in the order of scan_kernels.h: groups of kScanGroup elements, summed by halves. Along a row a group is
// a few vectors, down columns as many vectors as it has elements.
#include <type_traits>

#include "src/ops/scan/scan_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/scan/scan_cpu_sum.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/lanes-inl.h"
#include "src/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::scan::HWY_NAMESPACE {
using namespace tenor::cpu::HWY_NAMESPACE;
namespace hn = hwy::HWY_NAMESPACE;
namespace {

constexpr size_t kGroup = static_cast<size_t>(kScanGroup);

/// v[i] = the sum of elements 0 .. i, by halves: both halves first, then the first one's sum to all of the second.
template <size_t kCount, class V>
HWY_INLINE void sum_by_halves(V* v) {
  if constexpr (kCount > 1) {
    constexpr size_t kHalf = kCount / 2;
    sum_by_halves<kHalf>(v);
    sum_by_halves<kHalf>(v + kHalf);
    for (size_t i = kHalf; i < kCount; ++i) v[i] = hn::Add(v[kHalf - 1], v[i]);
  }
}

/// A value a lane, known when compiled.
template <class T, size_t kLanes>
struct alignas(64) LaneTable {
  T at[kLanes];
  template <class Of>
  static constexpr LaneTable of(Of value) {
    LaneTable table{};
    for (size_t i = 0; i < kLanes; ++i) table.at[i] = static_cast<T>(value(i));
    return table;
  }
};

/// The same over the lanes of one vector.
template <class D, class V = hn::Vec<D>>
class LaneSums {
 public:
  HWY_INLINE LaneSums() : last_(hn::SetTableIndices(D(), kLast.at)) { prepare<0>(); }

  /// A lane that takes nothing takes a zero: at most the sign of a zero, which a result does not show.
  HWY_INLINE V operator()(V v) const {
    for (size_t s = 0; s < kSteps; ++s)
      v = hn::Add(v, hn::IfThenElseZero(upper_[s], hn::TableLookupLanes(v, before_[s])));
    return v;
  }
  HWY_INLINE V last(V v) const { return hn::TableLookupLanes(v, last_); }

 private:
  using A = hn::TFromD<D>;
  using I = hwy::MakeSigned<A>;
  static constexpr size_t kLanes = hn::MaxLanes(D());
  static constexpr size_t kSteps = kLanes == 16 ? 4 : kLanes == 8 ? 3 : kLanes == 4 ? 2 : kLanes == 2 ? 1 : 0;
  static constexpr auto kLast = LaneTable<I, kLanes>::of([](size_t) { return kLanes - 1; });
  /// Of a step that sums pairs of `half` lanes: where the first half's sum is, and which lanes are in a second half.
  template <size_t kHalf>
  static constexpr auto kBefore = LaneTable<I, kLanes>::of([](size_t i) {
    return i / (2 * kHalf) * (2 * kHalf) + kHalf - 1;
  });
  template <size_t kHalf>
  static constexpr auto kUpper = LaneTable<A, kLanes>::of([](size_t i) { return i / kHalf % 2; });

  template <size_t kStep>
  HWY_INLINE void prepare() {
    if constexpr (kStep < kSteps) {
      before_[kStep] = hn::SetTableIndices(D(), kBefore<size_t{1} << kStep>.at);
      upper_[kStep] = hn::Ne(hn::Load(D(), kUpper<size_t{1} << kStep>.at), hn::Zero(D()));
      prepare<kStep + 1>();
    }
  }

  decltype(hn::SetTableIndices(D(), static_cast<const I*>(nullptr))) last_, before_[kSteps + 1];
  hn::Mask<D> upper_[kSteps + 1];
};

template <class A>
struct Sums {
  using D = hn::CappedTag<A, kGroup>;
  using V = hn::Vec<D>;
  static constexpr size_t kLanes = hn::MaxLanes(D()), kVectors = kGroup / kLanes;

  static void start(void* state, int64_t lines) {
    for (int64_t i = 0; i < 2 * lines; ++i) static_cast<A*>(state)[i] = 0;
  }

  static void next_block(void* state, int64_t lines) {
    const D d;
    A *before = static_cast<A*>(state), *local = before + lines;
    for_lanes(d, static_cast<size_t>(lines), [&](size_t l, auto io) HWY_ATTR {
      io.store(d, hn::Add(io.load(d, before + l), io.load(d, local + l)), before + l);
      io.store(d, hn::Zero(d), local + l);
    });
  }

  /// One group of a row, through `io`; `local` takes its sum.
  template <class Io>
  static HWY_INLINE void row_group(const LaneSums<D>& sums, Io io, const A* x, A* y, V before, V& local) {
    V v[kVectors];
    for (size_t k = 0; k < kVectors; ++k) v[k] = sums(io.load(k, x));
    for (size_t half = 1; half < kVectors; half *= 2)
      for (size_t k = half; k < kVectors; k += 2 * half) {
        const V end = sums.last(v[k - 1]);
        for (size_t i = k; i < k + half; ++i) v[i] = hn::Add(end, v[i]);
      }
    for (size_t k = 0; k < kVectors; ++k) io.store(hn::Add(before, hn::Add(local, v[k])), k, y);
    local = hn::Add(local, sums.last(v[kVectors - 1]));
  }

  /// Vector k of a whole group, and of one of n elements.
  struct WholeGroup {
    HWY_INLINE V load(size_t k, const A* x) const { return hn::LoadU(D(), x + k * kLanes); }
    HWY_INLINE void store(V v, size_t k, A* y) const { hn::StoreU(v, D(), y + k * kLanes); }
  };
  struct PartGroup {
    size_t n;
    HWY_INLINE V load(size_t k, const A* x) const {
      if (n >= (k + 1) * kLanes) return hn::LoadU(D(), x + k * kLanes);
      return n > k * kLanes ? load_n(D(), x + k * kLanes, n - k * kLanes) : hn::Zero(D());
    }
    HWY_INLINE void store(V v, size_t k, A* y) const {
      if (n >= (k + 1) * kLanes)
        hn::StoreU(v, D(), y + k * kLanes);
      else if (n > k * kLanes)
        store_n(D(), v, y + k * kLanes, n - k * kLanes);
    }
  };

  static void rows(const void* from, int64_t x_stride, void* to, int64_t y_stride, int64_t n, int64_t lines,
                   void* state) {
    const LaneSums<D> sums;
    A *before = static_cast<A*>(state), *local = before + lines;
    const size_t count = static_cast<size_t>(n);
    for (int64_t l = 0; l < lines; ++l) {
      const A* x = static_cast<const A*>(from) + l * x_stride;
      A* y = static_cast<A*>(to) + l * y_stride;
      const V b = hn::Set(D(), before[l]);
      V running = hn::Set(D(), local[l]);
      size_t i = 0;
      for (; i + kGroup <= count; i += kGroup) row_group(sums, WholeGroup(), x + i, y + i, b, running);
      if (i < count) row_group(sums, PartGroup{count - i}, x + i, y + i, b, running);
      local[l] = hn::GetLane(running);
    }
  }

  /// What a group's later quarters need of its earlier ones, for some lines: the sum of the quarter before in its half,
  /// and of the first half.
  struct Sofar {
    static constexpr int64_t kLines = 512;
    A quarter[kLines], half[kLines];
  };
  static constexpr int64_t kQuarter = kScanGroup / 4;

  /// `rows` elements of quarter `q` of a group, of the lines that `io` shows. Quarters, not whole groups, since rows
  /// may lie a multiple of 4096 bytes apart: more of them would compete for one cache set.
  template <int64_t q, class Io>
  static HWY_INLINE void column_quarter(Io io, const A* x, int64_t x_stride, A* y, int64_t y_stride, int64_t rows,
                                        const A* before, A* local, A* quarter, A* half) {
    const D d;
    V v[kQuarter];
    for (int64_t k = 0; k < kQuarter; ++k) v[k] = k < rows ? io.load(d, x + k * x_stride) : hn::Zero(d);
    sum_by_halves<kQuarter>(v);
    if (q == 0 || q == 2) io.store(d, v[kQuarter - 1], quarter);
    for (int64_t k = 0; k < kQuarter && q % 2 == 1; ++k) v[k] = hn::Add(io.load(d, quarter), v[k]);
    if (q == 1) io.store(d, v[kQuarter - 1], half);
    for (int64_t k = 0; k < kQuarter && q >= 2; ++k) v[k] = hn::Add(io.load(d, half), v[k]);
    const V b = io.load(d, before), running = io.load(d, local);
    for (int64_t k = 0; k < kQuarter; ++k)
      if (k < rows) io.store(d, hn::Add(b, hn::Add(running, v[k])), y + k * y_stride);
    if (q == 3) io.store(d, hn::Add(running, v[kQuarter - 1]), local);
  }

  /// A quarter is read before it is written: x may be y.
  template <int64_t q>
  static void column_quarters(const A* x, int64_t x_stride, A* y, int64_t y_stride, int64_t rows, int64_t lines,
                              const A* before, A* local, Sofar& sofar) {
    if (rows <= 0) return;
    for_lanes(D(), static_cast<size_t>(lines), [&](size_t l, auto io) HWY_ATTR {
      if (rows >= kQuarter)
        column_quarter<q>(io, x + l, x_stride, y + l, y_stride, kQuarter, before + l, local + l, sofar.quarter + l,
                          sofar.half + l);
      else
        column_quarter<q>(io, x + l, x_stride, y + l, y_stride, rows, before + l, local + l, sofar.quarter + l,
                          sofar.half + l);
    });
  }

  static void columns(const void* from, int64_t x_stride, void* to, int64_t y_stride, int64_t n, int64_t all_lines,
                      void* state) {
    Sofar sofar;
    for (int64_t first = 0; first < all_lines; first += Sofar::kLines) {
      const int64_t lines = all_lines - first < Sofar::kLines ? all_lines - first : Sofar::kLines;
      A *before = static_cast<A*>(state) + first, *local = before + all_lines;
      const A* x = static_cast<const A*>(from) + first;
      A* y = static_cast<A*>(to) + first;
      for (int64_t i = 0; i < n; i += kScanGroup) {
        const auto quarter = [&]<int64_t q>() HWY_ATTR {
          const int64_t at = i + q * kQuarter;
          column_quarters<q>(x + at * x_stride, x_stride, y + at * y_stride, y_stride, n - at, lines, before, local,
                             sofar);
        };
        quarter.template operator()<0>();
        quarter.template operator()<1>();
        quarter.template operator()<2>();
        quarter.template operator()<3>();
      }
    }
  }

  static constexpr Kernels kTable{
      std::is_floating_point_v<A> ? (sizeof(A) == 4 ? DType::kFloat32 : DType::kFloat64) : DType::kInt64, start,
      next_block, columns, rows};
};

const Kernels* find_sum_kernels(DType dtype) {
  if (dtype == float32) return &Sums<float>::kTable;
  return dtype == float64 ? &Sums<double>::kTable : &Sums<int64_t>::kTable;
}

}  // namespace
}  // namespace tenor::scan::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::scan {
HWY_EXPORT(find_sum_kernels);
const Kernels& sum_kernels(DType dtype) { return *HWY_DYNAMIC_DISPATCH(find_sum_kernels)(dtype); }
}  // namespace tenor::scan
#endif
