// A row of a sampling operator on CUDA: its options, the weights of its keys, and the race among its tokens.
#pragma once

#include "src/core/visit.h"
#include "src/cuda/content_error.cuh"
#include "src/cuda/convert.cuh"
#include "src/cuda/launch.h"
#include "src/cuda/radix_select.cuh"
#include "src/ops/sampling/random.h"
#include "src/ops/sampling/sampling_cuda.h"

namespace tenor::cuda {

template <class T>
using KeyOf = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;

/// RowOption as kernels read it.
struct OptionReader {
  const void* rows = nullptr;
  DType dtype{};
  int64_t stride = 0;
  double real = 0;
  int64_t integer = 0;

  OptionReader() = default;
  explicit OptionReader(const RowOption& o) : real(o.real), integer(o.integer) {
    if (!o.rows.defined()) return;
    rows = o.rows.raw();
    dtype = o.rows.dtype();
    stride = o.rows.ndim() == 0 ? 0 : o.rows.stride(0);
  }
  template <class To>
  __device__ To read(int64_t r, To scalar) const {
    if (!rows) return scalar;
    return core::visit(dtype, [&]<class T>() { return convert<To>(static_cast<const T*>(rows)[r * stride]); });
  }
  __device__ double real_at(int64_t r) const { return read(r, real); }
  __device__ int64_t integer_at(int64_t r) const { return read(r, integer); }
};

/// The options of a row, and what to say of those that are out of range.
struct Options {
  OptionReader temperature, top_k, top_p, min_p, seed, position;
  ContentError* flag = nullptr;
  int bad_temperature = 0, bad_top_p = 0, bad_min_p = 0;

  Options(const RowOptionSet& o, Device device)
      : temperature(o.temperature),
        top_k(o.top_k),
        top_p(o.top_p),
        min_p(o.min_p),
        seed(o.seed),
        position(o.position),
        flag(content_error(current_stream(device))) {}
};
struct RowChoice {
  double temperature, top_p, min_p;
  int64_t top_k;
  bool good;

  __device__ RowChoice(const Options& o, int64_t r)
      : temperature(o.temperature.real_at(r)),
        top_p(o.top_p.real_at(r)),
        min_p(o.min_p.real_at(r)),
        top_k(o.top_k.integer_at(r)),
        good(true) {
    if (!(temperature >= 0)) refuse(o, o.bad_temperature, r, temperature);
    if (isnan(top_p)) refuse(o, o.bad_top_p, r, top_p);
    if (!(min_p <= 1)) refuse(o, o.bad_min_p, r, min_p);
  }
  __device__ void refuse(const Options& o, int op, int64_t r, double value) {
    good = false;
    if (threadIdx.x == 0 && ptx::cluster_rank() == 0) raise_content_error(o.flag, op, r, core::cast<int64_t>(value));
  }
};
__device__ __forceinline__ sampling::Stream stream_at(const Options& o, int64_t r, uint32_t tag, int64_t step = 0) {
  return {static_cast<uint64_t>(o.seed.integer_at(r)), static_cast<uint64_t>(o.position.integer_at(r) + step),
          static_cast<sampling::Tag>(tag)};
}

/// What a key is worth: its number, its weight against the row's top, its mass.
template <class T>
struct Weights {
  using C = core::Compute<T>;
  using K = KeyOf<T>;
  core::KeyCode code;
  bool probs;
  C top, temperature, scale;
  float rough_inverse;  ///< 1 / temperature

  __device__ C number(K key) const {
    const K bits = core::decode(key, code);
    T value;
    memcpy(&value, &bits, sizeof value);
    return widen(value);
  }
  __device__ C weight(C number) const {
    if (probs) return number / top;
    if constexpr (sizeof(C) == 4) {
      return expf((number - top) / temperature);
    } else {
      return exp((number - top) / temperature);
    }
  }
  __device__ C operator()(K key) const { return weight(number(key)); }
  /// What Bound compares of it.
  __device__ float rough(K key) const {
    if (probs) return static_cast<float>(number(key) / top);
    const float gap = static_cast<float>(number(key) - top);
    return gap == 0 ? 0 : gap * rough_inverse;  // the inverse may be infinite
  }
  __device__ uint64_t mass(K key) const { return sampling::mass_of((*this)(key), scale); }

