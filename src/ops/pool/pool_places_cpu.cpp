// max_pool with places, a row of targets at a time.
#include <vector>

#include "src/core/visit.h"
#include "src/cpu/move.h"
#include "src/ops/pool/pool_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/pool/pool_places_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/pool/pool-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// Maxima and their indices in lanes of one width. An index of kNone or more is none.
template <class C>
struct PlaceLanes {
  using I = std::conditional_t<sizeof(C) == 4, int32_t, int64_t>;
  static constexpr I kNone = sizeof(C) == 4 ? I{1} << 30 : static_cast<I>(int64_t{1} << 62);
  using D = hn::ScalableTag<C>;
  using Di = hn::ScalableTag<I>;
  using V = hn::Vec<D>;
  using Vi = hn::Vec<Di>;

  /// The first NaN, else the largest, of candidates that come in the order of their indices.
  static HWY_INLINE void offer(V& best, Vi& at, V v, Vi place) {
    if constexpr (std::is_floating_point_v<C>) {
      take(best, at, v, place,
           hn::RebindMask(Di(), hn::Or(hn::Gt(v, best), hn::AndNot(hn::IsNaN(best), hn::IsNaN(v)))));
    } else {
      take(best, at, v, place, hn::RebindMask(Di(), hn::Gt(v, best)));
    }
  }
  /// In any order: of equals the lower index.
  static HWY_INLINE void meet(V& best, Vi& at, V v, Vi place) {
    const Di di;
    const auto lower = hn::Lt(place, at);
    if constexpr (std::is_floating_point_v<C>) {
      const auto nan = hn::IsNaN(v), had_nan = hn::IsNaN(best);
      const auto more = hn::Or(hn::Gt(v, best), hn::AndNot(had_nan, nan));
      const auto same = hn::Or(hn::Eq(v, best), hn::And(nan, had_nan));
      take(best, at, v, place, hn::Or(hn::RebindMask(di, more), hn::And(hn::RebindMask(di, same), lower)));
    } else {
      const auto more = hn::RebindMask(di, hn::Gt(v, best)), same = hn::RebindMask(di, hn::Eq(v, best));
      take(best, at, v, place, hn::Or(more, hn::And(same, lower)));
    }
  }

 private:
  template <class M>
  static HWY_INLINE void take(V& best, Vi& at, V v, Vi place, M mask) {
    best = hn::IfThenElse(hn::RebindMask(D(), mask), v, best);
    at = hn::IfThenElse(mask, place, at);
  }
};

/// T: how elements lie in the rows that are read; S: how the tensors hold them (another type where planes are so large
/// that an index needs 64 bits beside a narrower element).
template <class T, class S>
class PlaceKernel {
 public:
  using C = PoolCompute<T>;
  using Lanes = PlaceLanes<C>;
  using I = typename Lanes::I;
  static constexpr C kLowest = MaxCombine::identity<S>();
  static constexpr int64_t kStreamed = 1 << 20;

  PlaceKernel(const PoolRows& rows, const PoolTile& tile, int64_t lanes)
      : rows_(rows),
        g_(rows.g),
        tile_(tile),
        width_(tile.width()),
        targets_(tile.targets()),
        lanes_(lanes),
        source_(rows, tile, lanes),
        along_(tile_.along),
        phases_(along_, static_cast<int64_t>(hn::Lanes(d_))),
        phased_(lanes == 1 && Phases::fits(along_)) {
    const int64_t width = width_ * lanes, padded = phased_ ? phases_.stride * phases_.each : width;
    values_ = filled<C>(padded, kLowest);
    lines_ = filled<I>(padded, Lanes::kNone);
    if (phased_ && phases_.stride > 1) {
      split_values_ = filled<C>(padded, 0);
      split_lines_ = filled<I>(padded, 0);
    }
    offset_ = phased_ ? phases_.before : 0;
    if (!phased_)
      for (int64_t t = 0; t < targets_; ++t) columns_.push_back(rows.column(tile, t));
    const int64_t targets = targets_ * lanes;
    out_values_ = filled<C>(targets, 0);
    out_places_ = filled<I>(targets, 0);
  }

