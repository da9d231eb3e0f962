// The gated delta rule in float64, line by line as its formula reads, one step of one head after another: the oracle of
// the kernels, with which it shares nothing.
#pragma once

#include <cmath>
#include <vector>

namespace tenor::reference {

/// One head's operands, row-major: q, k [T, K]; v [T, V]; beta [T]; log_decay [T] or [T, K]; state [K, V].
struct DeltaHead {
  int64_t steps, key_dim, value_dim;
  std::vector<double> query = {}, key = {}, value = {}, beta = {}, log_decay = {}, state = {};
  double scale = 1;
  bool normalize = false, by_channel = false;
};

inline void normalize(double* x, int64_t n) {
  double square = 0;
  for (int64_t i = 0; i < n; ++i) square += x[i] * x[i];
  for (int64_t i = 0; i < n; ++i) x[i] /= std::sqrt(square + 1e-6);
}

/// Output [T, V]; `head.state` becomes the final state.
inline std::vector<double> gated_delta_rule(DeltaHead& head) {
  const int64_t K = head.key_dim, V = head.value_dim;
  std::vector<double> output, S = head.state;
  for (int64_t i = 0; i < head.steps; ++i) {
    double *q = &head.query[i * K], *k = &head.key[i * K];
    const double* v = head.value.data() + i * V;
    if (head.normalize) normalize(q, K), normalize(k, K);
    for (int64_t c = 0; c < K; ++c)  // S = S * g.exp()
      for (int64_t j = 0; j < V; ++j) S[c * V + j] *= std::exp(head.log_decay[head.by_channel ? i * K + c : i]);
    std::vector<double> v_hat(V, 0), delta(V), o(V, 0);
    for (int64_t c = 0; c < K; ++c)  // v_hat = k S
      for (int64_t j = 0; j < V; ++j) v_hat[j] += k[c] * S[c * V + j];
    for (int64_t j = 0; j < V; ++j) delta[j] = head.beta[i] * (v[j] - v_hat[j]);
    for (int64_t c = 0; c < K; ++c)  // S = S + k (x) delta
      for (int64_t j = 0; j < V; ++j) S[c * V + j] += k[c] * delta[j];
    for (int64_t c = 0; c < K; ++c)  // o = q S
      for (int64_t j = 0; j < V; ++j) o[j] += head.scale * q[c] * S[c * V + j];
    output.insert(output.end(), o.begin(), o.end());
  }
  head.state = S;
  return output;
}

/// y [T] of one channel: x [T], the W - 1 inputs before it, W taps, a bias.
inline std::vector<double> causal_conv(const std::vector<double>& x, const std::vector<double>& before,
                                       const std::vector<double>& taps, double bias, bool silu) {
  std::vector<double> all = before, y;
  all.insert(all.end(), x.begin(), x.end());
  for (size_t t = 0; t < x.size(); ++t) {
    double sum = bias;
    for (size_t w = 0; w < taps.size(); ++w) sum += taps[w] * all[t + w];
    y.push_back(silu ? sum / (1 + std::exp(-sum)) : sum);
  }
  return y;
}

inline double delta_gate(double a, double A_log, double bias) {
  return -std::exp(A_log) * (std::fmax(a + bias, 0) + std::log1p(std::exp(-std::fabs(a + bias))));
}
inline double bounded_delta_gate(double a, double A_log, double bias, double lower_bound) {
  return lower_bound / (1 + std::exp(-std::exp(A_log) * (a + bias)));
}

}  // namespace tenor::reference
