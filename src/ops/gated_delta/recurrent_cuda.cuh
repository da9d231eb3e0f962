// Decoding: a block keeps some columns of a state in registers over the steps of a call. The state is read once and
// written once; everything else is small beside it.
#pragma once

#include "src/cuda/vector.cuh"
#include "src/ops/gated_delta/gated_delta_device.cuh"

namespace tenor::delta {

inline constexpr int kRowGroups = 16;  // threads that share a column's rows
inline constexpr int kFour = 4;        // columns of a thread

/// A step's operands in shared memory, twice: the next step's arrive while this one is computed.
template <int kKeyDim, int kColumns>
struct RecurrentShared {
  alignas(16) float key[2][kKeyDim], query[2][kKeyDim], decay[2][kKeyDim], value[2][kColumns];
  float beta[2];
  alignas(16) float by_key[kRowGroups][kColumns];
  alignas(16) float by_query[kRowGroups][kColumns];
  alignas(16) float norms[kRowGroups][4];  // k.k, q.q, q.k of the group's rows
  alignas(16) float all_by_key[kColumns], all_by_query[kColumns], all_norms[4];
};

/// Loads of one step that a block's threads have under way.
template <class T, int kKeyDim, int kColumns, bool kByChannel>
struct RecurrentStep {
  static constexpr int kThreads = kRowGroups * kColumns / kFour;
  static constexpr int kEach = (kKeyDim + kThreads - 1) / kThreads;
  float key[kEach], query[kEach], decay[kByChannel ? kEach : 1], value, beta;

  __device__ void load(const DeviceProblem& p, const DeviceSequence& s, int64_t head, int64_t first, int64_t step) {
    const int t = threadIdx.x;
    const T *q = row_of<T>(p.query, s, head / p.group, step), *k = row_of<T>(p.key, s, head / p.group, step);
    const float* g = row_of<float>(p.decay, s, head, step);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int c = t + i * kThreads;
      if (c >= kKeyDim) break;
      key[i] = cuda::convert<float>(k[c * p.key.dim]), query[i] = cuda::convert<float>(q[c * p.query.dim]);
      if constexpr (kByChannel) decay[i] = g[c * p.decay.dim];
    }
    if constexpr (!kByChannel) decay[0] = g[0];
    if (t < kColumns && first + t < p.value_dim)
      value = cuda::convert<float>(row_of<T>(p.value, s, head, step)[(first + t) * p.value.dim]);
    beta = p.beta_float ? row_of<float>(p.beta, s, head, step)[0]
                        : cuda::convert<float>(row_of<T>(p.beta, s, head, step)[0]);
  }
  __device__ void store(RecurrentShared<kKeyDim, kColumns>& shared, int buffer) const {
    const int t = threadIdx.x;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int c = t + i * kThreads;
      if (c >= kKeyDim) break;
      shared.key[buffer][c] = key[i], shared.query[buffer][c] = query[i];
      if constexpr (kByChannel) shared.decay[buffer][c] = expf(decay[i]);
    }
    if (!kByChannel && t == 0) shared.decay[buffer][0] = expf(decay[0]);
    if (t < kColumns) shared.value[buffer][t] = value;
    if (t == 0) shared.beta[buffer] = beta;
  }
};

/// Sums over the groups, in their order: a thread a column.
template <int kKeyDim, int kColumns>
__device__ __forceinline__ void add_groups(RecurrentShared<kKeyDim, kColumns>& shared) {
  const int t = threadIdx.x;
  const auto sum = [](const float* from, int stride) {
    float all = 0;
#pragma unroll
    for (int i = 0; i < kRowGroups; ++i) all += from[i * stride];
    return all;
  };
  if (t < kColumns) shared.all_by_key[t] = sum(&shared.by_key[0][t], kColumns);
  if (t >= kColumns && t < 2 * kColumns)
    shared.all_by_query[t - kColumns] = sum(&shared.by_query[0][t - kColumns], kColumns);
  if (t >= 2 * kColumns && t < 2 * kColumns + 3)
    shared.all_norms[t - 2 * kColumns] = sum(&shared.norms[0][t - 2 * kColumns], 4);
}