  ~PlaceKernel() {
    if (streams_) finish_streams();
  }

  void run(const PoolRows::Task& task) {
    const auto& dim = g_.space.dim;
    const pool::WindowRange dr = dim[0].inputs(task.d), hr = dim[1].inputs(task.h);
    if (lanes_ > 1 && !source_.gathers()) return channels(task, dr, hr);
    combine_rows(task, dr, hr);
    if (lanes_ > 1)
      channels_of_rows();
    else if (phased_)
      taps();
    else
      windows();
    store(task);
  }

 private:
  /// The best of each column, and the flat index of its row's first element.
  void combine_rows(const PoolRows::Task& task, const pool::WindowRange& dr, const pool::WindowRange& hr) {
    const int64_t width = width_ * lanes_;
    const T* rows[kRowsAtOnce];
    I lines[kRowsAtOnce];
    int64_t held = 0;
    bool first = true;
    for (int64_t d = dr.first; d < dr.last; d += dr.step)
      for (int64_t h = hr.first; h < hr.last; h += hr.step) {
        lines[held] = static_cast<I>(g_.source.flat(d, h, 0));
        rows[held++] = source_.row(task, d, h);
        if (held < kRowsAtOnce && !source_.gathers()) continue;
        add_rows(rows, lines, held, first);
        held = 0, first = false;
      }
    if (held > 0) return add_rows(rows, lines, held, first);
    if (!first) return;
    std::fill(values_.get() + offset_, values_.get() + offset_ + width, kLowest);
    std::fill(lines_.get() + offset_, lines_.get() + offset_ + width, Lanes::kNone);
  }
  HWY_INLINE void add_rows(const T* const* rows, const I* lines, int64_t n, bool first) {
    for (int64_t r = 0; r < source_.runs; ++r) {
      C* values = values_.get() + offset_ + r * source_.length;
      I* at = lines_.get() + offset_ + r * source_.length;
      for_numbers(d_, source_.length, [&](int64_t i, auto io) HWY_ATTR {
        auto best = io.load(d_, rows[0] + r * source_.step + i);
        auto place = hn::Set(di_, lines[0]);
        if (!first) {
          auto before = io.load(d_, values + i);
          auto line = io.load(di_, at + i);
          Lanes::offer(before, line, best, place);
          best = before, place = line;
        }
        for (int64_t k = 1; k < n; ++k)
          Lanes::offer(best, place, io.load(d_, rows[k] + r * source_.step + i), hn::Set(di_, lines[k]));
        io.store(d_, best, values + i);
        io.store(di_, place, at + i);
      });
    }
  }

