// The rule by chunks. Every product of a row stops at the last step that the row may see, so that no later step, NaN or
// not, reaches it; sums of log decays are kept in float64, and every exponential is of a difference that is not masked.
#include <vector>

#include "src/cpu/parallel.h"
#include "src/ops/gated_delta/gated_delta_kernels.h"
#include "src/ops/gated_delta/gated_delta_operands.h"
#include "src/ops/gated_delta/state_pool.h"
#include "tenor/device.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/gated_delta/gated_delta_chunk_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/gated_delta/gated_delta-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

inline constexpr int64_t kRows = 16;  // of the triangular solve's blocks, and of those that share an anchor

/// x(r, d) = x[r * row + d * depth].
template <class C>
struct Factor {
  const C* x;
  int64_t row, depth;
};

template <int kRowCount, int kVectors, class C>
HWY_INLINE void multiply_tile(Factor<C> a, int64_t depth, const C* y, C* out, int64_t stride) {
  const ComputeTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sum[kRowCount][kVectors];
  for (int r = 0; r < kRowCount; ++r)
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::LoadU(d, out + r * stride + v * lanes);
  for (int64_t i = 0; i < depth; ++i)
    for (int v = 0; v < kVectors; ++v) {
      const auto b = hn::LoadU(d, y + i * stride + v * lanes);
      for (int r = 0; r < kRowCount; ++r)
        sum[r][v] = hn::MulAdd(hn::Set(d, a.x[r * a.row + i * a.depth]), b, sum[r][v]);
    }
  for (int r = 0; r < kRowCount; ++r)
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, out + r * stride + v * lanes);
}

template <int kRowCount, class C>
HWY_INLINE void multiply_rows(Factor<C> a, int64_t depth, const C* y, C* out, int64_t stride) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(ComputeTag<C>()));
  int64_t at = 0;
  for (; at + 2 * lanes <= stride; at += 2 * lanes) multiply_tile<kRowCount, 2>(a, depth, y + at, out + at, stride);
  if (at < stride) multiply_tile<kRowCount, 1>(a, depth, y + at, out + at, stride);
}

/// out[r, :] += sum_i a(r, i) y[i, :]; rows of `stride`, a multiple of the vector.
template <class C>
HWY_INLINE void multiply_add(Factor<C> a, int64_t rows, int64_t depth, const C* y, C* out, int64_t stride) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4)
    multiply_rows<4>(Factor<C>{a.x + r * a.row, a.row, a.depth}, depth, y, out + r * stride, stride);
  for (; r < rows; ++r)
    multiply_rows<1>(Factor<C>{a.x + r * a.row, a.row, a.depth}, depth, y, out + r * stride, stride);
}

/// to = x * exp(above - below), element by element.
template <class C>
HWY_INLINE void decayed(const C* x, const double* above, const double* below, int64_t n, C* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<C>(above[i] - (below ? below[i] : 0.0));
  const ComputeTag<C> d;
  for_lanes(d, static_cast<size_t>(n), [&](size_t i, auto io) HWY_ATTR {
    io.store(d, hn::Mul(io.load(d, x + i), math::exp(d, io.load(d, static_cast<const C*>(to) + i))), to + i);
  });
}

/// One chunk of one head and what is made of it.
template <class C>
struct Chunk {
  int64_t key_dim, stride, most;  // most: steps of a chunk
  int64_t n = 0;
  bool by_channel;
  std::vector<C> query, key, beta, decay, state;
  std::vector<double> sums;                      // of log decays, [n] or [n, K]
  std::vector<C> solve, attend;                  // -L and tril(Q K^T), [n, most]
  std::vector<C> minus_key, late_key, anchored;  // -exp(G) K, exp(G_C - G) K, and scratch [n, K]
  std::vector<C> error, output;                  // N, O [n, stride]

  Chunk(const delta::Problem& p, int64_t columns)
      : key_dim(p.key_dim), most(std::max<int64_t>(1, std::min(p.chunk, p.steps))), by_channel(p.by_channel()) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(ComputeTag<C>()));
    stride = (columns + lanes - 1) / lanes * lanes;
    for (auto* x : {&query, &key, &minus_key, &late_key, &anchored}) x->resize(most * key_dim);
    for (auto* x : {&solve, &attend}) x->resize(most * most);
    for (auto* x : {&error, &output}) x->resize(most * stride);
    beta.resize(most), decay.resize(most * width()), sums.resize(most * width()), state.resize(key_dim * stride);
  }
  int64_t width() const { return by_channel ? key_dim : 1; }
  const double* sum(int64_t i) const { return sums.data() + i * width(); }
};