  /// Whether keys from `first` to `last` (in descending order of their numbers) are a distribution.
  __device__ bool usable(K first, K last) const {
    const C most = number(first);
    return isfinite(most) && (!probs || (most > 0 && number(last) >= 0));
  }
};

/// The best of a race; the lower token wins ties.
template <class C>
struct Winner {
  C score = -1;
  uint32_t token = ~0u;
  __device__ void offer(C s, uint32_t t) {
    if (s > score || (s == score && t < token)) score = s, token = t;
  }
};
inline constexpr int kWarps = kSelectThreads / kWarp;
template <class C>
struct RaceSpace {
  C score[kWarps];
  uint32_t token[kWarps];
  C scores[8];  ///< of the cluster's blocks, in the first one
  uint32_t tokens[8];
  uint32_t bound;  ///< a score that the block has seen, as the bits of a float
};

/// log1p's own value is the reason to call it: u may be as small as 2^-65.
template <class C>
__device__ __forceinline__ C score_of(C weight, C u) {
  if constexpr (sizeof(C) == 4) {
    return weight / -log1pf(-u);
  } else {
    return weight / -log1p(-u);
  }
}

/// The number of a token, of the block of words of its group of four.
template <class C>
__device__ __forceinline__ C number_of(const sampling::Stream& stream, uint32_t word, uint32_t token) {
  return word >= sampling::kFewDigits ? sampling::uniform_of<C>(word)
                                      : sampling::small_uniform_of<C>(word, stream.word(token, true));
}

/// The best of all threads of the block, in every thread.
template <class C>
__device__ Winner<C> block_winner(Winner<C> w, RaceSpace<C>& space) {
  const auto warp = [&] {
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2) w.offer(shuffle_xor(w.score, mask), shuffle_xor(w.token, mask));
  };
  warp();
  __syncthreads();
  if (threadIdx.x % kWarp == 0) space.score[threadIdx.x / kWarp] = w.score, space.token[threadIdx.x / kWarp] = w.token;
  __syncthreads();
  w = {space.score[threadIdx.x % kWarps], space.token[threadIdx.x % kWarps]};
  warp();
  return w;
}

/// Whether a token may beat `bound`, in float and with room for rounding: its score is weight / E, and E >= u >=
/// 2^-(zeros + 1) for a word of that many leading zeros. `weight` is the logarithm of the weight for logits, else the
/// weight.
struct Bound {
  float bound, logarithm;
  bool logits;
  __device__ Bound(float b, bool logits_in) : bound(0.99f * b), logarithm(logf(b) - 0.01f), logits(logits_in) {}
  __device__ bool lets(float weight, uint32_t word) const {
    const int zeros = __clz(static_cast<int>(word)) + 1;
    if (logits) return weight + static_cast<float>(zeros) * 0.693148f >= logarithm;
    return weight * __int_as_float((127 + zeros) << 23) >= bound;
  }
};

/// The race among tokens begin to begin + count - 1 of this block (begin is a multiple of 4) and those of the other
/// blocks. tokens.read(i, items) reads what four of them are from token begin + i on; tokens.rough(item, i) is what
/// Bound compares (-inf for one that does not take part), tokens.weight(item) its weight, 0 for none. The winner is in
/// thread 0 of the first block. Most tokens are seen to lose without their weight or a logarithm; which ones does not
/// change who wins.
template <class C, class Tokens>
__device__ Winner<C> race(const sampling::Stream& stream, uint32_t begin, uint32_t count, RaceSpace<C>& space,
                          bool logits, const Tokens& tokens) {
  if (threadIdx.x == 0) space.bound = 0;
  __syncthreads();
  Winner<C> best;
  for (uint32_t i = threadIdx.x * 4; i < count; i += kSelectThreads * 4) {
    typename Tokens::Item items[4];
    tokens.read(i, items);
    const core::PhiloxBlock block = stream.block((begin + i) / 4);
    const Bound bound(__uint_as_float(*const_cast<volatile uint32_t*>(&space.bound)), logits);
    bool better = false;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (i + j >= count || !bound.lets(tokens.rough(items[j], begin + i + j), block.word[j])) continue;
      const C weight = tokens.weight(items[j], begin + i + j);
      if (!(weight > 0)) continue;
      const C before = best.score;
      best.offer(score_of(weight, number_of<C>(stream, block.word[j], begin + i + j)), begin + i + j);
      better = better || best.score > before;
    }
    if (better) atomicMax(&space.bound, __float_as_uint(static_cast<float>(best.score)));
  }
  best = block_winner(best, space);
  RaceSpace<C>& first = *ptx::in_block(&space, 0);
  if (threadIdx.x == 0) first.scores[ptx::cluster_rank()] = best.score, first.tokens[ptx::cluster_rank()] = best.token;
  ptx::cluster_sync();
  if (ptx::cluster_rank() == 0 && threadIdx.x == 0)
    for (uint32_t b = 0; b < ptx::cluster_size(); ++b) best.offer(space.scores[b], space.tokens[b]);
  return best;
}