  /// Many channels, whose elements are read where they lie.
  HWY_INLINE void channels(const PoolRows::Task& task, const pool::WindowRange& dr, const pool::WindowRange& hr) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d_));
    [[maybe_unused]] const bool straight = g_.target.stride[1] == 1 && rows_.places_grid.stride[1] == 1;
    find_rows(task, dr, hr);
    for (int64_t t = 0; t < targets_; ++t) {
      find_sources(columns_[static_cast<size_t>(t)]);
      int64_t i = 0;
      if constexpr (std::is_same_v<T, S>) {
        const Target to = target_of(task, t);
        for (; straight && sources_.size() > 4 && i + 4 * lanes <= lanes_; i += 4 * lanes) straight_channels<4>(to, i);
        for (; straight && !sources_.empty() && i + 2 * lanes <= lanes_; i += 2 * lanes) straight_channels<2>(to, i);
        for (; straight && !sources_.empty() && i + lanes <= lanes_; i += lanes) straight_channels<1>(to, i);
      }
      if (i == lanes_) continue;
      for_numbers(d_, lanes_ - i, [&](int64_t k, auto io) HWY_ATTR { any_channels(t, i + k, io); });
      store(task, t, i);
    }
  }
  template <class IO>
  HWY_INLINE void any_channels(int64_t t, int64_t i, IO io) {
    auto best = hn::Set(d_, kLowest);
    auto place = hn::Set(di_, Lanes::kNone);
    if (!sources_.empty()) best = io.load(d_, sources_[0].at + i), place = hn::Set(di_, sources_[0].place);
    for (size_t k = 1; k < sources_.size(); ++k)
      Lanes::offer(best, place, io.load(d_, sources_[k].at + i), hn::Set(di_, sources_[k].place));
    io.store(d_, best, out_values_.get() + t * lanes_ + i);
    io.store(di_, place, out_places_.get() + t * lanes_ + i);
  }

  /// Where a target's values and places go.
  struct Target {
    S* value;
    int64_t* place;
  };
  Target target_of(const PoolRows::Task& task, int64_t t) const {
    return {rows_.target.data<S>() + g_.target.at(task.n, task.c, task.d, task.h, tile_.first + t),
            rows_.places->data<int64_t>() + rows_.places_grid.at(task.n, task.c, task.d, task.h, tile_.first + t)};
  }

  /// N vectors of channels from i on: without regard to NaN, then once more where there is one.
  template <int N>
  HWY_INLINE void straight_channels(const Target& to, int64_t i) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d_));
    typename Lanes::V best[N];
    typename Lanes::Vi place[N];
    auto sum = hn::Zero(d_);  // NaN where there is one, and seldom elsewhere
    for (int j = 0; j < N; ++j) {
      best[j] = load_number(d_, sources_[0].at + i + j * lanes);
      place[j] = hn::Set(di_, sources_[0].place);
      if constexpr (std::is_floating_point_v<C>) sum = hn::Add(sum, best[j]);
    }
    for (size_t k = 1; k < sources_.size(); ++k) {
      const auto at = hn::Set(di_, sources_[k].place);
      for (int j = 0; j < N; ++j) {
        const auto v = load_number(d_, sources_[k].at + i + j * lanes);
        const auto more = hn::Gt(v, best[j]);
        if constexpr (std::is_floating_point_v<C>) sum = hn::Add(sum, v);
        best[j] = hn::IfThenElse(more, v, best[j]);
        place[j] = hn::IfThenElse(hn::RebindMask(di_, more), at, place[j]);
      }
    }
    if constexpr (std::is_floating_point_v<C>) {
      if (!hn::AllFalse(d_, hn::IsNaN(sum))) in_order<N>(i, best, place);
    }
    for (int j = 0; j < N; ++j) {
      WholeNumbers().store(d_, best[j], to.value + i + j * lanes);
      store_places(place[j], to.place + i + j * lanes);
    }
  }
  template <int N>
  HWY_INLINE void in_order(int64_t i, typename Lanes::V (&best)[N], typename Lanes::Vi (&place)[N]) const {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d_));
    for (int j = 0; j < N; ++j) {
      best[j] = load_number(d_, sources_[0].at + i + j * lanes), place[j] = hn::Set(di_, sources_[0].place);
      for (size_t k = 1; k < sources_.size(); ++k)
        Lanes::offer(best[j], place[j], load_number(d_, sources_[k].at + i + j * lanes),
                     hn::Set(di_, sources_[k].place));
    }
  }
  HWY_INLINE void store_places(typename Lanes::Vi place, int64_t* to) const {
    if constexpr (sizeof(I) == sizeof(int64_t)) {
      hn::StoreU(place, di_, to);
    } else {
#if HWY_TARGET == HWY_SCALAR  // one lane has no halves
      *to = hn::GetLane(place);
#else
      const hn::RepartitionToWide<typename Lanes::Di> wide;
      const hn::Half<typename Lanes::Di> half;
      if (streams_ && reinterpret_cast<uintptr_t>(to) % (8 * hn::Lanes(wide)) == 0) {
        hn::Stream(hn::PromoteTo(wide, hn::LowerHalf(half, place)), wide, to);
        hn::Stream(hn::PromoteTo(wide, hn::UpperHalf(half, place)), wide, to + hn::Lanes(wide));
        return;
      }
      hn::StoreU(hn::PromoteTo(wide, hn::LowerHalf(half, place)), wide, to);
      hn::StoreU(hn::PromoteTo(wide, hn::UpperHalf(half, place)), wide, to + hn::Lanes(wide));
#endif
    }
  }

  /// The rows that a task's windows read, in order.
  void find_rows(const PoolRows::Task& task, const pool::WindowRange& dr, const pool::WindowRange& hr) {
    lines_read_.clear();
    for (int64_t d = dr.first; d < dr.last; d += dr.step)
      for (int64_t h = hr.first; h < hr.last; h += hr.step)
        lines_read_.push_back({source_.row(task, d, h), static_cast<I>(g_.source.flat(d, h, tile_.from))});
  }
  /// The places of them that a window reads, in order.
  void find_sources(const pool::WindowRange& wr) {
    sources_.resize(lines_read_.size() * static_cast<size_t>(wr.count()));
    Source* to = sources_.data();
    const int64_t step = g_.source.stride[4];
    for (const Source& line : lines_read_)
      for (int64_t w = wr.first; w < wr.last; w += wr.step)
        *to++ = {line.at + w * step, static_cast<I>(line.place + w)};
  }

  HWY_INLINE void taps() {
    const C* values = values_.get();
    const I* lines = lines_.get();
    if (phases_.stride > 1) {
      split_phases(values, phases_, split_values_.get());
      split_phases(lines, phases_, split_lines_.get());
      values = split_values_.get(), lines = split_lines_.get();
    }
    for_numbers(d_, targets_, [&](int64_t t, auto io) HWY_ATTR {
      auto best = hn::Set(d_, kLowest);
      auto place = hn::Set(di_, Lanes::kNone);
      for (int64_t k = 0; k < along_.kernel; ++k) {
        const int64_t from = phases_.at(k * along_.dilation) + t;
        // Column of target t + i: (t + i) * stride + k * dilation - before. In the padding the line is none and stays
        // so.
        const I first = static_cast<I>(tile_.from + t * along_.stride + k * along_.dilation - along_.before);
        const auto column =
            hn::Add(hn::Mul(hn::Iota(di_, 0), hn::Set(di_, static_cast<I>(along_.stride))), hn::Set(di_, first));
        const auto line = io.load(di_, lines + from);
        const auto none = hn::Gt(line, hn::Set(di_, static_cast<I>(Lanes::kNone - 1)));
        Lanes::meet(best, place, io.load(d_, values + from), hn::IfThenElse(none, line, hn::Add(line, column)));
      }
      io.store(d_, best, out_values_.get() + t);
      io.store(di_, place, out_places_.get() + t);
    });
  }

  HWY_INLINE void channels_of_rows() {
    for (int64_t t = 0; t < targets_; ++t) {
      const pool::WindowRange& r = columns_[static_cast<size_t>(t)];
      for_numbers(d_, lanes_, [&](int64_t i, auto io) HWY_ATTR {
        auto best = hn::Set(d_, kLowest);
        auto place = hn::Set(di_, Lanes::kNone);
        for (int64_t w = r.first; w < r.last; w += r.step) {
          const auto line = io.load(di_, lines_.get() + w * lanes_ + i);
          const auto none = hn::Gt(line, hn::Set(di_, static_cast<I>(Lanes::kNone - 1)));
          Lanes::meet(best, place, io.load(d_, values_.get() + w * lanes_ + i),
                      hn::IfThenElse(none, line, hn::Add(line, hn::Set(di_, static_cast<I>(tile_.from + w)))));
        }
        io.store(d_, best, out_values_.get() + t * lanes_ + i);
        io.store(di_, place, out_places_.get() + t * lanes_ + i);
      });
    }
  }

  void windows() {
    for (int64_t t = 0; t < targets_; ++t) {
      const pool::WindowRange& r = columns_[static_cast<size_t>(t)];
      C best = kLowest;
      I place = Lanes::kNone;
      for (int64_t w = r.first; w < r.last; w += r.step) {
        const C v = values_[w];
        if (lines_[w] >= Lanes::kNone) continue;
        const I at = lines_[w] + static_cast<I>(tile_.from + w);
        const bool nan = v != v, had_nan = best != best, same = v == best || (nan && had_nan);
        if (v > best || (nan && !had_nan) || (same && at < place)) best = v, place = at;
      }
      out_values_[t] = best, out_places_[t] = place;
    }
  }

  void store(const PoolRows::Task& task) const {
    S* y = rows_.target.data<S>() + g_.target.at(task.n, task.c, task.d, task.h, tile_.first);
    int64_t* at = rows_.places->data<int64_t>() + rows_.places_grid.at(task.n, task.c, task.d, task.h, tile_.first);
    const int64_t n = targets_ * lanes_;
    const auto dense = [&](const pool::PoolGrid& grid) {
      if (lanes_ == 1) return grid.stride[4] == 1 || targets_ == 1;
      return grid.stride[1] == 1 && (grid.stride[4] == lanes_ || targets_ == 1);
    };
    if (dense(g_.target) && dense(rows_.places_grid)) {
      for (int64_t i = 0; i < n; ++i) at[i] = out_places_[i] >= Lanes::kNone ? -1 : out_places_[i];
      if constexpr (std::is_same_v<T, S>) {
        for_numbers(d_, n,
                    [&](int64_t i, auto io) HWY_ATTR { io.store(d_, io.load(d_, out_values_.get() + i), y + i); });
        return;
      }
      for (int64_t i = 0; i < n; ++i) y[i] = core::cast<S>(out_values_[i]);
      return;
    }
    for (int64_t t = 0; t < targets_; ++t)
      for (int64_t l = 0; l < lanes_; ++l) {
        const int64_t i = t * lanes_ + l;
        y[t * g_.target.stride[4] + l * g_.target.stride[1]] = core::cast<S>(out_values_[i]);
        at[t * rows_.places_grid.stride[4] + l * rows_.places_grid.stride[1]] =
            out_places_[i] >= Lanes::kNone ? -1 : out_places_[i];
      }
  }

  /// Channels first .. of one target.
  void store(const PoolRows::Task& task, int64_t t, int64_t first) const {
    const Target to = target_of(task, t);
    for (int64_t l = first; l < lanes_; ++l) {
      const int64_t i = t * lanes_ + l;
      to.value[l * g_.target.stride[1]] = core::cast<S>(out_values_[i]);
      to.place[l * rows_.places_grid.stride[1]] = out_places_[i] >= Lanes::kNone ? -1 : out_places_[i];
    }
  }

  const PoolRows& rows_;
  const pool::Gather& g_;
  const bool streams_ = rows_.places->numel() > kStreamed;  ///< more places than caches hold: written past them
  PoolTile tile_;
  int64_t width_, targets_, lanes_;
  typename Lanes::D d_;
  typename Lanes::Di di_;
  SourceRows<T> source_;
  const pool::PoolDim& along_;  ///< of the tile
  Phases phases_;
  bool phased_;
  int64_t offset_ = 0;
  std::unique_ptr<C[]> values_, split_values_, out_values_;
  std::unique_ptr<I[]> lines_, split_lines_, out_places_;
  std::vector<pool::WindowRange> columns_;
  struct Source {
    const T* at;
    I place;
  };
  std::vector<Source> lines_read_, sources_;
};

/// Planes whose indices a lane beside a 32-bit element cannot hold.
bool is_wide(const PoolRows& rows) { return rows.g.source.plane() >= int64_t{1} << 30; }

void place_rows(const PoolRows& rows, int64_t begin, int64_t end) {
  const auto run = [&]<class S>() HWY_ATTR {
    using Wide = std::conditional_t<std::is_integral_v<S>, int64_t, double>;
    if constexpr (sizeof(S) < 8) {
      if (is_wide(rows)) return run_tasks<PlaceKernel<Wide, S>>(rows, begin, end);
    }
    run_tasks<PlaceKernel<S, S>>(rows, begin, end);
  };
  is_integer(rows.source.dtype()) ? core::visit_integer(rows.source.dtype(), run)
                                  : core::visit_float(rows.source.dtype(), run);
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(place_rows);
void pool_place_rows(const PoolRows& rows, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(place_rows)(rows, begin, end);
}

}  // namespace tenor::cpu
#endif  // HWY_ONCE
