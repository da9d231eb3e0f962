// The row loops of sample, sample_from_probs, multinomial, top_k_mask_logits and top_p_normalize_probs.
#include "src/core/numeric.h"
#include "src/ops/sampling/sampling_row.h"

namespace tenor::cpu {
namespace {

/// Cumulative masses of the weights.
template <class C>
std::vector<uint64_t> cumulative(const C* weights, int64_t n) {
  std::vector<uint64_t> sums(static_cast<size_t>(n));
  const C scale = static_cast<C>(std::ldexp(1.0, sampling::mass_bits(n)));
  uint64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sums[i] = sum += sampling::mass_of(weights[i], scale);
  return sums;
}

/// Each id on its own: the first token whose cumulative mass exceeds a number below the total.
template <class Row>
void draw_again_and_again(const Row& row, int64_t n, const sampling::Stream& stream, int64_t* ids, int64_t count,
                          int64_t stride) {
  const std::vector<uint64_t> sums = cumulative(row.weights(), n);
  for (int64_t i = 0; i < count; ++i) {
    __extension__ typedef unsigned __int128 Wide;
    const uint64_t target = static_cast<uint64_t>(Wide{stream.wide(static_cast<uint64_t>(i))} * sums.back() >> 64);
    ids[i * stride] = std::upper_bound(sums.begin(), sums.end(), target) - sums.begin();
  }
}

/// The `count` best of the race among the tokens of positive probability.
template <class T>
void draw_different(const SampleRow<T>& row, const T* x, int64_t n, const sampling::Stream& stream, int64_t* ids,
                    int64_t count, int64_t stride) {
  using C = core::Compute<T>;
  const std::unique_ptr<C[]> scores(new C[static_cast<size_t>(n)]);
  row.score_all(stream, scores.get());
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < n; ++i)
    if (core::widen(x[i]) > 0) tokens.push_back(i);
  const auto before = [&](int64_t a, int64_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; };
  const int64_t found = std::min(count, static_cast<int64_t>(tokens.size()));
  std::partial_sort(tokens.begin(), tokens.begin() + found, tokens.end(), before);
  for (int64_t i = 0; i < found; ++i) ids[i * stride] = tokens[i];
  for (int64_t i = found; i < count; ++i) ids[i * stride] = -1;
}

}  // namespace

void sample_rows(const SampleRows& rows, const Tensor& ids, const Tensor& valid) {
  each_sample_row(rows.x, rows.kind, [&]<class T>(int64_t r, const T* x, SampleRow<T>& row) {
    const RowOptions& o = rows.options[r];
    const bool usable = row.load(x);
    int64_t id = 0;
    // A temperature that the compute type rounds to 0 is as good as 0.
    if (usable && static_cast<core::Compute<T>>(o.temperature) == 0) {
      id = row.first_largest();
    } else if (usable) {
      row.weigh(o.temperature);
      id = row.draw(o, rows.joint, rows.tag);
    }
    ids.data<int64_t>()[r * ids.stride(0)] = id;
    if (valid.defined()) valid.data<bool>()[r * valid.stride(0)] = usable;
  });
}

void multinomial_rows(const SampleRows& rows, bool replacement, const Tensor& ids) {
  const int64_t n = rows.x.shape(1), count = ids.shape(1), step = ids.stride(1);
  each_sample_row(rows.x, rows.kind, [&]<class T>(int64_t r, const T* x, SampleRow<T>& row) {
    const RowOptions& o = rows.options[r];
    int64_t* mine = ids.data<int64_t>() + r * ids.stride(0);
    if (!row.load(x)) {
      for (int64_t i = 0; i < count; ++i) mine[i * step] = -1;
      return;
    }
    row.weigh();
    if (count == 1)
      *mine = row.draw(o, false, sampling::Tag::kMultinomial);
    else if (replacement)
      draw_again_and_again(row, n, {o.seed, o.position, sampling::Tag::kReplacement}, mine, count, step);
    else
      draw_different(row, x, n, {o.seed, o.position, sampling::Tag::kMultinomial}, mine, count, step);
  });
}

void mask_rows(const SampleRows& rows, const Tensor& out) {
  const int64_t n = rows.x.shape(1), step = out.stride(1);
  each_sample_row(rows.x, rows.kind, [&]<class T>(int64_t r, const T* x, SampleRow<T>& row) {
    const RowOptions& o = rows.options[r];
    T* y = out.data<T>() + r * out.stride(0);
    const T masked = core::cast<T>(-std::numeric_limits<double>::infinity());
    Cut<typename SampleRow<T>::K> cut;
    row.load(x);
    std::fill_n(row.weights(), n, core::Compute<T>(0));
    if (row.has_top_k(o)) cut = row.cut(o, false, nullptr);
    for (int64_t i = 0; i < n; ++i) {
      const bool keep = !row.has_top_k(o) || cut.keeps(row.keys()[i], i);
      y[i * step] = keep ? x[i] : masked;
    }
  });
}

void normalize_rows(const SampleRows& rows, const Tensor& out) {
  const int64_t n = rows.x.shape(1), step = out.stride(1);
  each_sample_row(rows.x, rows.kind, [&]<class T>(int64_t r, const T* x, SampleRow<T>& row) {
    using C = core::Compute<T>;
    const RowOptions& o = rows.options[r];
    T* y = out.data<T>() + r * out.stride(0);
    if (!row.load(x)) {
      for (int64_t i = 0; i < n; ++i) y[i * step] = core::cast<T>(std::numeric_limits<C>::quiet_NaN());
      return;
    }
    row.weigh();
    Cut<typename SampleRow<T>::K> cut;
    const bool cuts = SampleRow<T>::has_top_p(o);
    if (cuts) cut = row.cut(o, false, nullptr);
    C* e = row.weights();
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (cuts && !cut.keeps(row.keys()[i], i)) e[i] = 0;
      sum += static_cast<double>(e[i]);
    }
    for (int64_t i = 0; i < n; ++i) y[i * step] = core::cast<T>(static_cast<C>(static_cast<double>(e[i]) / sum));
  });
}

}  // namespace tenor::cpu
