// Decoding: a block keeps some columns of a state in registers over the steps of a call. The state is read once and
// written once; everything else is small beside it.
#pragma once

#include "src/cuda/vector.cuh"
#include "src/ops/gated_delta/gated_delta_device.cuh"

namespace tenor::delta {

inline constexpr int kFour = 4;                       // columns of a thread
inline constexpr int kStateColumns = 32;              // of a block: the least that keeps rows in whole lines
inline constexpr int kLanes = kStateColumns / kFour;  // of a warp, side by side
inline constexpr int kRowGroups = 16;                 // threads that share a column's rows
inline constexpr int kRecurrentThreads = kRowGroups * kLanes;
inline constexpr int kRecurrentWarps = kRecurrentThreads / 32;

/// Sums over the rows of each warp, of two steps in turn, so that a step has to meet once.
struct RecurrentShared {
  alignas(16) float by_key[2][kRecurrentWarps][kStateColumns];
  alignas(16) float by_query[2][kRecurrentWarps][kStateColumns];
  alignas(16) float norms[2][kRecurrentWarps][kFour];  // k.k, q.q, q.k
};

/// N elements as they lie in registers, two of 16 bits in a word.
template <class T, int N>
struct Elements {
  static constexpr int kBytes = N * static_cast<int>(sizeof(T)), kEach = kBytes < 16 ? kBytes : 16;
  alignas(kEach) uint32_t words[kBytes / 4];

  /// Elements `dim` apart; `wide`: side by side, at multiples of 16 bytes or of what all of them take.
  __device__ __forceinline__ void load(const T* from, int64_t dim, bool wide) {
    if (wide) {
#pragma unroll
      for (int i = 0; i < kBytes; i += kEach)
        *reinterpret_cast<cuda::Word<kEach>*>(&words[i / 4]) =
            *reinterpret_cast<const cuda::Word<kEach>*>(reinterpret_cast<const char*>(from) + i);
    } else {
#pragma unroll
      for (int w = 0; w < kBytes / 4; ++w) {
        if constexpr (sizeof(T) == 4)
          words[w] = __float_as_uint(from[w * dim]);
        else
          words[w] = bits(from[2 * w * dim]) | static_cast<uint32_t>(bits(from[(2 * w + 1) * dim])) << 16;
      }
    }
  }
  __device__ __forceinline__ float operator[](int i) const {
    if constexpr (sizeof(T) == 4) {
      return __uint_as_float(words[i]);
    } else {
      const auto half = static_cast<uint16_t>(words[i / 2] >> i % 2 * 16);
      return cuda::convert<float>(*reinterpret_cast<const T*>(&half));
    }
  }
  static __device__ __forceinline__ uint16_t bits(const T& x) { return *reinterpret_cast<const uint16_t*>(&x); }
};

/// What a thread needs of one step: its rows' key, query and decays, its columns' values.
template <class T, int kKeyDim, bool kByChannel>
struct RecurrentStep {
  static constexpr int kRows = kKeyDim / kRowGroups;
  Elements<T, kRows> key, query;
  Elements<T, kFour> value;
  Elements<float, kByChannel ? kRows : 1> decay;
  float beta;

  __device__ __forceinline__ void load(const DeviceProblem& p, const DeviceSequence& s, int64_t head, int64_t column,
                                       int64_t step, bool wide) {
    const int row = threadIdx.x / kLanes * kRows;
    key.load(row_of<T>(p.key, s, head / p.group, step) + row * p.key.dim, p.key.dim, wide);
    query.load(row_of<T>(p.query, s, head / p.group, step) + row * p.query.dim, p.query.dim, wide);
    const int first = kByChannel ? row : 0;
    decay.load(row_of<float>(p.decay, s, head, step) + first * p.decay.dim, p.decay.dim, wide);
    if (column < p.value_dim) value.load(row_of<T>(p.value, s, head, step) + column * p.value.dim, p.value.dim, wide);
    beta = p.beta_float ? row_of<float>(p.beta, s, head, step)[0]
                        : cuda::convert<float>(row_of<T>(p.beta, s, head, step)[0]);
  }
};

/// Sums over the lanes of a warp that have the same columns; the same bits in each of them.
template <int N>
__device__ __forceinline__ void add_lanes(float (&x)[N]) {
#pragma unroll
  for (int distance = kLanes; distance < 32; distance *= 2)
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] += __shfl_xor_sync(~0u, x[i], distance);
}
/// Sums over the warps, in their order.
template <int kWidth>
__device__ __forceinline__ float4 add_warps(const float (&from)[kRecurrentWarps][kWidth], int at) {
  float4 all = *reinterpret_cast<const float4*>(&from[0][at]);
#pragma unroll
  for (int w = 1; w < kRecurrentWarps; ++w) {
    const float4 x = *reinterpret_cast<const float4*>(&from[w][at]);
    all.x += x.x, all.y += x.y, all.z += x.z, all.w += x.w;
  }
  return all;
}
__device__ __forceinline__ void store_four(float* to, const float (&x)[kFour]) {
  *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
}

