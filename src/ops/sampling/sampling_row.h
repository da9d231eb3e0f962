// One row of a sampling operator on the CPU: its top, weights and keys, the filters, and the race.
#pragma once

#include <cmath>
#include <cstring>

#include "src/core/visit.h"
#include "src/ops/sampling/row_filter.h"
#include "src/ops/sampling/sampling_kernels.h"

namespace tenor::cpu {

/// The best of a race so far; the lower index wins ties.
template <class C>
struct Winner {
  C score = 0;
  int64_t index = 0;
  void offer(const C* scores, C best, int64_t n, int64_t first, const int64_t* places) {
    if (!(best > score)) return;
    const int64_t i = std::find(scores, scores + n, best) - scores;
    score = best;
    index = places ? places[first + i] : first + i;
  }
};

/// Works on rows of one dtype and length; its buffers serve one row after another.
template <class T>
class SampleRow {
 public:
  using C = core::Compute<T>;
  using K = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;

  SampleRow(int64_t n, DType dtype, RowKind kind)
      : n_(n),
        dtype_(dtype),
        kind_(kind),
        weights_(new C[static_cast<size_t>(n)]),
        keys_(new K[static_cast<size_t>(n)]) {}

  /// Looks at a row: false when it has no distribution.
  bool load(const T* x) {
    x_ = x;
    std::vector<RowTop> tops(static_cast<size_t>(part_count()));
    each_part(n_, [&](int64_t part, int64_t begin, int64_t end) {
      if (end > begin) tops[part] = kernels().top(x + begin, static_cast<size_t>(end - begin), dtype_, kind_);
    });
    RowTop top;
    for (const RowTop& t : tops) top.add(t);
    top_ = static_cast<C>(top.top);
    return top.usable && std::isfinite(top.top) && (kind_ == RowKind::kLogits || top.top > 0);
  }

  int64_t first_largest() const {
    return std::find_if(x_, x_ + n_, [&](T v) { return core::widen(v) == top_; }) - x_;
  }

  void weigh(double temperature = 1) {
    each_part(n_, [&](int64_t, int64_t begin, int64_t end) {
      kernels().weigh(x_ + begin, static_cast<size_t>(end - begin), dtype_, kind_, top_, static_cast<C>(temperature),
                      weights_.get() + begin);
    });
  }

  /// Whether a filter is on, for this row.
  bool has_top_k(const RowOptions& o) const { return o.top_k > 0 && o.top_k < n_; }
  static bool has_top_p(const RowOptions& o) { return o.top_p < 1; }

  /// Where top-k and top-p cut the row.
  Cut<K> cut(const RowOptions& o, bool joint, std::vector<int64_t>* kept) {
    encode();
    const RowFilter<C, K> filter(keys_.get(), weights_.get(), n_);
    Cut<K> cut;
    uint64_t mass = 0;
    if (has_top_k(o)) cut = filter.cut_rank(o.top_k, &mass);
    if (has_top_p(o)) {
      const uint64_t total = has_top_k(o) && !joint ? mass : filter.total();
      cut = std::min(cut, filter.cut_mass(sampling::mass_limit(o.top_p, total)));
    }
    if (kept) *kept = filter.kept(cut);
    return cut;
  }

  /// The token drawn from the weights, of which the filters have their say first.
  int64_t draw(const RowOptions& o, bool joint, sampling::Tag tag) {
    const sampling::Stream stream{o.seed, o.position, tag};
    if (!has_top_k(o) && !has_top_p(o)) {
      for (int64_t i = 0; o.min_p > 0 && i < n_; ++i)
        if (static_cast<double>(weights_[i]) < o.min_p) weights_[i] = 0;
      return race(stream);
    }
    std::vector<int64_t> kept;
    cut(o, joint, &kept);
    if (o.min_p > 0) std::erase_if(kept, [&](int64_t i) { return static_cast<double>(weights_[i]) < o.min_p; });
    if (static_cast<int64_t>(kept.size()) < n_ / 8) return race_among(stream, kept);
    drop_others(kept);
    return race(stream);
  }

