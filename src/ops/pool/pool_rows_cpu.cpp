// The largest and the sum of windows, a row of targets at a time.
#include <vector>

#include "src/core/visit.h"
#include "src/ops/pool/pool_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/pool/pool_rows_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/pool/pool-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

template <class T, class Combine>
class RowKernel {
 public:
  using C = PoolCompute<T>;
  static constexpr bool kSum = std::is_same_v<Combine, SumCombine>;

  RowKernel(const PoolRows& rows, const PoolTile& tile, int64_t lanes)
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
    const int64_t width = width_ * lanes, targets = targets_ * lanes;
    const int64_t padded = phased_ ? phases_.stride * phases_.each : width;
    combined_ = filled<C>(phased_ && !rows.back ? padded : width, Combine::template identity<T>());
    if (phased_ && rows.back) padded_ = filled<C>(padded, Combine::template identity<T>());
    if (phased_ && phases_.stride > 1) split_ = filled<C>(padded, Combine::template identity<T>());
    into_ = combined_.get() + (phased_ && !rows.back ? phases_.before : 0);
    const int64_t inner = lanes > 1 ? g_.target.stride[1] : g_.target.stride[4];
    dense_target_ = inner == 1 || (lanes == 1 && targets_ == 1);
    if (!dense_target_) result_.reset(new T[static_cast<size_t>(targets)]);
    if (kSum && g_.uniform == 0)
      for (int64_t i = 0; i < (rows.back ? width_ : targets_); ++i)
        counts_.push_back(static_cast<C>(g_.count(2, i + (rows.back ? tile.from : tile.first))));
    if (!phased_)
      for (int64_t t = 0; t < targets_; ++t) columns_.push_back(rows.column(tile, t));
    if (phased_)
      for (int64_t k = 0; k < along_.kernel; ++k) taps_.push_back(phases_.at(k * along_.dilation));
  }

  void run(const PoolRows::Task& task) {
    const auto& dim = g_.space.dim;
    const auto reach = [&](int i, int64_t target) {
      return rows_.back ? dim[i].readers(target) : dim[i].inputs(target);
    };
    combine_rows(task, reach(0, task.d), reach(1, task.h));
    outer_ = kSum && !rows_.back && g_.uniform == 0 ? static_cast<C>(g_.count(0, task.d) * g_.count(1, task.h)) : C(1);
    T* to = rows_.target.data<T>() + g_.target.at(task.n, task.c, task.d, task.h, tile_.first);
    if (lanes_ > 1)
      channels(to);
    else if (!phased_)
      windows(to);
    else if (rows_.back)
      spread(to);
    else
      taps(to);
  }

 private:
  /// Every row of sources that the task reads, combined into `into_`.
  void combine_rows(const PoolRows::Task& task, const pool::WindowRange& dr, const pool::WindowRange& hr) {
    const T* rows[kRowsAtOnce];
    C weights[kRowsAtOnce];
    int64_t held = 0;
    bool first = true;
    for (int64_t d = dr.first; d < dr.last; d += dr.step)
      for (int64_t h = hr.first; h < hr.last; h += hr.step) {
        weights[held] = static_cast<C>(weighted() ? g_.count(0, d) * g_.count(1, h) : 1);
        rows[held++] = source_.row(task, d, h);
        if (held < kRowsAtOnce && !source_.gathers()) continue;
        add_rows(rows, weights, held, first);
        held = 0, first = false;
      }
    if (held > 0)
      add_rows(rows, weights, held, first);
    else if (first)
      std::fill(into_, into_ + width_ * lanes_, Combine::template identity<T>());
    if (weighted()) weigh_columns();
  }
  bool weighted() const { return kSum && rows_.back && g_.uniform == 0; }

  HWY_INLINE void add_rows(const T* const* rows, const C* weights, int64_t n, bool first) {
    const Combine combine;
    const bool weighted = this->weighted();
    for (int64_t r = 0; r < source_.runs; ++r) {
      C* into = into_ + r * source_.length;
      const int64_t from = r * source_.step;
      for_numbers(d_, source_.length, [&](int64_t i, auto io) HWY_ATTR {
        const auto load = [&](int64_t k) HWY_ATTR {
          auto v = io.load(d_, rows[k] + from + i);
          if constexpr (kSum) {
            if (weighted) v = hn::Div(v, hn::Set(d_, weights[k]));
          }
          return v;
        };
        auto v = load(0);
        if (!first) v = combine(d_, io.load(d_, into + i), v);
        for (int64_t k = 1; k < n; ++k) v = combine(d_, v, load(k));
        io.store(d_, v, into + i);
      });
    }
  }
  void weigh_columns() {
    for (int64_t w = 0; w < width_; ++w)
      for (int64_t l = 0; l < lanes_; ++l) into_[w * lanes_ + l] /= counts_[w];
  }

  /// What a sum is divided by, for targets from t on.
  template <class V, class Io>
  HWY_INLINE V finish(V v, int64_t t, Io io) const {
    if constexpr (kSum) {
      if (g_.uniform != 0) return hn::Div(v, hn::Set(d_, static_cast<C>(g_.uniform)));
      if (!rows_.back) return hn::Div(v, hn::Mul(hn::Set(d_, outer_), io.load(d_, counts_.data() + t)));
    }
    return v;
  }

  /// Windows whose taps are neighbours in the phases of the padded row.
  HWY_INLINE void taps(T* to) {
    const Combine combine;
    const C* from = combined_.get();
    if (phases_.stride > 1) {
      split_phases(combined_.get(), phases_, split_.get());
      from = split_.get();
    }
    T* y = dense_target_ ? to : result_.get();
    for_numbers(d_, targets_, [&](int64_t t, auto io) HWY_ATTR {
      auto v = io.load(d_, from + taps_[0] + t);
      for (size_t k = 1; k < taps_.size(); ++k) v = combine(d_, v, io.load(d_, from + taps_[k] + t));
      io.store(d_, finish(v, t, io), y + t);
    });
    scatter(to);
  }

  /// The other way round: each window adds to its taps.
  HWY_INLINE void spread(T* to) {
    C* into = phases_.stride > 1 ? split_.get() : padded_.get();
    std::fill(into, into + phases_.stride * phases_.each, C(0));
    for (const int64_t tap : taps_)
      for_numbers(d_, width_, [&](int64_t i, auto io) HWY_ATTR {
        io.store(d_, hn::Add(io.load(d_, into + tap + i), io.load(d_, combined_.get() + i)), into + tap + i);
      });
    if (phases_.stride > 1) join_phases(split_.get(), phases_, padded_.get());
    T* y = dense_target_ ? to : result_.get();
    const C* from = padded_.get() + phases_.before;
    for_numbers(d_, targets_,
                [&](int64_t t, auto io) HWY_ATTR { io.store(d_, finish(io.load(d_, from + t), t, io), y + t); });
    scatter(to);
  }

  /// Windows of any place and length, one by one.
  HWY_INLINE void windows(T* to) {
    const Combine combine;
    const hn::CappedTag<C, 1> one;
    const int64_t stride = dense_target_ ? 1 : g_.target.stride[4];
    for (int64_t t = 0; t < targets_; ++t) {
      const pool::WindowRange& r = columns_[static_cast<size_t>(t)];
      C v = Combine::template identity<T>();
      if (r.step == 1 && r.last - r.first >= 16) {
        v = reduce_row(
            into_ + r.first, static_cast<size_t>(r.last - r.first), v, [](auto, auto x) HWY_ATTR { return x; },
            combine);
      } else {
        for (int64_t w = r.first; w < r.last; w += r.step)
          v = hn::GetLane(combine(one, hn::Set(one, v), hn::Set(one, into_[w])));
      }
      if constexpr (kSum) {
        if (g_.uniform != 0)
          v /= static_cast<C>(g_.uniform);
        else if (!rows_.back)
          v /= outer_ * counts_[t];
      }
      to[t * stride] = core::cast<T>(v);
    }
  }

  /// Windows of many channels.
  HWY_INLINE void channels(T* to) {
    const Combine combine;
    for (int64_t t = 0; t < targets_; ++t) {
      const pool::WindowRange& r = columns_[static_cast<size_t>(t)];
      C divisor = 1;
      if constexpr (kSum)
        divisor = g_.uniform != 0 ? static_cast<C>(g_.uniform) : rows_.back ? C(1) : outer_ * counts_[t];
      T* y = dense_target_ ? to + t * g_.target.stride[4] : result_.get() + t * lanes_;
      for_numbers(d_, lanes_, [&](int64_t i, auto io) HWY_ATTR {
        auto v = hn::Set(d_, Combine::template identity<T>());
        for (int64_t w = r.first; w < r.last; w += r.step) v = combine(d_, v, io.load(d_, into_ + w * lanes_ + i));
        if constexpr (kSum) v = hn::Div(v, hn::Set(d_, divisor));
        io.store(d_, v, y + i);
      });
    }
    scatter(to);
  }

  /// The results to where the target has them.
  void scatter(T* to) const {
    if (dense_target_) return;
    for (int64_t t = 0; t < targets_; ++t)
      for (int64_t l = 0; l < lanes_; ++l)
        to[t * g_.target.stride[4] + l * g_.target.stride[1]] = result_[t * lanes_ + l];
  }

  const PoolRows& rows_;
  const pool::Gather& g_;
  PoolTile tile_;
  int64_t width_, targets_, lanes_;
  hn::ScalableTag<C> d_;
  SourceRows<T> source_;
  const pool::PoolDim& along_;  ///< of the tile
  Phases phases_;
  bool phased_, dense_target_ = true;
  std::unique_ptr<C[]> combined_, padded_, split_;
  std::unique_ptr<T[]> result_;
  C* into_ = nullptr;
  C outer_ = 1;
  std::vector<C> counts_;
  std::vector<int64_t> taps_;
  std::vector<pool::WindowRange> columns_;
};

void max_rows(const PoolRows& rows, int64_t begin, int64_t end) {
  const auto run = [&]<class T>() HWY_ATTR { run_tasks<RowKernel<T, MaxCombine>>(rows, begin, end); };
  is_integer(rows.source.dtype()) ? core::visit_integer(rows.source.dtype(), run)
                                  : core::visit_float(rows.source.dtype(), run);
}
void sum_rows(const PoolRows& rows, int64_t begin, int64_t end) {
  core::visit_float(rows.source.dtype(),
                    [&]<class T>() HWY_ATTR { run_tasks<RowKernel<T, SumCombine>>(rows, begin, end); });
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(max_rows);
HWY_EXPORT(sum_rows);
void pool_max_rows(const PoolRows& rows, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(max_rows)(rows, begin, end);
}
void pool_sum_rows(const PoolRows& rows, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(sum_rows)(rows, begin, end);
}

}  // namespace tenor::cpu
#endif  // HWY_ONCE
