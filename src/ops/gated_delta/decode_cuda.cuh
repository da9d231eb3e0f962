// One step of every sequence, the case that is all memory: a block moves 64 columns of a state through its registers.
// For rows of 256 bytes at a time and few instructions it takes operands of one layout only; recurrent_cuda.cuh takes
// the others, and adds up in the same order.
#pragma once

#include "src/cuda/ptx/target.cuh"
#include "src/ops/gated_delta/recurrent_cuda.cuh"

namespace tenor::delta {

inline constexpr int kDecodeColumns = 64, kDecodeLanes = kDecodeColumns / kFour;  // of a block; side by side in a warp
inline constexpr int kDecodeThreads = kRowGroups * kDecodeLanes, kDecodeWarps = kDecodeThreads / 32;
inline constexpr int kDecodeBlocks = 3;  // on a multiprocessor

/// Sums over the rows of each warp.
struct DecodeShared {
  alignas(16) float by_key[kDecodeWarps][kDecodeColumns], by_query[kDecodeWarps][kDecodeColumns];
  alignas(16) float norms[kDecodeWarps][kFour];  // k.k, q.q, q.k, and whether the slot is bad
};

__device__ __forceinline__ float4 add_four(float4 x, float4 y) {
  return make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}
/// Sums over the warps: of two neighbours, whose rows one warp of a narrower block has, then in their order.
template <int kWidth>
__device__ __forceinline__ float4 add_pairs(const float (&from)[kDecodeWarps][kWidth], int at) {
  const auto pair = [&](int w) {
    return add_four(*reinterpret_cast<const float4*>(&from[w][at]), *reinterpret_cast<const float4*>(&from[w + 1][at]));
  };
  float4 all = pair(0);
#pragma unroll
  for (int w = 2; w < kDecodeWarps; w += 2) all = add_four(all, pair(w));
  return all;
}

/// Brings the share of its state that the block `ahead` blocks later has to the second-level cache: whole rows, which
/// lie one after the other.
template <int kKeyDim, bool kPool>
__device__ __forceinline__ void prefetch_state(const DeviceProblem& p, unsigned ahead) {
  const unsigned column_blocks = gridDim.x, heads = gridDim.y,
                 block = (blockIdx.z * heads + blockIdx.y) * column_blocks + blockIdx.x + ahead,
                 rest = block / column_blocks, part = block % column_blocks;
  const int64_t n = rest / heads;
  if (n >= p.sequences.count) return;
  const int64_t place = kPool ? slot_entry(p.sequences, n) : n;
  if (kPool && (place < 0 || place >= p.sequences.slots.size)) return;
  const unsigned first = kKeyDim * part / column_blocks, last = kKeyDim * (part + 1) / column_blocks;
  const float* from = state_of(p.first, place, rest % heads) + first * p.value_dim;
  const auto bytes = (last - first) * static_cast<uint32_t>(p.value_dim * sizeof(float));
  if constexpr (cuda::ptx::kIsHopper)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

/// A step's outputs of a sequence that is skipped.
template <class T>
__device__ __forceinline__ void zero_step(const DeviceProblem& p, int64_t n, unsigned head, int column) {
  if (threadIdx.x >= kDecodeLanes) return;
  T* out = place_in<T>(p.output, DeviceSequence(p.sequences, n), head, 0) + column * p.output.dim;
#pragma unroll
  for (int j = 0; j < kFour; ++j) out[j * p.output.dim] = T{};
}

/// What a thread needs of its sequence's step, everything as Elements takes it wide.
template <class T, int kKeyDim, bool kByChannel>
struct DecodeStep {
  static constexpr int kRows = kKeyDim / kRowGroups;
  Elements<T, kRows> keys, queries;
  Elements<float, kByChannel ? kRows : 1> decays;
  Elements<T, kFour> value;
  float beta;

  __device__ __forceinline__ void load(const DeviceProblem& p, int64_t n, unsigned head, int row, int column) {
    const DeviceSequence s(p.sequences, n);
    const unsigned key_head = head / static_cast<unsigned>(p.group);
    keys.load(row_of<T>(p.key, s, key_head, 0) + row, 1, true);
    queries.load(row_of<T>(p.query, s, key_head, 0) + row, 1, true);
    value.load(row_of<T>(p.value, s, head, 0) + column, 1, true);
    decays.load(row_of<float>(p.decay, s, head, 0) + (kByChannel ? row : 0), 1, true);
    beta = p.beta_float ? row_of<float>(p.beta, s, head, 0)[0] : cuda::convert<float>(row_of<T>(p.beta, s, head, 0)[0]);
  }

  /// Decays the thread's rows of the state, and leaves the warp's sums of what they give in shared memory.
  /// `bad`: the warp has found the slot to be none, which goes with them.
  __device__ __forceinline__ void read_state(cuda::Pack<float, kFour> (&state)[kRows], DecodeShared& shared, int at,
                                             bool bad) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float by_key[kFour] = {}, by_query[kFour] = {}, norms[kFour] = {};
    const float one_decay = kByChannel ? 1.0f : expf(decays[0]);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float key = keys[r], query = queries[r], decay = kByChannel ? expf(decays[kByChannel ? r : 0]) : one_decay;
      norms[2] = fmaf(query, key, norms[2]), norms[0] = fmaf(key, key, norms[0]),
      norms[1] = fmaf(query, query, norms[1]);
#pragma unroll
      for (int j = 0; j < kFour; ++j) {
        state[r].at[j] *= decay;
        by_key[j] = fmaf(key, state[r].at[j], by_key[j]), by_query[j] = fmaf(query, state[r].at[j], by_query[j]);
      }
    }
#pragma unroll
    for (int j = 0; j < kFour; ++j) {
      by_key[j] += __shfl_xor_sync(~0u, by_key[j], kDecodeLanes);
      by_query[j] += __shfl_xor_sync(~0u, by_query[j], kDecodeLanes);
      norms[j] += __shfl_xor_sync(~0u, norms[j], kDecodeLanes);
    }
    if (lane < kDecodeLanes)
      store_four(&shared.by_key[warp][at], by_key);
    else
      store_four(&shared.by_query[warp][at], by_query);
    norms[3] = bad ? 1.0f : 0.0f;
    if (lane == 0) store_four(shared.norms[warp], norms);
  }
};

