// The chunk form's second kernel: the state passes through a sequence's chunks. A warpgroup holds S^T of 64 value
// columns as accumulators, and every product is computed transposed, so that what one leaves in registers is the left
// factor of the next: S^T K^T, then N^T = R^T T^T, then S^T + N^T K; the right factors are read from shared memory.
// What the next chunk does not wait for, O^T = S^T Q^T + N^T P^T, runs beside it. One warp brings chunks by TMA, others
// take outputs away.
#pragma once

#include "src/ops/gated_delta/chunk_steps.cuh"
#include "src/ops/gated_delta/chunk_traffic.cuh"

namespace tenor::delta {

template <int kCount>
using Flat = float (&)[kCount];

/// to = S^T m^T, m [64, kKeyDim] in tiles of 64 channels; in flight.
template <class Config>
__device__ __forceinline__ void multiply_state(Steps& to, const uint32_t (&state)[Config::kKeyDim / 16][4],
                                               const unsigned char (&m)[Config::kHalves][kSquareBytes]) {
#pragma unroll
  for (int k = 0; k < Config::kKeyDim / 16; ++k)
    ptx::wgmma<__nv_bfloat16, 64, ptx::TileLayout::kInner>(
        reinterpret_cast<Flat<32>>(to), state[k][0], state[k][1], state[k][2], state[k][3],
        ptx::wgmma_descriptor(m[k / 4]) + k % 4 * ptx::kWgmmaStepK<>, k > 0);
  ptx::wgmma_commit();
}

/// to (+)= x m^T for a square m; in flight.
__device__ __forceinline__ void multiply_square(Steps& to, const StepFactor& x, const unsigned char* m,
                                                bool accumulate) {
#pragma unroll
  for (int k = 0; k < kChunk / 16; ++k)
    ptx::wgmma<__nv_bfloat16, 64, ptx::TileLayout::kInner>(reinterpret_cast<Flat<32>>(to), x[k][0], x[k][1], x[k][2],
                                                           x[k][3], ptx::wgmma_descriptor(m) + k * ptx::kWgmmaStepK<>,
                                                           accumulate || k > 0);
  ptx::wgmma_commit();
}

/// state += x K; in flight.
template <class Config>
__device__ __forceinline__ void update_state(float (&state)[Config::kKeyDim / 8][4], const StepFactor& x,
                                             const unsigned char (&key)[Config::kHalves][kSquareBytes]) {
  constexpr auto kOuter = ptx::TileLayout::kOuter;
#pragma unroll
  for (int k = 0; k < kChunk / 16; ++k)
    ptx::wgmma<__nv_bfloat16, Config::kKeyDim, kOuter>(
        reinterpret_cast<Flat<Config::kKeyDim / 2>>(state), x[k][0], x[k][1], x[k][2], x[k][3],
        ptx::wgmma_descriptor<kOuter>(key[0]) + k * ptx::kWgmmaStepK<kOuter>, true);
  ptx::wgmma_commit();
}

template <int kTiles>
__device__ __forceinline__ void round_state(const float (&state)[kTiles][4], uint32_t (&to)[kTiles / 2][4]) {
#pragma unroll
  for (int k = 0; k < kTiles / 2; ++k) {
    to[k][0] = pack_bf16(state[2 * k][0], state[2 * k][1]), to[k][1] = pack_bf16(state[2 * k][2], state[2 * k][3]);
    to[k][2] = pack_bf16(state[2 * k + 1][0], state[2 * k + 1][1]);
    to[k][3] = pack_bf16(state[2 * k + 1][2], state[2 * k + 1][3]);
  }
}

/// x[:, i] = V^T[:, i] - weight(i) x[:, i], V's columns being this warp's; weight(i) is that of steps i and i + 1.
template <class F>
__device__ __forceinline__ void subtract_from_value(Steps& x, F&& weight, const unsigned char* value) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int n = 0; n < kChunk / 8; n += 2) {
    uint32_t v[4];  // eight steps of both halves of the columns, then eight more
    ptx::ldmatrix_x4_transposed(
        v, ptx::shared_address(value) + tile_offset(8 * n + lane % 8 + lane / 16 * 8, 2 * warp + lane / 8 % 2));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 w = weight(8 * (n + i / 2) + lane % 4 * 2);
      float* to = &x[n + i / 2][i % 2 * 2];
      to[0] = fmaf(-w.x, to[0], __uint_as_float(v[i] << 16));
      to[1] = fmaf(-w.y, to[1], __uint_as_float(v[i] & 0xffff0000u));
    }
  }
}