template <class C>
HWY_INLINE void add_up_decays(Chunk<C>& c) {
  const int64_t w = c.width();
  for (int64_t i = 0; i < c.n; ++i)
    for (int64_t j = 0; j < w; ++j)
      c.sums[i * w + j] = (i ? c.sums[(i - 1) * w + j] : 0) + static_cast<double>(c.decay[i * w + j]);
}

/// The triangular matrices, from one decay a step.
template <class C>
HWY_INLINE void triangles_by_step(Chunk<C>& c) {
  const int64_t K = c.key_dim;
  for (int64_t i = 0; i < c.n; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      const C weight = std::exp(static_cast<C>(c.sums[i] - c.sums[j]));
      c.solve[i * c.most + j] = -c.beta[i] * weight * dot(&c.key[i * K], &c.key[j * K], K);
      c.attend[i * c.most + j] = weight * dot(&c.query[i * K], &c.key[j * K], K);
    }
}

/// From one a channel: kRows rows share an anchor, their first row, from which their own exponents and those of earlier
/// steps both fall; within the block each pair has its own.
template <class C>
HWY_INLINE void triangles_by_channel(Chunk<C>& c) {
  const int64_t K = c.key_dim;
  std::vector<C> row(K);
  for (int64_t first = 0; first < c.n; first += kRows) {
    for (int64_t j = 0; j < first; ++j) decayed(&c.key[j * K], c.sum(first), c.sum(j), K, &c.anchored[j * K]);
    for (int64_t i = first; i < std::min(first + kRows, c.n); ++i) {
      decayed(&c.key[i * K], c.sum(i), c.sum(first), K, row.data());
      for (int64_t j = 0; j < first; ++j)
        c.solve[i * c.most + j] = -c.beta[i] * dot(static_cast<const C*>(row.data()), &c.anchored[j * K], K);
      decayed(&c.query[i * K], c.sum(i), c.sum(first), K, row.data());
      for (int64_t j = 0; j < first; ++j)
        c.attend[i * c.most + j] = dot(static_cast<const C*>(row.data()), &c.anchored[j * K], K);
      for (int64_t j = first; j <= i; ++j) {
        decayed(&c.key[j * K], c.sum(i), c.sum(j), K, row.data());
        c.solve[i * c.most + j] = -c.beta[i] * dot(static_cast<const C*>(row.data()), &c.key[i * K], K);
        c.attend[i * c.most + j] = dot(static_cast<const C*>(row.data()), &c.query[i * K], K);
      }
    }
  }
}

/// x[i] * exp(above_i - below_i) for all steps; above or below may be one step's.
template <class C>
HWY_INLINE void decay_rows(const Chunk<C>& c, const C* x, C* to, bool late, C sign) {
  const int64_t K = c.key_dim;
  const double* end = c.sum(c.n - 1);
  for (int64_t i = 0; i < c.n; ++i) {
    if (c.by_channel) {
      decayed(x + i * K, late ? end : c.sum(i), late ? c.sum(i) : nullptr, K, to + i * K);
    } else {
      const C weight = std::exp(static_cast<C>(late ? end[0] - c.sums[i] : c.sums[i]));
      for (int64_t k = 0; k < K; ++k) to[i * K + k] = x[i * K + k] * weight;
    }
    for (int64_t k = 0; k < K; ++k) to[i * K + k] *= sign;
  }
}

/// N = (I + L)^-1 beta R, R in `error`: a block of rows from those before it, then row by row.
template <class C>
HWY_INLINE void solve_rows(Chunk<C>& c) {
  for (int64_t i = 0; i < c.n; ++i)
    for (int64_t j = 0; j < c.stride; ++j) c.error[i * c.stride + j] *= c.beta[i];
  for (int64_t first = 0; first < c.n; first += kRows) {
    const int64_t last = std::min(first + kRows, c.n);
    multiply_add(Factor<C>{&c.solve[first * c.most], c.most, 1}, last - first, first, c.error.data(),
                 &c.error[first * c.stride], c.stride);
    for (int64_t i = first + 1; i < last; ++i)
      multiply_add(Factor<C>{&c.solve[i * c.most + first], c.most, 1}, 1, i - first, &c.error[first * c.stride],
                   &c.error[i * c.stride], c.stride);
  }
}

