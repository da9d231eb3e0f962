// CTC as Graves et al. write it, in logarithms: the oracle of the tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <vector>

namespace tenor::ctc::reference {

using Row = std::vector<double>;

/// Logarithms of thousands keep their digits in this one.
using Log = long double;

inline Log log_add(Log a, Log b) {
  const Log top = a > b ? a : b;
  if (std::isinf(top) || std::isnan(a + b)) return std::isnan(a + b) ? a + b : top;
  return top + std::log(std::exp(a - top) + std::exp(b - top));
}

/// Blanks around and between the labels.
inline std::vector<int64_t> extended(const std::vector<int64_t>& labels, int64_t blank) {
  std::vector<int64_t> states = {blank};
  for (int64_t k : labels) states.push_back(k), states.push_back(blank);
  return states;
}
inline bool may_skip_to(const std::vector<int64_t>& states, size_t s, int64_t blank) {
  return s > 1 && states[s] != blank && states[s] != states[s - 2];
}

struct Sample {
  double loss;
  std::vector<Row> gradient;  ///< [frames][C] of exp(log_probs) - posterior; NaN where the loss is infinite
};

/// One sample: log_probs [frames][C].
inline Sample loss(const std::vector<Row>& log_probs, const std::vector<int64_t>& labels, int64_t blank) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const auto states = extended(labels, blank);
  const size_t T = log_probs.size(), W = states.size();
  if (T == 0) return {labels.empty() ? 0.0 : -kNone, {}};
  std::vector<std::vector<Log>> alpha(T, std::vector<Log>(W, kNone)), after = alpha;
  for (size_t t = 0; t < T; ++t)
    for (size_t s = 0; s < W; ++s) {
      Log reach = t == 0 && s < 2 ? 0 : kNone;
      if (t > 0) {
        reach = alpha[t - 1][s];
        if (s > 0) reach = log_add(reach, alpha[t - 1][s - 1]);
        if (may_skip_to(states, s, blank)) reach = log_add(reach, alpha[t - 1][s - 2]);
      }
      alpha[t][s] = reach + log_probs[t][static_cast<size_t>(states[s])];
    }
  Log total = alpha[T - 1][W - 1];
  if (W > 1) total = log_add(total, alpha[T - 1][W - 2]);
  Sample out{static_cast<double>(-total), {}};
  for (size_t t = T; t-- > 0;)
    for (size_t s = 0; s < W; ++s) {
      const auto next = [&](size_t u) { return after[t + 1][u] + log_probs[t + 1][static_cast<size_t>(states[u])]; };
      Log rest = t == T - 1 && s + 2 >= W ? 0 : kNone;
      if (t < T - 1) {
        rest = next(s);
        if (s + 1 < W) rest = log_add(rest, next(s + 1));
        if (s + 2 < W && may_skip_to(states, s + 2, blank)) rest = log_add(rest, next(s + 2));
      }
      after[t][s] = rest;
    }
  for (size_t t = 0; t < T; ++t) {
    Row row;
    for (double x : log_probs[t]) row.push_back(total == kNone ? std::nan("") : std::exp(x));
    for (size_t s = 0; s < W && total != kNone; ++s)
      row[static_cast<size_t>(states[s])] -= static_cast<double>(std::exp(alpha[t][s] + after[t][s] - total));
    out.gradient.push_back(row);
  }
  return out;
}

/// Repeats merged, then blanks dropped.
inline std::vector<int64_t> collapsed(const std::vector<int64_t>& path, int64_t blank) {
  std::vector<int64_t> labels;
  for (size_t t = 0; t < path.size(); ++t)
    if (path[t] != blank && (t == 0 || path[t] != path[t - 1])) labels.push_back(path[t]);
  return labels;
}

/// The probability of every label sequence, by going through every path: C^T of them.
inline std::map<std::vector<int64_t>, double> every_sequence(const std::vector<Row>& log_probs, int64_t blank) {
  std::map<std::vector<int64_t>, double> found;
  std::vector<int64_t> path;
  const std::function<void(double)> go = [&](double so_far) {
    if (path.size() == log_probs.size()) {
      found[collapsed(path, blank)] += std::exp(so_far);
      return;
    }
    const Row& row = log_probs[path.size()];
    for (size_t c = 0; c < row.size(); ++c) {
      path.push_back(static_cast<int64_t>(c));
      go(so_far + row[c]);
      path.pop_back();
    }
  };
  go(0);
  return found;
}

}  // namespace tenor::ctc::reference
