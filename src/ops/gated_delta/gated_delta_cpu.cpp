// The rule step by step. A task keeps some columns of a state in the first-level cache and passes over them once a
// step: the update of a step is made when the next one reads, and the output follows from S before it, o = S^T q + (q .
// k) e.
#include <vector>

#include "src/cpu/parallel.h"
#include "src/ops/gated_delta/gated_delta_kernels.h"
#include "src/ops/gated_delta/gated_delta_operands.h"
#include "src/ops/gated_delta/state_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/gated_delta/gated_delta_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/gated_delta/gated_delta-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

template <class C>
struct DeltaState {
  std::vector<C> s;  // [K, stride]
  int64_t key_dim, stride;
};

/// What one pass needs of a step and of the one before it, whose update is still to be made.
template <class C>
struct DeltaPass {
  const C *decay, *key, *query;  // [K]; decay as a factor
  const C *last_key, *last_error;
  C *by_key, *by_query;  // S^T k and S^T q, [stride]
};

/// kVectors vectors of columns from `at` on: S = decay (S + last_key last_error^T), by_key = S^T key, by_query
/// likewise.
template <int kVectors, class C>
HWY_INLINE void pass_columns(DeltaState<C>& state, const DeltaPass<C>& p, int64_t at) {
  const ComputeTag<C> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V by_key[kVectors], by_query[kVectors], error[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    by_key[v] = by_query[v] = hn::Zero(d);
    error[v] = hn::LoadU(d, p.last_error + at + v * lanes);
  }
  C* row = state.s.data() + at;
  for (int64_t c = 0; c < state.key_dim; ++c, row += state.stride) {
    const V last = hn::Set(d, p.last_key[c]), decay = hn::Set(d, p.decay[c]), key = hn::Set(d, p.key[c]),
            query = hn::Set(d, p.query[c]);
    for (int v = 0; v < kVectors; ++v) {
      const V s = hn::Mul(decay, hn::MulAdd(last, error[v], hn::LoadU(d, row + v * lanes)));
      hn::StoreU(s, d, row + v * lanes);
      by_key[v] = hn::MulAdd(key, s, by_key[v]);
      by_query[v] = hn::MulAdd(query, s, by_query[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    hn::StoreU(by_key[v], d, p.by_key + at + v * lanes);
    hn::StoreU(by_query[v], d, p.by_query + at + v * lanes);
  }
}

template <class C>
HWY_INLINE void pass(DeltaState<C>& state, const DeltaPass<C>& p) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(ComputeTag<C>()));
  int64_t at = 0;
  for (; at + 4 * lanes <= state.stride; at += 4 * lanes) pass_columns<4>(state, p, at);
  for (; at < state.stride; at += lanes) pass_columns<1>(state, p, at);
}

inline constexpr int64_t kTile = 16;  // steps whose operands are read together

template <class C>
HWY_INLINE void recurrent_block(const delta::Problem& p, const DeltaBlock& b) {
  const ComputeTag<C> d;
  const int64_t K = p.key_dim, lanes = static_cast<int64_t>(hn::Lanes(d)), width = p.by_channel() ? K : 1;
  const DeltaOperands<C> operands(p);
  DeltaState<C> state{{}, K, (b.columns + lanes - 1) / lanes * lanes};
  state.s.resize(K * state.stride);
  load_state(p, *b.sequence, b.head, b.first, b.columns, state.s.data(), state.stride);
  std::vector<C> query(kTile * K), key((kTile + 1) * K, 0), decay(kTile * width), factor(K),
      value(kTile * state.stride), beta(kTile), by_key(state.stride), by_query(state.stride), error(state.stride, 0);
  for (int64_t t = 0; t < b.sequence->length; t += kTile) {
    const int64_t n = std::min(kTile, b.sequence->length - t);
    operands.query(*b.sequence, b.head, t, n, query.data());
    operands.key(*b.sequence, b.head, t, n, key.data() + K);  // behind the last key of the tile before
    operands.value(*b.sequence, b.head, t, n, b.first, b.columns, value.data(), state.stride);
    operands.beta(*b.sequence, b.head, t, n, beta.data());
    operands.decay(*b.sequence, b.head, t, n, decay.data());
    for (int64_t i = 0; i < n; ++i) {
      if (p.by_channel()) {
        map_row(decay.data() + i * K, factor.data(), K, [](auto tag, auto v) HWY_ATTR { return math::exp(tag, v); });
      } else {
        std::fill(factor.begin(), factor.end(), std::exp(decay[i]));
      }
      const C *q = query.data() + i * K, *k = key.data() + (i + 1) * K;
      pass(state, DeltaPass<C>{factor.data(), k, q, k - K, error.data(), by_key.data(), by_query.data()});
      const C both = dot(q, k, K);
      C* v = value.data() + i * state.stride;
      for (int64_t j = 0; j < b.columns; ++j) {
        error[j] = beta[i] * (v[j] - by_key[j]);
        v[j] = by_query[j] + both * error[j];
      }
    }
    std::copy_n(key.data() + n * K, K, key.data());
    operands.store(*b.sequence, b.head, t, n, b.first, b.columns, value.data(), state.stride);
  }
  for (int64_t c = 0; c < K; ++c)  // the last step's update
    for (int64_t j = 0; j < b.columns; ++j) state.s[c * state.stride + j] += key[c] * error[j];
  store_state(p, *b.sequence, b.head, b.first, b.columns, state.s.data(), state.stride);
}

void recurrent_any(const delta::Problem& p, const DeltaBlock& b) {
  if (p.query.dtype() == float64) return recurrent_block<double>(p, b);
  recurrent_block<float>(p, b);
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(recurrent_any);
void delta_recurrent(const delta::Problem& p) {
  constexpr int64_t kColumns = 64;  // of 128 keys: 32 KiB of state
  delta::zero_unclaimed(p.output, p.on_cpu, p.cu_seqlens.defined());
  const std::vector<DeltaBlock> blocks = delta_blocks(p, kColumns);
  const int64_t a_block = p.key_dim * std::min(kColumns, p.value_dim) * 4 * (1 + p.steps / 4);
  parallel_for(static_cast<int64_t>(blocks.size()), grain_of(a_block), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) HWY_DYNAMIC_DISPATCH(recurrent_any)(p, blocks[i]);
  });
}

}  // namespace tenor::cpu
#endif  // HWY_ONCE
