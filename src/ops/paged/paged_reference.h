// Paged attention as its formula reads, in float64: the oracle of the tests.
#pragma once

#include "src/ops/attention/attention_reference.h"
#include "tenor/paged.h"

namespace tenor::reference {

struct PagedProblem {
  const paged::HostPlan& plan;
  Tensor q, k, v;
  Tensor qp = {}, kp = {};  // latent attention's position parts
  double scale = 1;
  bool causal = true;
  Window window = {};
  double softcap = 0;  // 0: none
  Tensor sinks = {};
};

/// out [queries, Hq, Dv], lse [queries, Hq].
inline Attention paged_attention(const PagedProblem& p) {
  const int64_t size = p.plan.page_size(), Hq = p.q.shape(1), Dv = p.v.shape(3);
  Attention result;
  for (int64_t i = 0; i < p.plan.queries(); ++i)
    for (int64_t h = 0; h < Hq; ++h) {
      const int64_t s = p.plan.sequence_ids()[i], position = p.plan.positions()[i], g = h / (Hq / p.k.shape(2));
      std::vector<int64_t> seen;
      std::vector<double> scores;
      double top = -INFINITY, sum = 0;
      for (int64_t j = 0; s >= 0 && j < p.plan.lengths()[s]; ++j) {
        if (p.causal && j > position) continue;
        if (p.window.left >= 0 && j < position - p.window.left) continue;
        if (p.window.right >= 0 && j > position + p.window.right) continue;
        const int64_t page = p.plan.tables()[s][j / size], row = j % size;
        double x = 0;
        for (int64_t d = 0; d < p.q.shape(2); ++d) x += at(p.q, {i, h, d}) * at(p.k, {page, row, g, d});
        for (int64_t d = 0; p.qp.defined() && d < p.qp.shape(2); ++d)
          x += at(p.qp, {i, h, d}) * at(p.kp, {page, row, g, d});
        x *= p.scale;
        if (p.softcap > 0) x = p.softcap * std::tanh(x / p.softcap);
        if (x == -INFINITY) continue;
        seen.push_back(j), scores.push_back(x);
        top = std::isnan(x) ? x : std::fmax(top, x);
      }
      for (double& x : scores) sum += x = std::exp(x - top);
      result.lse.push_back(seen.empty() ? -INFINITY : top + std::log(sum));
      const double whole = sum + (p.sinks.defined() ? std::exp(at(p.sinks, {h}) - top) : 0.0);
      for (int64_t c = 0; c < Dv; ++c) {
        double x = 0;
        for (size_t n = 0; n < seen.size(); ++n)
          x += scores[n] * at(p.v, {p.plan.tables()[s][seen[n] / size], seen[n] % size, g, c});
        result.out.push_back(seen.empty() ? 0.0 : x / whole);
      }
    }
  return result;
}

}  // namespace tenor::reference