/// The warp's columns of a state, from memory or to it.
template <int kKeyDim>
__device__ __forceinline__ void read_state(float (&state)[kKeyDim / 8][4], const Columns& from) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < kKeyDim / 8; ++n)
#pragma unroll
    for (int c = 0; c < 4; ++c)
      state[n][c] = from.data
                        ? from.data[(8 * n + lane % 4 * 2 + c % 2) * from.row + (lane / 4 + c / 2 * 8) * from.column]
                        : 0.0f;
}
template <int kKeyDim>
__device__ __forceinline__ void write_state(const float (&state)[kKeyDim / 8][4], const Columns& to) {
  const int lane = threadIdx.x % 32;
  if (!to.data) return;
#pragma unroll
  for (int n = 0; n < kKeyDim / 8; ++n)
#pragma unroll
    for (int c = 0; c < 4; ++c)
      to.data[(8 * n + lane % 4 * 2 + c % 2) * to.row + (lane / 4 + c / 2 * 8) * to.column] = state[n][c];
}

/// What K S is weighed by at steps i and i + 1: nothing where the keys come decayed.
template <class Config>
__device__ __forceinline__ float2 key_weight(const typename Config::Stage& stage, int i) {
  if constexpr (Config::kByChannel)
    return make_float2(1, 1);
  else
    return *reinterpret_cast<const float2*>(&stage.factors.weights[0][i]);
}

/// state *= the decay of stage i's chunk.
template <class Config>
__device__ __forceinline__ void decay_state(float (&state)[Config::kKeyDim / 8][4],
                                            const typename Config::Shared& shared, int i) {
#pragma unroll
  for (int n = 0; n < Config::kKeyDim / 8; ++n) {
    float decay[2];
    if constexpr (Config::kByChannel) {
      const float2 two = *reinterpret_cast<const float2*>(&shared.decays[i][8 * n + threadIdx.x % 4 * 2]);
      decay[0] = two.x, decay[1] = two.y;
    } else {
      decay[0] = decay[1] = shared.stages[i].factors.weights[3][0];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) state[n][j] *= decay[j % 2];
  }
}

