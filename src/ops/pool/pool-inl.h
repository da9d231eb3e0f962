// What the row kernels of pooling share: loads of every number type, the two combinations, rows of sources as dense
// runs, and rows cut into phases, so that a window's stride becomes a stride of one.
#if defined(TENOR_OPS_POOL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_OPS_POOL_INL_H_
#undef TENOR_OPS_POOL_INL_H_
#else
#define TENOR_OPS_POOL_INL_H_
#endif

#include <algorithm>
#include <limits>
#include <memory>

#include "src/core/visit.h"
#include "src/cpu/lanes-inl.h"
#include "src/ops/pool/pool_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// What numbers are combined in: float and double, and integers of 32 and 64 bits.
template <class T>
using PoolCompute = std::conditional_t<std::is_integral_v<T> && sizeof(T) < 4, int32_t, core::Compute<T>>;

/// Lanes(d) elements from p as d's.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_number(D d, const T* p) {
  if constexpr (std::is_integral_v<T> && sizeof(T) < sizeof(hn::TFromD<D>)) {
    const hn::Rebind<T, D> narrow;
    return hn::PromoteTo(d, hn::LoadU(narrow, p));
  } else {
    return load(d, p);
  }
}
/// body(i, load, store) over n elements of the compute type C: `load(p + i)` and `store(v, p + i)` stay within them.
struct WholeNumbers {
  template <class D, class T>
  HWY_INLINE hn::Vec<D> load(D d, const T* p) const {
    return load_number(d, p);
  }
  template <class D, class T>
  HWY_INLINE void store(D d, hn::Vec<D> v, T* p) const {
    if constexpr (std::is_same_v<T, hn::TFromD<D>> || core::kStorageFloat<T>) {
      HWY_NAMESPACE::store(d, v, p);
    } else {
      HWY_ALIGN hn::TFromD<D> wide[hn::MaxLanes(D())];
      hn::Store(v, d, wide);
      for (size_t i = 0; i < hn::Lanes(d); ++i) p[i] = static_cast<T>(wide[i]);
    }
  }
};
struct PartNumbers {
  size_t n;
  template <class D, class T>
  HWY_INLINE hn::Vec<D> load(D d, const T* p) const {
    if constexpr (std::is_same_v<T, hn::TFromD<D>> || core::kStorageFloat<T>) {
      return load_n(d, p, n);
    } else {
      HWY_ALIGN T part[hn::MaxLanes(D())] = {};
      std::memcpy(part, p, n * sizeof(T));
      return load_number(d, part);
    }
  }
  template <class D, class T>
  HWY_INLINE void store(D d, hn::Vec<D> v, T* p) const {
    HWY_ALIGN T part[hn::MaxLanes(D())];
    if constexpr (std::is_same_v<T, hn::TFromD<D>> || core::kStorageFloat<T>) {
      store_n(d, v, p, n);
    } else {
      WholeNumbers().store(d, v, part);
      std::memcpy(p, part, n * sizeof(T));
    }
  }
};
template <class D, class Body>
HWY_INLINE void for_numbers(D d, int64_t n, Body body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, WholeNumbers{});
  if (i < n) body(i, PartNumbers{static_cast<size_t>(n - i)});
}

/// The larger, a NaN if there is one.
struct MaxCombine {
  template <class D, class V>
  HWY_INLINE V operator()([[maybe_unused]] D d, V a, V b) const {
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
      return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
    } else {
      return hn::Max(a, b);
    }
  }
  /// The lowest element of T.
  template <class T>
  static constexpr PoolCompute<T> identity() {
    if constexpr (std::is_integral_v<T>)
      return std::numeric_limits<T>::lowest();
    else
      return -std::numeric_limits<PoolCompute<T>>::infinity();
  }
};
struct SumCombine : AddOp {
  template <class T>
  static constexpr PoolCompute<T> identity() {
    return 0;
  }
};

/// A tile's rows of sources as runs of dense elements of T: `runs` of `length`, `step` apart. Those that do not lie so,
/// or are of another type, are gathered into scratch memory.
template <class T>
class SourceRows {
 public:
  SourceRows(const PoolRows& rows, const PoolTile& tile, int64_t lanes)
      : rows_(rows), from_(tile.from), width_(tile.width()), lanes_(lanes) {
    const pool::PoolGrid& s = rows.g.source;
    const int64_t width = width_;
    const bool as_stored = item_size(rows.source.dtype()) == sizeof(T);
    runs = 1, length = step = width * lanes;
    if (as_stored && lanes == 1 && (s.stride[4] == 1 || width == 1)) return;
    if (as_stored && lanes > 1 && s.stride[1] == 1 && s.stride[4] == lanes) return;
    if (as_stored && lanes > 1 && s.stride[1] == 1) {
      runs = width, length = lanes, step = s.stride[4];
      return;
    }
    scratch_.reset(new T[static_cast<size_t>(width * lanes)]);
  }

