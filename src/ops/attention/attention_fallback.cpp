// "fallback": attention as the library's own operators write it, one kernel after another, on either device. Scores of
// some rows at a time reach memory; everything that the flash strategies do in registers is here a step that can be
// read.
#include <algorithm>
#include <limits>

#include "src/core/output.h"
#include "src/ops/attention/attention_problem.h"
#include "tenor/tenor.h"
#include "tenor/tensor.h"

namespace tenor::attn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kScoresAtOnce = int64_t{1} << 24;  // elements, some 64 MiB an intermediate

/// Entries of the batch [entry, entry + entries) and queries [row, row + rows) of one segment.
struct Block {
  const Segment* segment;
  int64_t entry, entries, row, rows;
};

/// Rows of a plane as [entries, heads, rows, columns].
Tensor rows_of(const Problem& p, const Block& b, const Plane& x, int64_t offset, int64_t heads, int64_t row,
               int64_t rows, int64_t columns) {
  const int64_t at = offset + b.entry * x.batch + row * x.row;
  return Tensor::wrap(static_cast<char*>(x.data) + at * static_cast<int64_t>(item_size(x.dtype)), p.device, x.dtype,
                      {b.entries, heads, rows, columns}, {x.batch, x.head, x.row, x.col});
}

class Fallback {
 public:
  explicit Fallback(const Problem& problem) : p_(problem), compute_(problem.q.dtype == float64 ? float64 : float32) {}

  /// Dense sequences of one batch lie `batch` apart and go together, packed ones one by one.
  void run() const {
    if (p_.heads == 0) return;
    const bool packed = p_.cu_seqlens_q.defined();
    if (!packed && !p_.segments.empty()) return run_segment(p_.segments.front(), p_.batch);
    for (const Segment& s : p_.segments) run_segment(s, 1);
  }

 private:
  void run_segment(const Segment& s, int64_t batch) const {
    const int64_t of_row = std::max<int64_t>(p_.heads * s.keys, 1);
    const int64_t fit = std::max<int64_t>(kScoresAtOnce / of_row, 1);
    const int64_t rows = std::clamp<int64_t>(fit, 1, std::max<int64_t>(s.queries, 1));
    const int64_t entries = std::clamp<int64_t>(fit / rows, 1, std::max<int64_t>(batch, 1));
    for (int64_t e = 0; e < batch; e += entries)
      for (int64_t i = 0; i < s.queries; i += rows)
        run_block({&s, e, std::min(entries, batch - e), i, std::min(rows, s.queries - i)});
  }

  void run_block(const Block& b) const {
    const Segment& s = *b.segment;
    const Tensor out = rows_of(p_, b, p_.out, s.out, p_.heads, b.row, b.rows, p_.value_dim);
    const Tensor lse = p_.lse.data ? squeeze(rows_of(p_, b, p_.lse, s.lse, p_.heads, b.row, b.rows, 1), {3}) : Tensor();
    if (s.keys == 0) {
      fill_(out, 0);
      if (lse.defined()) fill_(lse, -kInfinity);
      return;
    }
    const Tensor scored = scores(b);
    const Tensor seen = ne(scored, -kInfinity);  // a key whose score is -inf is hidden too
    const Tensor top = amax(scored, {.dim = {{-1}}, .keepdim = true});
    const Tensor weights = where(seen, exp(sub(scored, top)), 0.0);
    const Tensor sum = tenor::sum(weights, {.dim = {{-1}}, .keepdim = true});
    if (lse.defined()) copy_(lse, squeeze(add(top, log(sum)), {3}));
    const Tensor empty = eq(top, -kInfinity);
    const Tensor whole = where(empty, 1.0, p_.sinks.defined() ? add(sum, exp(sub(sinks(), top))) : sum);
    copy_(out, div(times_values(b, weights, seen), whole));
  }

