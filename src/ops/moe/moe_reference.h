// The oracle: mixture of experts as plain loops in float64 over values in logical order. Routing's choice depends on
// float32 scores, so that its oracle computes those (rounded from float64) and the rest in float64.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace tenor::moe::reference {

using Values = std::vector<double>;

/// Numbers of the greatest first: larger, then lower number; NaN after everything.
inline std::vector<int64_t> ordered(const Values& scores) {
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    if (std::isnan(scores[a]) || std::isnan(scores[b])) return !std::isnan(scores[a]) && std::isnan(scores[b]);
    return scores[a] > scores[b];
  });
  return order;
}

struct Choice {
  std::vector<int64_t> ids;
  Values weights;
};

/// One token's softmax routing.
inline Choice route(const Values& logits, int64_t top_k, bool renormalize) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (double x : logits) top = std::isnan(x) || x > top ? x : top;
  Values p;
  for (double x : logits) p.push_back(std::exp(x - top)), sum += p.back();
  for (double& x : p) x /= sum;
  const bool usable = !std::isnan(sum);
  Choice c;
  c.ids = ordered(usable ? p : logits);
  c.ids.resize(static_cast<size_t>(top_k));
  double chosen = 0;
  for (int64_t e : c.ids) c.weights.push_back(usable ? p[e] : std::nan("")), chosen += c.weights.back();
  if (renormalize)
    for (double& w : c.weights) w /= chosen;
  return c;
}

/// One token's grouped sigmoid routing; bias has a number an expert.
inline Choice route_sigmoid_grouped(const Values& logits, const Values& bias, int64_t top_k, int64_t groups,
                                    int64_t selected, bool top_two, bool renormalize, double scale) {
  Values s, c;
  for (size_t e = 0; e < logits.size(); ++e) s.push_back(1 / (1 + std::exp(-logits[e]))), c.push_back(s[e] + bias[e]);
  const size_t size = logits.size() / static_cast<size_t>(groups);
  Values of_group;
  for (size_t g = 0; g < static_cast<size_t>(groups); ++g) {
    const Values own(c.begin() + static_cast<long>(g * size), c.begin() + static_cast<long>((g + 1) * size));
    const auto best = ordered(own);
    of_group.push_back(own[best[0]] + (top_two ? own[best[1]] : 0));
  }
  const auto best_groups = ordered(of_group);
  Choice out;
  for (int64_t e : ordered(c)) {
    const bool kept = std::find(best_groups.begin(), best_groups.begin() + selected, e / static_cast<int64_t>(size)) !=
                      best_groups.begin() + selected;
    if (kept && static_cast<int64_t>(out.ids.size()) < top_k) out.ids.push_back(e);
  }
  double sum = 0;
  for (int64_t e : out.ids) sum += s[e];
  for (int64_t e : out.ids) out.weights.push_back((renormalize ? s[e] / (sum + 1e-20) : s[e]) * scale);
  return out;
}

/// out[n] = matrix[n,k] row[k].
inline Values product(const double* matrix, const double* row, int64_t n, int64_t k) {
  Values out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < k; ++j) out[i] += matrix[i * k + j] * row[j];
  return out;
}

/// One token through one expert: gate, up [I,H], down [H,I]. `round` rounds the activation as the kernels do.
template <class Round>
Values expert(const double* gate, const double* up, const double* down, const double* x, int64_t I, int64_t H,
              Round round) {
  Values g = product(gate, x, I, H);
  const Values u = product(up, x, I, H);
  for (int64_t i = 0; i < I; ++i) g[i] = round(g[i] / (1 + std::exp(-g[i])) * u[i]);
  return product(down, g.data(), H, I);
}

}  // namespace tenor::moe::reference