/// The step in `buffer`: the thread's rows of the state, [kRows][4 columns], and the output. The order of additions is
/// one for all blocks: rows of a group, then groups. `prepare` brings the next step to the other buffer.
template <class T, int kKeyDim, int kColumns, bool kByChannel, class Prepare>
__device__ __forceinline__ void advance(float (&state)[kKeyDim / kRowGroups][kFour],
                                        RecurrentShared<kKeyDim, kColumns>& shared, int buffer, const DeviceProblem& p,
                                        T* out, bool writes, Prepare prepare) {
  constexpr int kRows = kKeyDim / kRowGroups;
  const int at = threadIdx.x % (kColumns / kFour) * kFour, group = threadIdx.x / (kColumns / kFour);
  float by_key[kFour] = {}, by_query[kFour] = {}, norms[3] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float key = shared.key[buffer][group * kRows + r], query = shared.query[buffer][group * kRows + r];
    const float decay = shared.decay[buffer][kByChannel ? group * kRows + r : 0];
    norms[0] = fmaf(key, key, norms[0]), norms[1] = fmaf(query, query, norms[1]), norms[2] = fmaf(query, key, norms[2]);
#pragma unroll
    for (int j = 0; j < kFour; ++j) {
      state[r][j] *= decay;
      by_key[j] = fmaf(key, state[r][j], by_key[j]), by_query[j] = fmaf(query, state[r][j], by_query[j]);
    }
  }
  *reinterpret_cast<float4*>(&shared.by_key[group][at]) = make_float4(by_key[0], by_key[1], by_key[2], by_key[3]);
  *reinterpret_cast<float4*>(&shared.by_query[group][at]) =
      make_float4(by_query[0], by_query[1], by_query[2], by_query[3]);
  if (at == 0) *reinterpret_cast<float4*>(shared.norms[group]) = make_float4(norms[0], norms[1], norms[2], 0);
  __syncthreads();
  add_groups(shared);
  prepare();
  __syncthreads();
  const float key_scale = p.normalize ? rsqrtf(shared.all_norms[0] + 1e-6f) : 1.0f, beta = shared.beta[buffer];
  const float4 v = *reinterpret_cast<const float4*>(&shared.value[buffer][at]),
               predicted = *reinterpret_cast<const float4*>(&shared.all_by_key[at]);
  const float error[kFour] = {beta * (v.x - key_scale * predicted.x), beta * (v.y - key_scale * predicted.y),
                              beta * (v.z - key_scale * predicted.z), beta * (v.w - key_scale * predicted.w)};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float key = shared.key[buffer][group * kRows + r] * key_scale;
#pragma unroll
    for (int j = 0; j < kFour; ++j) state[r][j] = fmaf(key, error[j], state[r][j]);
  }
  if (group != 0 || !writes) return;
  const float query_scale = static_cast<float>(p.scale) * (p.normalize ? rsqrtf(shared.all_norms[1] + 1e-6f) : 1.0f);
  const float both = shared.all_norms[2] * key_scale;
#pragma unroll
  for (int j = 0; j < kFour; ++j)
    out[(at + j) * p.output.dim] = cuda::convert<T>(query_scale * fmaf(both, error[j], shared.all_by_query[at + j]));
}

/// All steps of a sequence, of which the first is in buffer 0.
template <class T, int kKeyDim, int kColumns, bool kByChannel>
__device__ __forceinline__ void advance_all(float (&state)[kKeyDim / kRowGroups][kFour],
                                            RecurrentShared<kKeyDim, kColumns>& shared, const DeviceProblem& p,
                                            const DeviceSequence& s, int64_t head, int64_t first) {
  RecurrentStep<T, kKeyDim, kColumns, kByChannel> step;
  const bool writes = first + threadIdx.x % (kColumns / kFour) * kFour < p.value_dim;
  for (int64_t t = 0; t < s.length; ++t) {
    const int buffer = t & 1;
    const bool more = t + 1 < s.length;
    if (more) step.load(p, s, head, first, t + 1);
    advance<T, kKeyDim, kColumns, kByChannel>(state, shared, buffer, p,
                                              place_in<T>(p.output, s, head, t) + first * p.output.dim, writes, [&] {
                                                if (more) step.store(shared, buffer ^ 1);
                                              });
  }
}

/// Blocks: column blocks fastest, then value heads, then sequences. Steps of no sequence are not written here. States
/// have columns side by side, rows at multiples of 16 bytes. kBlocks of them share a multiprocessor.
template <class T, int kKeyDim, int kColumns, bool kByChannel, int kBlocks>
__global__ void __launch_bounds__(kRowGroups* kColumns / kFour, kBlocks)
    recurrent_kernel(const __grid_constant__ DeviceProblem p, unsigned column_blocks) {
  constexpr int kRows = kKeyDim / kRowGroups;
  __shared__ RecurrentShared<kKeyDim, kColumns> shared;
  const int64_t first = int64_t{blockIdx.x % column_blocks} * kColumns;
  const unsigned rest = blockIdx.x / column_blocks;
  const int64_t head = rest % static_cast<unsigned>(p.value_heads), n = rest / static_cast<unsigned>(p.value_heads);
  const int at = threadIdx.x % (kColumns / kFour) * kFour, group = threadIdx.x / (kColumns / kFour);
  const bool inside = first + at < p.value_dim;
  const DeviceSequence s(p.sequences, n);

  RecurrentStep<T, kKeyDim, kColumns, kByChannel> step;
  if (s.length > 0) step.load(p, s, head, first, 0);
  const int64_t place = place_of(p.sequences, n);
  if (place < 0) return;
  float state[kRows][kFour];
  const bool from_state = starts_from_state(p.sequences, n) && inside;
  const float* from = from_state ? state_of(p.first, place, head) + group * kRows * p.first.row + first + at : nullptr;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    cuda::Pack<float, kFour> four{};
    if (from_state) four = cuda::load_pack<kFour>(from + r * p.first.row);
#pragma unroll
    for (int j = 0; j < kFour; ++j) state[r][j] = four.at[j];
  }
  if (s.length > 0) step.store(shared, 0);
  __syncthreads();
  advance_all<T, kKeyDim, kColumns, kByChannel>(state, shared, p, s, head, first);
  if (!inside) return;
  float* to = state_of(p.last, place, head) + group * kRows * p.last.row + first + at;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    cuda::Pack<float, kFour> four;
#pragma unroll
    for (int j = 0; j < kFour; ++j) four.at[j] = state[r][j];
    cuda::store_pack<kFour>(to + r * p.last.row, four);
  }
}

}  // namespace tenor::delta
