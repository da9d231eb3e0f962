// Random problems of the gated delta rule and their reference, for the tests on both devices.
#pragma once

#include <algorithm>

#include "src/core/testing.h"
#include "src/ops/gated_delta/gated_delta_reference.h"
#include "src/ops/gated_delta/state_pool.h"
#include "tenor/gated_delta.h"

namespace tenor::testing {

struct DeltaShape {
  int64_t batch, heads, group, steps, key_dim, value_dim;
  bool by_channel = false;
  bool beta_float = false;
  double strongest = 1;  // decays lie in -strongest..0
};

struct DeltaCase {
  Tensor query, key, value, beta, decay;
  GatedDeltaOptions options = {};

  int64_t value_heads() const { return value.shape(1); }
  int64_t states() const { return options.cu_seqlens.defined() ? options.cu_seqlens.shape(0) - 1 : value.shape(0); }
};

/// Operands of any layout; keys of about length 1, so that the recurrence stays bounded.
inline DeltaCase random_delta(Draw& draw, const DeltaShape& s, DType dtype) {
  const int64_t Hv = s.heads * s.group;
  const auto scaled = [&](const Dims& shape, DType of, auto value) {
    Tensor x = draw.any_layout(shape, of);
    std::vector<double> all(static_cast<size_t>(product(shape)));
    for (double& v : all) v = value();
    assign(x, all);
    return x;
  };
  const double length = 1 / std::sqrt(static_cast<double>(s.key_dim));
  const auto uniform = [&] { return static_cast<double>(draw.upto(1 << 20)) / (1 << 20); };
  const Dims keys{s.batch, s.heads, s.steps, s.key_dim}, gates{s.batch, Hv, s.steps};
  Dims decays = gates;
  if (s.by_channel) decays.push_back(s.key_dim);
  DeltaCase c{scaled(keys, dtype, [&] { return draw.normal(); }),
              scaled(keys, dtype, [&] { return length * draw.normal(); }),
              scaled({s.batch, Hv, s.steps, s.value_dim}, dtype, [&] { return draw.normal(); }),
              scaled(gates, s.beta_float ? float32 : dtype, uniform),
              scaled(decays, float32, [&] { return -s.strongest * uniform(); })};
  return c;
}

/// Number `round` of a series of shapes, layouts and options.
inline DeltaCase varied_delta(Draw& draw, int round, DType dtype) {
  const DeltaShape s{draw.upto(2) + (round > 2),
                     1 + draw.upto(1),
                     1 + draw.upto(2),
                     draw.upto(round % 4 ? 40 : 150),
                     1 + draw.upto(round % 3 ? 20 : 70),
                     draw.upto(round % 5 ? 40 : 150),
                     round % 2 == 1,
                     round % 3 == 0,
                     round % 4 == 1 ? 40.0 : 0.3};
  DeltaCase c = random_delta(draw, s, dtype);
  if (round % 3 == 1)
    c.options.initial_state = draw.view({s.batch, s.heads * s.group, s.key_dim, s.value_dim}, float32);
  if (round % 3 == 1 && round % 2) c.options.has_initial_state = full({s.batch}, boolean, round % 4 == 1);
  if (round % 4 == 2) c.options.query_scale = -0.7;
  c.options.qk_normalize = round % 5 == 3;
  return c;
}

/// The case with NaN in every operand from step `at` on.
inline DeltaCase poisoned_after(const DeltaCase& from, int64_t at) {
  DeltaCase c = from;
  for (Tensor* x : {&c.query, &c.key, &c.value, &c.beta, &c.decay}) {
    *x = x->clone();
    for (int64_t i = 0; i < x->numel(); ++i) {
      const int64_t step = x->ndim() == 4 ? i / x->shape(3) % x->shape(2) : i % x->shape(2);
      if (step >= at) put(*x, offset_of(*x, i), kNan);
    }
  }
  return c;
}

struct DeltaWanted {
  std::vector<double> output, final_state;  // in logical order; final_state of the sequences, not of a pool
};

/// Row `t` of x [B, H, T, n] at (b, h), or the number of x [B, H, T].
inline std::vector<double> delta_rows(const std::vector<double>& all, const Tensor& x, int64_t b, int64_t h,
                                      int64_t begin, int64_t n) {
  const int64_t width = x.ndim() == 4 ? x.shape(3) : 1;
  const int64_t at = ((b * x.shape(1) + h) * x.shape(2) + begin) * width;
  return {all.begin() + at, all.begin() + at + n * width};
}

/// The reference on every sequence and head of a case on the CPU; steps that belong to none stay 0.
inline DeltaWanted delta_wanted(const DeltaCase& c) {
  const auto& o = c.options;
  const int64_t Hv = c.value_heads(), group = Hv / c.query.shape(1), K = c.query.shape(3), V = c.value.shape(3),
                T = c.query.shape(2);
  const auto q = values(c.query), k = values(c.key), v = values(c.value), beta = values(c.beta), g = values(c.decay);
  const delta::StateOptions states{o.cu_seqlens, o.initial_state, o.state, o.state_indices, o.has_initial_state};
  const Tensor first = o.state.defined() ? o.state : o.initial_state;
  const auto initial = first.defined() ? values(first) : std::vector<double>();
  DeltaWanted want{std::vector<double>(v.size(), 0), {}};
  for (const auto& s : delta::read_sequences("test", states, c.query.shape(0), T))
    for (int64_t h = 0; h < Hv; ++h) {
      reference::DeltaHead head{.steps = s.length, .key_dim = K, .value_dim = V};
      head.query = delta_rows(q, c.query, s.batch, h / group, s.begin, s.length);
      head.key = delta_rows(k, c.key, s.batch, h / group, s.begin, s.length);
      head.value = delta_rows(v, c.value, s.batch, h, s.begin, s.length);
      head.beta = delta_rows(beta, c.beta, s.batch, h, s.begin, s.length);
      head.log_decay = delta_rows(g, c.decay, s.batch, h, s.begin, s.length);
      head.by_channel = c.decay.ndim() == 4;
      head.scale = o.query_scale.value_or(1 / std::sqrt(static_cast<double>(K)));
      head.normalize = o.qk_normalize;
      head.state.assign(static_cast<size_t>(K * V), 0);
      if (s.slot >= 0 && !s.fresh) std::copy_n(initial.begin() + (s.slot * Hv + h) * K * V, K * V, head.state.begin());
      if (s.slot >= 0) {
        const auto out = reference::gated_delta_rule(head);
        std::copy(out.begin(), out.end(), want.output.begin() + ((s.batch * Hv + h) * T + s.begin) * V);
      }
      want.final_state.insert(want.final_state.end(), head.state.begin(), head.state.end());
    }
  return want;
}

/// The largest error relative to the largest value: what a bound on rounding is stated in.
inline double relative_error(const std::vector<double>& got, const std::vector<double>& want) {
  double error = 0, most = 1e-30;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(got[i]) != std::isnan(want[i])) return kInf;
    if (std::isnan(want[i])) continue;
    error = std::max(error, std::abs(got[i] - want[i])), most = std::max(most, std::abs(want[i]));
  }
  return error / most;
}

