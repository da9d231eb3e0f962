// Attention as its formula reads, in float64: the oracle of the tests.
#pragma once

#include <cmath>
#include <initializer_list>
#include <vector>

#include "src/core/numeric.h"
#include "src/core/visit.h"
#include "tenor/attention.h"

namespace tenor::reference {

/// The element at that index, as a double.
inline double at(const Tensor& x, std::initializer_list<int64_t> index) {
  int64_t offset = 0, d = 0;
  for (int64_t i : index) offset += i * x.strides()[d++];
  return core::visit(x.dtype(), [&]<class T>() { return static_cast<double>(core::widen(x.data<T>()[offset])); });
}

/// As at(), where a dim of size 1, or one that is missing in front, is repeated.
inline double at_broadcast(const Tensor& x, std::vector<int64_t> index) {
  int64_t offset = 0;
  for (int d = 0; d < x.ndim(); ++d)
    if (x.shape(d) != 1) offset += index[index.size() - x.ndim() + d] * x.strides()[d];
  return core::visit(x.dtype(), [&]<class T>() { return static_cast<double>(core::widen(x.data<T>()[offset])); });
}

struct Attention {
  std::vector<double> out, lse;  // [B, Hq, Sq, Dv], [B, Hq, Sq]
};

inline Attention attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  const int64_t B = q.shape(0), Hq = q.shape(1), Sq = q.shape(2), D = q.shape(3), Sk = k.shape(2), Dv = v.shape(3);
  const double scale = o.scale.value_or(1 / std::sqrt(static_cast<double>(D)));
  Attention result;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < Hq; ++h)
      for (int64_t i = 0; i < Sq; ++i) {
        const int64_t g = h / (Hq / k.shape(1));
        const int64_t diagonal = o.causal.kind() == Causal::kTopLeft ? i : i + Sk - Sq;
        std::vector<int64_t> seen;
        std::vector<double> scores;
        double top = -INFINITY, sum = 0;
        for (int64_t j = 0; j < Sk; ++j) {
          if (o.causal.kind() != Causal::kOff && j > diagonal) continue;
          if (o.window.left >= 0 && j < diagonal - o.window.left) continue;
          if (o.window.right >= 0 && j > diagonal + o.window.right) continue;
          if (o.mask.defined() && at_broadcast(o.mask, {b, h, i, j}) == 0) continue;
          double s = 0;
          for (int64_t d = 0; d < D; ++d) s += at(q, {b, h, i, d}) * at(k, {b, g, j, d});
          s *= scale;
          if (o.softcap) s = *o.softcap * std::tanh(s / *o.softcap);
          if (o.bias.defined()) s += at_broadcast(o.bias, {b, h, i, j});
          if (s == -INFINITY) continue;
          seen.push_back(j), scores.push_back(s);
          top = std::isnan(s) ? s : std::fmax(top, s);
        }
        for (double& s : scores) sum += s = std::exp(s - top);
        result.lse.push_back(seen.empty() ? -INFINITY : top + std::log(sum));
        const double whole = sum + (o.sinks.defined() ? std::exp(at(o.sinks, {h}) - top) : 0.0);
        for (int64_t c = 0; c < Dv; ++c) {
          double x = 0;
          for (size_t n = 0; n < seen.size(); ++n) x += scores[n] * at(v, {b, g, seen[n], c});
          result.out.push_back(seen.empty() ? 0.0 : x / whole);
        }
      }
  return result;
}

}  // namespace tenor::reference