/// O = exp(G) Q S + tril(Q K^T) N, each row up to its own step.
template <class C>
HWY_INLINE void read_out(Chunk<C>& c) {
  decay_rows(c, c.query.data(), c.anchored.data(), false, C(1));
  std::fill(c.output.begin(), c.output.end(), C(0));
  multiply_add(Factor<C>{c.anchored.data(), c.key_dim, 1}, c.n, c.key_dim, c.state.data(), c.output.data(), c.stride);
  for (int64_t i = 0; i < c.n; ++i)
    multiply_add(Factor<C>{&c.attend[i * c.most], c.most, 1}, 1, i + 1, c.error.data(), &c.output[i * c.stride],
                 c.stride);
}

template <class C>
HWY_INLINE void update_state(Chunk<C>& c) {
  const double* end = c.sum(c.n - 1);
  for (int64_t k = 0; k < c.key_dim; ++k) {
    const C weight = std::exp(static_cast<C>(end[c.by_channel ? k : 0]));
    for (int64_t j = 0; j < c.stride; ++j) c.state[k * c.stride + j] *= weight;
  }
  decay_rows(c, c.key.data(), c.late_key.data(), true, C(1));
  multiply_add(Factor<C>{c.late_key.data(), 1, c.key_dim}, c.key_dim, c.n, c.error.data(), c.state.data(), c.stride);
}

template <class C>
HWY_INLINE void chunked_block(const delta::Problem& p, const DeltaBlock& b) {
  const DeltaOperands<C> operands(p);
  Chunk<C> c(p, b.columns);
  load_state(p, *b.sequence, b.head, b.first, b.columns, c.state.data(), c.stride);
  for (int64_t t = 0; t < b.sequence->length; t += c.most) {
    c.n = std::min(c.most, b.sequence->length - t);
    operands.query(*b.sequence, b.head, t, c.n, c.query.data());
    operands.key(*b.sequence, b.head, t, c.n, c.key.data());
    operands.value(*b.sequence, b.head, t, c.n, b.first, b.columns, c.error.data(), c.stride);
    operands.beta(*b.sequence, b.head, t, c.n, c.beta.data());
    operands.decay(*b.sequence, b.head, t, c.n, c.decay.data());
    add_up_decays(c);
    if (c.by_channel) {
      triangles_by_channel(c);
    } else {
      triangles_by_step(c);
    }
    decay_rows(c, c.key.data(), c.minus_key.data(), false, C(-1));
    multiply_add(Factor<C>{c.minus_key.data(), c.key_dim, 1}, c.n, c.key_dim, c.state.data(), c.error.data(), c.stride);
    solve_rows(c);
    read_out(c);
    update_state(c);
    operands.store(*b.sequence, b.head, t, c.n, b.first, b.columns, c.output.data(), c.stride);
  }
  store_state(p, *b.sequence, b.head, b.first, b.columns, c.state.data(), c.stride);
}

void chunked_any(const delta::Problem& p, const DeltaBlock& b) {
  if (p.query.dtype() == float64) return chunked_block<double>(p, b);
  chunked_block<float>(p, b);
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(chunked_any);
void delta_chunked(const delta::Problem& p) {
  delta::zero_unclaimed(p.output, p.on_cpu, p.cu_seqlens.defined());
  // What is made of keys and queries serves all columns of a task: wide ones, unless cores would go without.
  const int64_t heads = static_cast<int64_t>(p.on_cpu.size()) * p.value_heads;
  const std::vector<DeltaBlock> blocks = delta_blocks(p, heads >= num_threads() ? 128 : 32);
  parallel_for(static_cast<int64_t>(blocks.size()), grain_of(p.key_dim * 128 * (1 + p.steps)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) HWY_DYNAMIC_DISPATCH(chunked_any)(p, blocks[i]);
               });
}

}  // namespace tenor::cpu
#endif  // HWY_ONCE