inline ChunkGatedDeltaOptions chunk_options(const GatedDeltaOptions& o, int64_t chunk) {
  return {o.initial_state, o.query_scale,       chunk,          o.cu_seqlens, o.state,
          o.state_indices, o.has_initial_state, o.qk_normalize, "auto",       o.out};
}
/// chunk 0: step by step.
inline GatedDeltaResult run_delta(const DeltaCase& c, int64_t chunk, const GatedDeltaOptions& o) {
  return chunk == 0 ? gated_delta_rule(c.query, c.key, c.value, c.beta, c.decay, o)
                    : chunk_gated_delta_rule(c.query, c.key, c.value, c.beta, c.decay, chunk_options(o, chunk));
}
inline GatedDeltaResult run_delta(const DeltaCase& c, int64_t chunk = 0) { return run_delta(c, chunk, c.options); }

/// What outputs of that dtype may be off by, relative to the largest; of bfloat16 twice as much where tensor cores
/// round factors.
inline double delta_tolerance(DType dtype, bool tensorcore = false) {
  if (dtype == bfloat16) return tensorcore ? 0x1p-7 : 0x1p-8;
  return dtype == float64 ? 1e-12 : dtype == float32 ? 2e-5 : 0x1p-10;
}

}  // namespace tenor::testing