/// The least and the greatest key of a row, for every block; called by all once the parts are loaded.
template <class K>
struct KeySpan {
  K first, last;
};
template <class K>
struct SpanSpace {
  K first[kWarps], last[kWarps], firsts[8], lasts[8];
};
template <class K>
__device__ KeySpan<K> span_of(K first, K last, SpanSpace<K>& space) {
  const auto warp = [&](K& a, K& b) {
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      a = min(a, shuffle_xor(a, mask));
      b = max(b, shuffle_xor(b, mask));
    }
  };
  warp(first, last);
  if (threadIdx.x % kWarp == 0) space.first[threadIdx.x / kWarp] = first, space.last[threadIdx.x / kWarp] = last;
  __syncthreads();
  first = space.first[threadIdx.x % kWarps], last = space.last[threadIdx.x % kWarps];
  warp(first, last);
  if (threadIdx.x < ptx::cluster_size()) {
    SpanSpace<K>& there = *ptx::in_block(&space, threadIdx.x);
    there.firsts[ptx::cluster_rank()] = first, there.lasts[ptx::cluster_rank()] = last;
  }
  ptx::cluster_sync();
  first = space.firsts[0], last = space.lasts[0];
  for (uint32_t b = 1; b < ptx::cluster_size(); ++b)
    first = min(first, space.firsts[b]), last = max(last, space.lasts[b]);
  return {first, last};
}

/// Narrows to the one token that `narrow` leads to.
template <class K, bool Masses, class Count, class Narrow>
__device__ bool descend(Selection<K, Masses>& selection, const RowPart<K>& part, Count&& count, Narrow&& narrow) {
  do {
    part.each(count);
    if (!narrow()) return false;
  } while (!selection.is_done());
  return true;
}

/// Rows of a kernel: where they are, and how a cluster shares one.
template <class T>
struct RowSet {
  using K = KeyOf<T>;
  const K* x;
  uint32_t n, part;
  int64_t stride;
  bool resident;
  core::KeyCode code;
  bool probs;
  uint32_t tag;

  __device__ int64_t row() const { return blockIdx.x / ptx::cluster_size(); }
  __device__ RowPart<K> mine(char* keys) const {
    return part_of(x + row() * stride, n, part, code, resident ? reinterpret_cast<K*>(keys) : nullptr);
  }
  __device__ Weights<T> weights(double temperature) const {
    using C = core::Compute<T>;
    return {code,
            probs,
            C(0),
            static_cast<C>(temperature),
            static_cast<C>(exp2(static_cast<double>(sampling::mass_bits(n)))),
            1.0f / static_cast<float>(temperature)};
  }
};

/// Launches a kernel with a cluster a row, its Space at the beginning of shared memory and the keys after it.
template <class T, class Space, class... Params, class... Args>
void launch_rows(const SampleRows& p, void (*kernel)(RowSet<T>, Params...), Args&&... args) {
  const int64_t rows = p.x.shape(0), n = p.x.shape(1);
  if (n >= int64_t{UINT32_MAX})
    throw UnsupportedError(std::string(p.op) + ": rows of 2^32 tokens and more have no CUDA kernel");
  const SelectShape shape(n, sizeof(T), sizeof(Space), p.x.device());
  const RowSet<T> set{p.x.data<KeyOf<T>>(),
                      static_cast<uint32_t>(n),
                      shape.part,
                      p.x.stride(0),
                      shape.shared > sizeof(Space) + 15,
                      core::key_code(p.x.dtype(), true),
                      p.probs,
                      p.tag};
  const DeviceGuard guard(p.x.device());
  const Grid grid{static_cast<unsigned>(rows * shape.blocks), kSelectThreads, shape.shared, shape.blocks};
  launch(p.op, kernel, grid, p.x.device(), set, std::forward<Args>(args)...);
}
template <class Space>
inline constexpr size_t kKeysAt = (sizeof(Space) + 15) / 16 * 16;

}  // namespace tenor::cuda