/// Grid: column blocks, value heads, sequences. States are dense, values a multiple of 64; keys,
/// queries, values and decays by channel lie as Elements takes them wide. `ahead`: a block brings the state of the one
/// so many later nearer; 0: none. kPool: states have slots; whether a slot is named before turns out while its state is
/// on the way.
template <class T, int kKeyDim, bool kByChannel, bool kPool>
__global__ void __launch_bounds__(kDecodeThreads, kDecodeBlocks)
    decode_kernel(const __grid_constant__ DeviceProblem p, unsigned ahead) {
  constexpr int kRows = kKeyDim / kRowGroups;
  __shared__ DecodeShared shared;
  const unsigned head = blockIdx.y;
  const int64_t n = blockIdx.z, place = kPool ? slot_entry(p.sequences, n) : n;
  const int row = threadIdx.x / kDecodeLanes * kRows, at = threadIdx.x % kDecodeLanes * kFour,
            column = static_cast<int>(blockIdx.x) * kDecodeColumns + at, width = static_cast<int>(p.value_dim);
  if (kPool && is_skipped(p.sequences, place)) return zero_step<T>(p, n, head, column);
  bool bad = kPool && is_outside(p.sequences, place);
  cuda::Pack<float, kFour> state[kRows] = {};
  if (!bad && starts_from_state(p.sequences, n)) {  // before all else
    const float* from = state_of(p.first, place, head) + row * width + column;
#pragma unroll
    for (int r = 0; r < kRows; ++r) state[r] = cuda::load_past_l1<kFour>(from + r * width);
  }
  DecodeStep<T, kKeyDim, kByChannel> step;
  step.load(p, n, head, row, column);
  if (ahead > 0 && threadIdx.x == 0) prefetch_state<kKeyDim, kPool>(p, ahead);
  if constexpr (kPool) bad = __any_sync(~0u, bad || is_named_before(p.sequences, n, place));
  step.read_state(state, shared, at, bad);
  __syncthreads();
  const float4 predicted = add_pairs(shared.by_key, at), all = add_pairs(shared.norms, 0);
  if (kPool && all.w > 0) {
    if (threadIdx.x == 0) raise_bad_slot(p.sequences, n, place);
    return zero_step<T>(p, n, head, column);
  }
  const float key_scale = p.normalize ? rsqrtf(all.x + 1e-6f) : 1.0f;
  const auto error_of = [&](int j, float by) { return step.beta * (step.value[j] - key_scale * by); };
  const float error[kFour] = {error_of(0, predicted.x), error_of(1, predicted.y), error_of(2, predicted.z),
                              error_of(3, predicted.w)};
  float* to = state_of(p.last, place, head) + row * width + column;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float key = step.keys[r] * key_scale;
#pragma unroll
    for (int j = 0; j < kFour; ++j) state[r].at[j] = fmaf(key, error[j], state[r].at[j]);
    cuda::store_pack<kFour>(to + r * width, state[r]);
  }
  if (threadIdx.x >= kDecodeLanes) return;
  const float4 asked = add_pairs(shared.by_query, at);
  const float query_scale = static_cast<float>(p.scale) * (p.normalize ? rsqrtf(all.y + 1e-6f) : 1.0f);
  const float both = all.z * key_scale, by[kFour] = {asked.x, asked.y, asked.z, asked.w};
  T* out = place_in<T>(p.output, DeviceSequence(p.sequences, n), head, 0) + column * p.output.dim;
#pragma unroll
  for (int j = 0; j < kFour; ++j) out[j * p.output.dim] = cuda::convert<T>(query_scale * fmaf(both, error[j], by[j]));
}

}  // namespace tenor::delta