/// One step: the thread's rows of the state, [kRows][4 columns], and the output. The order of additions is one for all
/// blocks: rows of a thread, lanes of a warp, warps.
template <bool kMany, class T, int kKeyDim, bool kByChannel>
__device__ __forceinline__ void advance(float (&state)[kKeyDim / kRowGroups][kFour],
                                        const RecurrentStep<T, kKeyDim, kByChannel>& step, RecurrentShared& shared,
                                        int buffer, const DeviceProblem& p, T* out, bool inside) {
  constexpr int kRows = kKeyDim / kRowGroups;
  const int at = threadIdx.x % kLanes * kFour, warp = threadIdx.x / 32, group = threadIdx.x % 32 / kLanes;
  float by_key[kFour] = {}, by_query[kFour] = {}, norms[kFour] = {};
  const float one_decay = kByChannel ? 1.0f : expf(step.decay[0]);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float key = step.key[r], query = step.query[r];
    const float decay = kByChannel ? expf(step.decay[kByChannel ? r : 0]) : one_decay;
    norms[2] = fmaf(query, key, norms[2]);
    if constexpr (!kMany) norms[0] = fmaf(key, key, norms[0]), norms[1] = fmaf(query, query, norms[1]);
#pragma unroll
    for (int j = 0; j < kFour; ++j) {
      state[r][j] *= decay;
      by_key[j] = fmaf(key, state[r][j], by_key[j]), by_query[j] = fmaf(query, state[r][j], by_query[j]);
    }
  }
  if (kMany && p.normalize)  // a branch costs more than it saves where memory is all that counts
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float key = step.key[r], query = step.query[r];
      norms[0] = fmaf(key, key, norms[0]), norms[1] = fmaf(query, query, norms[1]);
    }
  add_lanes(by_key), add_lanes(by_query), add_lanes(norms);
  if (group == 0) store_four(&shared.by_key[buffer][warp][at], by_key);
  if (group == 1) store_four(&shared.by_query[buffer][warp][at], by_query);
  if (group == 2 && at == 0) store_four(shared.norms[buffer][warp], norms);
  __syncthreads();
  const float key_scale = p.normalize ? rsqrtf(add_warps(shared.norms[buffer], 0).x + 1e-6f) : 1.0f;
  const float4 predicted = add_warps(shared.by_key[buffer], at);
  const auto error_of = [&](int j, float by) { return step.beta * (step.value[j] - key_scale * by); };
  const float error[kFour] = {error_of(0, predicted.x), error_of(1, predicted.y), error_of(2, predicted.z),
                              error_of(3, predicted.w)};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float key = step.key[r] * key_scale;
#pragma unroll
    for (int j = 0; j < kFour; ++j) state[r][j] = fmaf(key, error[j], state[r][j]);
  }
  if (threadIdx.x >= kLanes || !inside) return;
  const float4 all = add_warps(shared.norms[buffer], 0), asked = add_warps(shared.by_query[buffer], at);
  const float query_scale = static_cast<float>(p.scale) * (p.normalize ? rsqrtf(all.y + 1e-6f) : 1.0f);
  const float both = all.z * key_scale;
  const float by[kFour] = {asked.x, asked.y, asked.z, asked.w};
#pragma unroll
  for (int j = 0; j < kFour; ++j) out[j * p.output.dim] = cuda::convert<T>(query_scale * fmaf(both, error[j], by[j]));
}

/// Blocks: column blocks fastest, then value heads, then sequences. Steps of no sequence are not written here. States
/// have columns side by side, rows at multiples of 16 bytes. kBlocks of them share a multiprocessor. kMany: sequences
/// may have several steps, of which the next one's operands are under way. `wide`: keys, queries, values and decays by
/// channel lie as Elements takes them.
template <class T, int kKeyDim, bool kByChannel, bool kMany, int kBlocks>
__global__ void __launch_bounds__(kRecurrentThreads, kBlocks)
    recurrent_kernel(const __grid_constant__ DeviceProblem p, unsigned column_blocks, bool wide) {
  constexpr int kRows = kKeyDim / kRowGroups;
  __shared__ RecurrentShared shared;
  const unsigned rest = blockIdx.x / column_blocks;
  const int64_t head = rest % static_cast<unsigned>(p.value_heads), n = rest / static_cast<unsigned>(p.value_heads);
  const int64_t column = int64_t{blockIdx.x % column_blocks} * kStateColumns + threadIdx.x % kLanes * kFour;
  const int row = threadIdx.x / kLanes * kRows;
  const bool inside = column < p.value_dim;
  const DeviceSequence s(p.sequences, n);

  RecurrentStep<T, kKeyDim, kByChannel> step;
  if (s.length > 0) step.load(p, s, head, column, 0, wide);
  const int64_t place = place_of(p.sequences, n);
  if (place < 0) return;
  float state[kRows][kFour];
  const bool from_state = starts_from_state(p.sequences, n) && inside;
  const float* from = from_state ? state_of(p.first, place, head) + row * p.first.row + column : nullptr;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    cuda::Pack<float, kFour> four{};
    if (from_state) four = cuda::load_pack<kFour>(from + r * p.first.row);
#pragma unroll
    for (int j = 0; j < kFour; ++j) state[r][j] = four.at[j];
  }
  const auto out = [&](int64_t t) { return place_in<T>(p.output, s, head, t) + column * p.output.dim; };
  if constexpr (kMany) {
    for (int64_t t = 0; t < s.length; ++t) {
      RecurrentStep<T, kKeyDim, kByChannel> next;
      if (t + 1 < s.length) next.load(p, s, head, column, t + 1, wide);
      advance<true>(state, step, shared, t & 1, p, out(t), inside);
      step = next;
    }
  } else if (s.length > 0) {
    advance<false>(state, step, shared, 0, p, out(0), inside);
  }
  if (!inside) return;
  float* to = state_of(p.last, place, head) + row * p.last.row + column;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    cuda::Pack<float, kFour> four;
#pragma unroll
    for (int j = 0; j < kFour; ++j) four.at[j] = state[r][j];
    cuda::store_pack<kFour>(to + r * p.last.row, four);
  }
}

}  // namespace tenor::delta
