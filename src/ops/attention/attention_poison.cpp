// NaN and infinities in values. The product with V runs over values whose NaN and infinities are replaced by 0, so that
// a hidden key's, times its weight of 0, cannot reach a result; here those of visible keys are put back.
#include <cmath>

#include "src/core/numeric.h"
#include "src/core/visit.h"
#include "src/ops/attention/attention_kernels.h"

namespace tenor::attn {
namespace {

/// Whether row r attends key j (its weight may have underflowed to 0).
template <class T>
bool attends(const Block& b, int64_t r, int64_t j) {
  const Problem& p = *b.problem;
  const Segment& s = *b.segment;
  const int64_t h = b.head(r), i = b.row(r);
  const KeyRange range = seen_keys(p, s, i);
  if (j < range.begin || j >= range.end) return false;
  if (p.mask.data && !static_cast<const bool*>(p.mask.data)[s.mask + h * p.mask.head + i * p.mask.row + j * p.mask.col])
    return false;
  const T* q = static_cast<const T*>(p.q.data) + s.q + h * p.q.head + i * p.q.row;
  std::vector<char> buffer(static_cast<size_t>(gathered_bytes(p, 1)));
  const Rows key = key_rows(p, s, b.kv_head, j, 1, buffer.data());
  const T* k = static_cast<const T*>(key.from);
  double score = 0;
  for (int64_t d = 0; d < p.dim; ++d)
    score += static_cast<double>(core::widen(q[d * p.q.col])) * core::widen(k[d * key.col]);
  if (p.softcap > 0) score = std::tanh(score);  // only whether it is -inf matters below
  if (p.bias.data) {
    core::visit_float(p.bias.dtype, [&]<class U>() {
      const int64_t at = s.bias + h * p.bias.head + i * p.bias.row + j * p.bias.col;
      score += core::widen(static_cast<const U*>(p.bias.data)[at]);
    });
  }
  return score != -INFINITY;
}

}  // namespace

void add_poisoned(const Block& b, const Kernels& kernels) {
  const Problem& p = *b.problem;
  core::visit_float(p.v.dtype, [&]<class T>() {
    using C = core::Compute<T>;
    for (int64_t j = b.key_begin; j < b.key_end; ++j) {
      if (!b.poisoned[j - b.key_begin]) continue;
      const T* v =
          static_cast<const T*>(value_rows(p, *b.segment, b.kv_head, j, 1, nullptr).from);  // one row is one run
      for (int64_t r = 0; r < b.rows(); ++r) {
        const C weight = static_cast<C>(kernels.weight(b, r, j - b.key_begin));
        if (weight == 0 && !attends<T>(b, r, j)) continue;
        C* total = static_cast<C*>(b.total) + r * b.columns;
        for (int64_t c = 0; c < p.value_dim; ++c)
          if (const C x = core::widen(v[c * p.v.col]); !std::isfinite(x)) total[c] += weight * x;
      }
    }
  });
}

}  // namespace tenor::attn