/// A computing warpgroup's pass of a state over a task's chunks. Without outputs only the state is passed on; a map's
/// task has no values.
template <class Config, bool kOutputs>
__device__ __forceinline__ void scan_chunks(float (&state)[Config::kKeyDim / 8][4], typename Config::Shared& shared,
                                            const ScanTask& t) {
  const int group = threadIdx.x / 128;
  Steps output, work;
  StepFactor rest, fine, late;  // a factor and what rounding left of it; N for the state
  int first_bad[2];             // of chunk c, where has_bad
  bool has_bad = false;         // the same for all lanes of a warp
  TurnedBlock given[kChunk / 16];
  const auto round_output = [&] {  // whose last products have been waited for
    if (has_bad) poison(output, first_bad);
#pragma unroll
    for (int n = 0; n < kChunk / 16; ++n) given[n].round(output[2 * n], output[2 * n + 1]);
  };
  const auto give_output = [&](int64_t c) {
    ptx::mbarrier_arrive(&shared.empty[c % Config::kStages]);  // every thread: no product tells that others have read
    const int buffer = static_cast<int>(c % Config::kOutputs);
    if (c >= Config::kOutputs) ptx::mbarrier_wait(&shared.output_empty[group][buffer], (c / Config::kOutputs - 1) & 1);
#pragma unroll
    for (int n = 0; n < kChunk / 16; ++n)
      given[n].store(shared.output[group][buffer], 16 * n, 2 * (threadIdx.x / 32 % 4));
    ptx::fence_async_proxy();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.output_full[group][buffer]);
  };
  for (int64_t c = 0; c < t.chunks; ++c) {
    const auto& stage = shared.stages[c % Config::kStages];
    uint32_t rounded[Config::kKeyDim / 16][4];
    round_state(state, rounded);
    ptx::mbarrier_wait(&shared.full[c % Config::kStages], (c / Config::kStages) & 1);
    ptx::wgmma_fence();
    multiply_state<Config>(work, rounded, stage.key);
    if constexpr (kOutputs) {
      if (c > 0) {
        ptx::wgmma_wait<1>();
        ptx::wgmma_pin(reinterpret_cast<Flat<32>>(output));
        round_output();
        ptx::wgmma_fence();
      }
      multiply_state<Config>(output, rounded, stage.query);
      if (c > 0) give_output(c - 1);
    }
    ptx::wgmma_wait<kOutputs ? 1 : 0>();
    ptx::wgmma_pin(reinterpret_cast<Flat<32>>(work));
    subtract_from_value(
        work, [&](int i) { return key_weight<Config>(stage, i); },
        !kOutputs && t.is_map ? shared.output[group][0] : stage.value[group]);  // zeros
    round_steps(work, rest);
    round_rest(work, rest, fine);
    ptx::wgmma_fence();
    multiply_square(work, fine, stage.factors.solve, false);
    multiply_square(work, rest, stage.factors.solve, true);
    decay_state<Config>(state, shared, static_cast<int>(c % Config::kStages));
    if constexpr (kOutputs) {
      ptx::wgmma_wait<2>();
      ptx::wgmma_pin(reinterpret_cast<Flat<32>>(output));
      if constexpr (!Config::kByChannel) weigh_steps(output, stage.factors.weights[1]);
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(reinterpret_cast<Flat<32>>(work));
    // A step of R that is no number has made every element of its column one: zeros times it.
    has_bad = __any_sync(~0u, !(work[0][0] * 0.0f == 0.0f) || !(work[0][2] * 0.0f == 0.0f));
    if (has_bad) mend(work, rest, fine, stage.factors.solve, first_bad);
    if constexpr (Config::kByChannel)
      round_steps(work, late);
    else
      round_weighed_steps(work, stage.factors.weights[2], late);
    ptx::wgmma_fence();
    update_state<Config>(state, late, stage.update());
    if constexpr (kOutputs) {
      round_steps(work, rest);
      round_rest(work, rest, fine);
      ptx::wgmma_fence();
      multiply_square(output, fine, stage.factors.attend, true);
      multiply_square(output, rest, stage.factors.attend, true);
    }
    ptx::wgmma_wait<kOutputs ? 2 : 0>();
    ptx::wgmma_pin(reinterpret_cast<Flat<Config::kKeyDim / 2>>(state));
    if (has_bad) {
      const int whole[2] = {first_bad[0] < kChunk ? 0 : Config::kKeyDim, first_bad[1] < kChunk ? 0 : Config::kKeyDim};
      poison(state, whole);
    }
    if constexpr (!kOutputs) ptx::mbarrier_arrive(&shared.empty[c % Config::kStages]);
  }
  if constexpr (kOutputs) {
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(reinterpret_cast<Flat<32>>(output));
    if (t.chunks > 0) round_output(), give_output(t.chunks - 1);
  }
}

/// The columns of `x` that the warp holds, from the block's first one on.
__device__ __forceinline__ Columns warp_columns(const Columns& x) {
  return {x.data ? x.data + 16 * (threadIdx.x / 32) * x.column : nullptr, x.row, x.column};
}
/// A task's first column of a state.
__device__ __forceinline__ Columns columns_of(const States& x, const ScanTask& t) {
  return {state_of(x, t.place, t.head) + t.first * x.column, x.row, x.column};
}