  /// [entries, heads, rows, keys], -inf where a key is hidden.
  Tensor scores(const Block& b) const {
    const Segment& s = *b.segment;
    const Tensor q = rows_of(p_, b, p_.q, s.q, p_.heads, b.row, b.rows, p_.dim);
    const Tensor k = rows_of(p_, b, p_.k, s.k, p_.kv_heads, 0, s.keys, p_.dim);
    Tensor x = mul(by_group(b, q, transpose(k, -1, -2), compute_), p_.scale);
    if (p_.softcap > 0) x = mul(tanh(div(x, p_.softcap)), p_.softcap);
    if (p_.bias.data) x = add(x, rows_of(p_, b, p_.bias, s.bias, p_.heads, b.row, b.rows, s.keys).to(compute_));
    if (p_.mask.data) x = where(rows_of(p_, b, p_.mask, s.mask, p_.heads, b.row, b.rows, s.keys), x, -kInfinity);
    const Tensor range = in_range(b);
    return range.defined() ? where(range, x, -kInfinity) : x;
  }

  /// x[entries, heads, rows, n] times y[entries, kv_heads, n, columns] of each head's key head.
  Tensor by_group(const Block& b, const Tensor& x, const Tensor& y, DType sums) const {
    const Tensor grouped = reshape(x, {b.entries, p_.kv_heads, p_.group() * b.rows, x.shape(3)});
    return reshape(matmul(grouped, y, {.dtype = sums}), {b.entries, p_.heads, b.rows, y.shape(3)});
  }

  /// Whether the diagonal and the window let a row see a key, [rows, keys]; undefined where nothing is hidden.
  Tensor in_range(const Block& b) const {
    const Segment& s = *b.segment;
    const bool ends = p_.causal != Causal::kOff || p_.right >= 0;
    if (!ends && p_.left < 0) return {};
    const int64_t shift = p_.causal == Causal::kTopLeft ? 0 : s.keys - s.queries;
    const CreateOptions indices{.dtype = int64, .device = p_.device};
    const Tensor row = unsqueeze(arange(b.row + shift, b.row + shift + b.rows, 1, indices), 1);
    const Tensor ahead = sub(unsqueeze(arange(0, s.keys, 1, indices), 0), row);  // of the diagonal
    Tensor seen;
    if (ends)
      seen = le(ahead, p_.causal == Causal::kOff ? p_.right : p_.right < 0 ? 0 : std::min<int64_t>(p_.right, 0));
    if (p_.left < 0) return seen;
    const Tensor begun = ge(ahead, -p_.left);
    return seen.defined() ? logical_and(seen, begun) : begun;
  }

  Tensor sinks() const { return reshape(p_.sinks.to(compute_), {1, p_.heads, 1, 1}); }

  /// weights times values. NaN and infinities of values go a way of their own, where a hidden key has no part in them:
  /// its weight of 0 would make them NaN.
  Tensor times_values(const Block& b, const Tensor& weights, const Tensor& seen) const {
    const Segment& s = *b.segment;
    const Tensor v = rows_of(p_, b, p_.v, s.v, p_.kv_heads, 0, s.keys, p_.value_dim).to(compute_);
    const Tensor finite = isfinite(v);
    if (p_.device.type == DeviceType::kCpu && *all(finite).data<bool>()) return by_group(b, weights, v, compute_);
    const Tensor sum = by_group(b, weights, where(finite, v, 0.0), compute_);
    const Tensor weighted = gt(weights, 0.0), weightless = logical_and(seen, logical_not(weighted));
    // 0 * inf is NaN, so to keys without weight every value that is not finite is one.
    const Tensor nan = logical_or(any_of(b, weighted, isnan(v)), any_of(b, weightless, logical_not(finite)));
    const Tensor above = any_of(b, weighted, eq(v, kInfinity)), below = any_of(b, weighted, eq(v, -kInfinity));
    return add(sum, where(nan, kNan, add(where(above, kInfinity, 0.0), where(below, -kInfinity, 0.0))));
  }

  /// Whether any key of x[..., rows, keys] is one of y[..., keys, columns].
  Tensor any_of(const Block& b, const Tensor& x, const Tensor& y) const {
    return gt(by_group(b, x.to(bfloat16), y.to(bfloat16), float32), 0.0);
  }

  static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

  const Problem& p_;
  const DType compute_;
};

}  // namespace

void run_fallback(const Problem& problem) { Fallback(problem).run(); }

}  // namespace tenor::attn