  const T* row(const PoolRows::Task& task, int64_t d, int64_t h) {
    const pool::PoolGrid& s = rows_.g.source;
    const int64_t at = s.at(task.n, task.c, d, h, from_);
    if (!scratch_) return rows_.source.data<T>() + at;
    core::visit(rows_.source.dtype(), [&]<class S>() {
      const S* from = rows_.source.data<S>() + at;
      for (int64_t w = 0; w < width_; ++w)
        for (int64_t c = 0; c < lanes_; ++c)
          scratch_[w * lanes_ + c] = core::cast<T>(from[w * s.stride[4] + c * s.stride[1]]);
    });
    return scratch_.get();
  }

  /// Whether row() overwrites what it gave before.
  bool gathers() const { return scratch_ != nullptr; }

  int64_t runs, length, step;

 private:
  const PoolRows& rows_;
  int64_t from_, width_, lanes_;
  std::unique_ptr<T[]> scratch_;
};

/// How a row of one plane is cut: element i of phase r is element i * stride + r of the row with its padding, so a tap
/// reads neighbours for neighbouring windows.
struct Phases {
  Phases(const pool::PoolDim& dim, int64_t lanes) : stride(dim.stride), before(dim.before) {
    const int64_t used = (dim.output - 1) * dim.stride + dim.span(), held = dim.before + dim.input;
    const int64_t least = ((used > held ? used : held) + stride - 1) / stride;
    each = (least + lanes - 1) / lanes * lanes;
  }
  static bool fits(const pool::PoolDim& dim) {
    return !dim.bins && dim.stride <= 4 && dim.kernel <= 64 && dim.span() <= 4096 && dim.output > 0;
  }
  int64_t at(int64_t position) const { return position % stride * each + position / stride; }

  int64_t stride, before;
  int64_t each;  ///< elements of a phase, whole vectors
};

/// The padded row (stride * each elements) into its phases, or back.
template <class C>
HWY_INLINE void split_phases(const C* row, const Phases& p, C* to) {
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < p.each; i += lanes) {
    hn::Vec<decltype(d)> a, b, c, e;
    if (p.stride == 2) {
      hn::LoadInterleaved2(d, row + 2 * i, a, b);
    } else if (p.stride == 3) {
      hn::LoadInterleaved3(d, row + 3 * i, a, b, c);
      hn::StoreU(c, d, to + 2 * p.each + i);
    } else {
      hn::LoadInterleaved4(d, row + 4 * i, a, b, c, e);
      hn::StoreU(c, d, to + 2 * p.each + i);
      hn::StoreU(e, d, to + 3 * p.each + i);
    }
    hn::StoreU(a, d, to + i);
    hn::StoreU(b, d, to + p.each + i);
  }
}
template <class C>
HWY_INLINE void join_phases(const C* from, const Phases& p, C* row) {
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < p.each; i += lanes) {
    const auto at = [&](int64_t r) HWY_ATTR { return hn::LoadU(d, from + r * p.each + i); };
    if (p.stride == 2)
      hn::StoreInterleaved2(at(0), at(1), d, row + 2 * i);
    else if (p.stride == 3)
      hn::StoreInterleaved3(at(0), at(1), at(2), d, row + 3 * i);
    else
      hn::StoreInterleaved4(at(0), at(1), at(2), at(3), d, row + 4 * i);
  }
}

/// Rows that are combined at once.
inline constexpr int64_t kRowsAtOnce = 16;

template <class E>
std::unique_ptr<E[]> filled(int64_t n, E value) {
  std::unique_ptr<E[]> out(new E[static_cast<size_t>(n)]);
  std::fill(out.get(), out.get() + n, value);
  return out;
}

/// Tasks begin..end-1, each by a Kernel(rows, tile, lanes), which neighbouring tasks of one tile share.
template <class Kernel>
void run_tasks(const PoolRows& rows, int64_t begin, int64_t end) {
  std::unique_ptr<Kernel> kernel;
  int64_t lanes = 0, tile = -1;
  PoolRows::Task task = rows.task(begin);
  for (int64_t i = begin; i < end; ++i, rows.next(task)) {
    if (task.lanes != lanes || task.tile != tile)
      kernel = std::make_unique<Kernel>(rows, rows.tile(tile = task.tile), lanes = task.lanes);
    kernel->run(task);
  }
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TENOR_OPS_POOL_INL_H_