template <class Config>
__device__ __forceinline__ void init_scan(typename Config::Shared& shared) {
  for (int i = 0; i < Config::kStages; ++i)
    ptx::mbarrier_init(&shared.full[i], 32), ptx::mbarrier_init(&shared.empty[i], 128 * Config::kGroups);
  for (int g = 0; g < Config::kGroups; ++g)
    for (int i = 0; i < Config::kOutputs; ++i)
      ptx::mbarrier_init(&shared.output_full[g][i], 4), ptx::mbarrier_init(&shared.output_empty[g][i], 1);
  ptx::mbarrier_init(&shared.tail, 1);
  ptx::mbarrier_init_fence();
}

template <class Config>
__device__ __forceinline__ void begin_scan(typename Config::Shared& shared, const ChunkMaps& maps) {
  if (threadIdx.x == 0) {
    init_scan<Config>(shared);
    ptx::tma_prefetch_map(&maps.query), ptx::tma_prefetch_map(&maps.key), ptx::tma_prefetch_map(&maps.value);
    ptx::tma_prefetch_map(&maps.output);
  }
  __syncthreads();
}

/// What the warps do that do not compute.
template <class Config, bool kOutputs>
__device__ __forceinline__ void move_chunks(typename Config::Shared& shared, const DeviceProblem& p,
                                            const typename Config::Factors* factors, const ChunkMaps& maps,
                                            const ScanTask& t) {
  ptx::registers_decrease<40>();
  const int warp = threadIdx.x / 32 - 4 * Config::kGroups;
  if (warp == 0) load_chunks<Config>(shared, p, factors, maps, t);
  if constexpr (kOutputs)
    if (warp >= 1 && warp <= Config::kGroups) store_outputs<Config>(shared, p, maps, t, warp - 1);
}

/// Blocks: column blocks fastest, then value heads, then sequences. Dynamic shared memory: Config::Shared.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    scan_kernel(const __grid_constant__ DeviceProblem p, const typename Config::Factors* factors,
                const __grid_constant__ ChunkMaps maps, unsigned column_blocks, ChunkSlice slice) {
  if constexpr (!ptx::kIsHopper) return;  // in PTX for other devices the kernel is empty, and never launched
  extern __shared__ __align__(1024) unsigned char scan_memory[];
  auto& shared = *reinterpret_cast<typename Config::Shared*>(scan_memory);
  const unsigned rest = blockIdx.x / column_blocks;
  const int64_t n = rest / static_cast<unsigned>(p.value_heads);
  ScanTask t{DeviceSequence(p.sequences, n), n, place_of(p.sequences, n), rest % static_cast<unsigned>(p.value_heads)};
  if (!slice.is_last()) ptx::launch_dependents();
  if (t.place < 0) return ptx::wait_for_previous();
  t.slot = first_slot(p.sequences, n) + slice.first;
  t.s.begin += int64_t{slice.first} * kChunk, t.s.length -= int64_t{slice.first} * kChunk;
  if (!slice.is_last()) t.s.length = min(t.s.length, int64_t{slice.count} * kChunk);
  t.chunks = (t.s.length + kChunk - 1) / kChunk;
  t.first = int64_t{blockIdx.x % column_blocks} * Config::kColumns;
  begin_scan<Config>(shared, maps);
  if (threadIdx.x >= 128 * Config::kGroups) return move_chunks<Config, true>(shared, p, factors, maps, t);
  ptx::registers_increase<232>();
  // A later slice goes on from what the one before has left in the result.
  const bool goes_on = slice.first > 0;
  if (goes_on) ptx::wait_for_previous();
  float state[Config::kKeyDim / 8][4];
  const bool reads = goes_on || starts_from_state(p.sequences, t.n);
  read_state<Config::kKeyDim>(state, reads ? warp_columns(columns_of(goes_on ? p.last : p.first, t)) : Columns{});
  scan_chunks<Config, true>(state, shared, t);
  write_state<Config::kKeyDim>(state, warp_columns(columns_of(p.last, t)));
}

}  // namespace tenor::delta