  /// The race over all weights.
  int64_t race(const sampling::Stream& stream) const {
    std::vector<Winner<C>> winners(static_cast<size_t>(part_count()));
    each_part(n_, [&](int64_t part, int64_t begin, int64_t end) {
      C u[kTokens], scores[kTokens];
      for (int64_t i = begin; i < end; i += kTokens) {
        const int64_t count = std::min(kTokens, end - i);
        kernels().draw(stream, static_cast<uint64_t>(i), static_cast<size_t>(count), u);
        const C best = kernels().score(weights_.get() + i, u, static_cast<size_t>(count), scores);
        winners[part].offer(scores, best, count, i, nullptr);
      }
    });
    Winner<C> winner;
    for (const Winner<C>& w : winners)
      if (w.score > winner.score) winner = w;
    return winner.index;
  }

  /// score[i] of every token.
  void score_all(const sampling::Stream& stream, C* scores) const {
    each_part(n_, [&](int64_t, int64_t begin, int64_t end) {
      C u[kTokens];
      for (int64_t i = begin; i < end; i += kTokens) {
        const size_t count = static_cast<size_t>(std::min(kTokens, end - i));
        kernels().draw(stream, static_cast<uint64_t>(i), count, u);
        kernels().score(weights_.get() + i, u, count, scores + i);
      }
    });
  }

  const C* weights() const { return weights_.get(); }
  const K* keys() const { return keys_.get(); }
  C* weights() { return weights_.get(); }

  void encode() {
    each_part(n_, [&](int64_t, int64_t begin, int64_t end) {
      encode_all(reinterpret_cast<const K*>(x_) + begin, static_cast<size_t>(end - begin), key_code(dtype_, true),
                 keys_.get() + begin);
    });
  }

 private:
  static const SampleKernels<C>& kernels() { return sample_kernels<C>(); }

  /// The race over a few tokens: the numbers and scores that race() gives them.
  int64_t race_among(const sampling::Stream& stream, const std::vector<int64_t>& kept) const {
    Winner<C> winner;
    C e[kTokens], u[kTokens], scores[kTokens];
    const int64_t size = static_cast<int64_t>(kept.size());
    for (int64_t first = 0; first < size; first += kTokens) {
      const int64_t count = std::min(kTokens, size - first);
      for (int64_t i = 0; i < count; ++i) {
        e[i] = weights_[kept[first + i]];
        u[i] = sampling::uniform<C>(stream, static_cast<uint64_t>(kept[first + i]));
      }
      const C best = kernels().score(e, u, static_cast<size_t>(count), scores);
      winner.offer(scores, best, count, first, kept.data());
    }
    return winner.index;
  }

  void drop_others(const std::vector<int64_t>& kept) {
    int64_t next = 0;
    for (int64_t i : kept) {
      std::fill(weights_.get() + next, weights_.get() + i, C(0));
      next = i + 1;
    }
    std::fill(weights_.get() + next, weights_.get() + n_, C(0));
  }

  int64_t n_;
  DType dtype_;
  RowKind kind_;
  std::unique_ptr<C[]> weights_;
  std::unique_ptr<K[]> keys_;
  const T* x_ = nullptr;
  C top_ = 0;
};

/// fn(r, row) for every row of x [B, V]: rows side by side on the threads, or, where they are few, one after another by
/// all.
template <class F>
void each_sample_row(const Tensor& x, RowKind kind, F&& fn) {
  const int64_t rows = x.shape(0), n = x.shape(1);
  core::visit_float(x.dtype(), [&]<class T>() {
    const auto some = [&](int64_t begin, int64_t end) {
      SampleRow<T> row(n, x.dtype(), kind);
      for (int64_t r = begin; r < end; ++r) fn(r, x.data<T>() + r * x.stride(0), row);
    };
    if (rows < num_threads())
      some(0, rows);
    else
      parallel_for(rows, grain_of(n * 64), some);
  });
}

}  // namespace tenor::cpu
