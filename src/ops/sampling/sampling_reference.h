// The oracle: a row sorted, filtered and raced in float64, with its own Philox.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace tenor::reference {

using Row = std::vector<double>;

/// Philox4x32-10 as Salmon et al. 2011 print it.
inline std::vector<uint32_t> philox4x32(std::vector<uint32_t> x, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ull * x[0], p1 = 0xCD9E8D57ull * x[2];
    x = {uint32_t(p1 >> 32) ^ x[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ x[3] ^ k1, uint32_t(p0)};
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return x;
}

/// Token t's number in (0, 1): word t % 4 of block (t / 4, position, tag), with a second word where the first is small.
inline double uniform(uint64_t seed, uint64_t position, uint32_t tag, uint64_t t) {
  const auto word = [&](uint32_t c3) {
    return philox4x32({uint32_t(t / 4), uint32_t(position), uint32_t(position >> 32), c3}, uint32_t(seed),
                      uint32_t(seed >> 32))[t % 4];
  };
  const uint32_t w = word(tag);
  return w >= 256 ? (w + 0.5) / 4294967296.0
                  : (w * 4294967296.0 + word(tag | 0x80000000u) + 0.5) / 18446744073709551616.0;
}

struct Options {
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1, min_p = 0;
  uint64_t seed = 0, position = 0;
  bool joint = false;
};

/// Tokens in descending order, lower index first.
inline std::vector<int64_t> descending(const Row& x) {
  std::vector<int64_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return x[a] > x[b]; });
  return order;
}

inline double sum_of(const Row& x) { return std::accumulate(x.begin(), x.end(), 0.0); }

/// softmax(logits / temperature), temperature > 0.
inline Row softmax(const Row& logits, double temperature) {
  const double top = *std::max_element(logits.begin(), logits.end());
  Row p;
  for (double z : logits) p.push_back(std::exp((z - top) / temperature));
  const double sum = sum_of(p);
  for (double& v : p) v /= sum;
  return p;
}

/// p with 0 for what the filters drop; `x` gives the order. Not renormalised.
inline Row filtered(const Row& p, const Row& x, const Options& o) {
  const int64_t n = static_cast<int64_t>(p.size());
  const std::vector<int64_t> order = descending(x);
  const int64_t k = o.top_k <= 0 || o.top_k > n ? n : o.top_k;
  double total = 0, before = 0;
  for (int64_t r = 0; r < (o.joint ? n : k); ++r) total += p[order[r]];
  Row kept(p.size(), 0.0);
  for (int64_t r = 0; r < k; ++r) {
    const double mine = p[order[r]];
    const bool nucleus = r == 0 || o.top_p >= 1 || before <= o.top_p * total;
    if (nucleus && mine >= o.min_p * p[order[0]]) kept[order[r]] = mine;
    before += mine;
  }
  return kept;
}

/// Whether a filter's edge lies so near a token that rounding decides about it.
inline bool is_close_call(const Row& p, const Row& x, const Options& o) {
  const auto shifted = [&](double by) {
    Options near = o;
    if (o.top_p < 1) near.top_p = o.top_p * (1 + by);
    if (o.min_p > 0) near.min_p = o.min_p * (1 + by);
    return filtered(p, x, near);
  };
  const auto same = [](const Row& a, const Row& b) {
    for (size_t i = 0; i < a.size(); ++i)
      if ((a[i] > 0) != (b[i] > 0)) return false;
    return true;
  };
  return !same(shifted(-1e-4), shifted(1e-4));
}

/// The race: every token's weight over its exponential number.
inline Row scores(const Row& weights, uint64_t seed, uint64_t position, uint32_t tag) {
  Row s;
  for (size_t t = 0; t < weights.size(); ++t) s.push_back(weights[t] / -std::log1p(-uniform(seed, position, tag, t)));
  return s;
}
inline int64_t winner(const Row& weights, uint64_t seed, uint64_t position, uint32_t tag) {
  const Row s = scores(weights, seed, position, tag);
  return std::max_element(s.begin(), s.end()) - s.begin();
}

/// A distribution: no NaN, no +inf, something that is not -inf.
inline bool usable_logits(const Row& x) {
  bool some = false;
  for (double v : x) {
    if (std::isnan(v) || v == INFINITY) return false;
    some = some || std::isfinite(v);
  }
  return some;
}

}  // namespace tenor::reference
