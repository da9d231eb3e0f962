// What the second kernel's other warps do: one brings chunks by TMA, others take outputs away.
#pragma once

#include "src/ops/gated_delta/chunk_channels.cuh"

namespace tenor::delta {

template <int kKeyDim_, int kGroups_>
struct Scan {
  static constexpr bool kByChannel = false;
  static constexpr int kKeyDim = kKeyDim_, kGroups = kGroups_;  // warpgroups that compute, 64 columns each
  using Factors = ChunkFactors;
  static constexpr int kColumns = 64 * kGroups, kThreads = 128 * (kGroups + 1), kStages = 3;
  static constexpr int kHalves = kKeyDim / 64;           // tiles of 64 key channels
  static constexpr int kOutputs = kGroups == 1 ? 2 : 1;  // tiles a group's outputs pass through
  struct Stage {
    alignas(1024) unsigned char key[kHalves][kSquareBytes];
    unsigned char query[kHalves][kSquareBytes], value[kGroups][kSquareBytes];
    ChunkFactors factors;
    __device__ const auto& update() const { return key; }
  };
  static constexpr int kStageBytes = (2 * kHalves + kGroups) * kSquareBytes + sizeof(ChunkFactors);
  struct Shared {
    Stage stages[kStages];
    alignas(1024) unsigned char output[kGroups][kOutputs][kSquareBytes];  // [64 steps][64 columns]
    uint64_t full[kStages], empty[kStages], tail, output_full[kGroups][kOutputs], output_empty[kGroups][kOutputs];
  };
};

/// With decays by channel: keys and queries come decayed, with the factors.
template <int kKeyDim_>
struct ChannelScan {
  static constexpr bool kByChannel = true;
  static constexpr int kKeyDim = kKeyDim_, kGroups = 1, kColumns = 64, kThreads = 256, kStages = 3, kOutputs = 1;
  static constexpr int kHalves = kKeyDim / 64;
  using Factors = ChannelFactors<kKeyDim>;
  struct Squares {
    unsigned char attend[kSquareBytes], solve[kSquareBytes];
  };
  struct Stage {
    alignas(1024) unsigned char key[kHalves][kSquareBytes];
    unsigned char query[kHalves][kSquareBytes], updates[kHalves][kSquareBytes];
    Squares factors;  ///< up to here as Factors has them
    unsigned char value[1][kSquareBytes];
    __device__ const auto& update() const { return updates; }
  };
  static constexpr int kStageBytes = Factors::kTileBytes + kSquareBytes + sizeof(Factors::decay);
  struct Shared {
    Stage stages[kStages];
    alignas(1024) unsigned char output[1][kOutputs][kSquareBytes];  // [64 steps][64 columns]
    alignas(16) float decays[kStages][kKeyDim];
    uint64_t full[kStages], empty[kStages], tail, output_full[1][kOutputs], output_empty[1][kOutputs];
  };
};

/// What a block works on.
struct ScanTask {
  DeviceSequence s;
  int64_t n, place, head, slot, chunks, first;  // first: column of the value
  bool is_map = false;                          ///< whose columns are the identity's and which has no values
};

/// Columns of a float32 matrix, from one on.
struct Columns {
  float* data = nullptr;  ///< null: zeros, or nowhere
  int64_t row = 0, column = 0;
};

/// Zeros in the rows of a stage's tiles from `valid` on, which are steps of the next sequence; a warp's work.
template <class Config>
__device__ void clear_tail(typename Config::Stage& stage, int valid) {
  const auto clear = [&](unsigned char* tile) {
    for (int at = threadIdx.x % 32; at < (kChunk - valid) * 8; at += 32)
      *reinterpret_cast<uint4*>(tile + valid * 128 + at * 16) = make_uint4(0, 0, 0, 0);
  };
  if constexpr (!Config::kByChannel) {  // else the first kernel has done it
    for (auto& tile : stage.key) clear(tile);
    for (auto& tile : stage.query) clear(tile);
  }
  for (auto& tile : stage.value) clear(tile);
  ptx::fence_async_proxy();
  __syncwarp();
}

/// A stage's keys and queries from `step` on, and the chunk's factors.
template <class Config>
__device__ __forceinline__ void load_factors(typename Config::Shared& shared, int i, const ChunkMaps& maps,
                                             const typename Config::Factors* factors, int step, int head, int batch,
                                             uint64_t* barrier) {
  auto& stage = shared.stages[i];
  if constexpr (Config::kByChannel) {
    ptx::bulk_load(&stage, factors, Config::Factors::kTileBytes, barrier);
    ptx::bulk_load(shared.decays[i], factors->decay, sizeof(factors->decay), barrier);
  } else {
#pragma unroll
    for (int h = 0; h < Config::kHalves; ++h) {
      ptx::tma_load_4d(stage.key[h], &maps.key, 64 * h, step, head, batch, barrier);
      ptx::tma_load_4d(stage.query[h], &maps.query, 64 * h, step, head, batch, barrier);
    }
    ptx::bulk_load(&stage.factors, factors, sizeof(ChunkFactors), barrier);
  }
}

/// The loading warp.
template <class Config>
__device__ void load_chunks(typename Config::Shared& shared, const DeviceProblem& p,
                            const typename Config::Factors* factors, const ChunkMaps& maps, const ScanTask& t) {
  const bool speaks = threadIdx.x % 32 == 0;
  ptx::wait_for_previous();  // for what the first kernel makes
  const int head = static_cast<int>(t.head / p.group), value_head = static_cast<int>(t.head),
            batch = static_cast<int>(t.s.batch);
  for (int64_t c = 0; c < t.chunks; ++c) {
    const int i = static_cast<int>(c % Config::kStages);
    auto& stage = shared.stages[i];
    if (c >= Config::kStages) ptx::mbarrier_wait(&shared.empty[i], (c / Config::kStages - 1) & 1);
    const int64_t at = (t.slot + c) * p.value_heads + t.head;
    const int step = static_cast<int>(t.s.begin + c * kChunk), valid = static_cast<int>(t.s.length - c * kChunk);
    const bool cut = valid < kChunk && p.sequences.starts.data;  // else TMA itself fills with zeros
    uint64_t* barrier = cut ? &shared.tail : &shared.full[i];
    if (speaks) {
      ptx::mbarrier_arrive_expect(barrier, Config::kStageBytes);
      load_factors<Config>(shared, i, maps, factors + at, step, head, batch, barrier);
#pragma unroll
      for (int g = 0; g < Config::kGroups; ++g)
        ptx::tma_load_4d(stage.value[g], &maps.value, static_cast<int>(t.first) + 64 * g, step, value_head, batch,
                         barrier);
    } else if (!cut) {
      ptx::mbarrier_arrive(barrier);
    }
    __syncwarp();
    if (!cut) continue;
    ptx::mbarrier_wait(&shared.tail, 0);
    clear_tail<Config>(stage, valid);
    ptx::mbarrier_arrive(&shared.full[i]);  // every lane, for what it has cleared
  }
}

/// The warp that takes a group's outputs to memory: by TMA, which leaves out what lies behind the last step of all; row
/// by row where steps of another sequence lie there.
template <class Config>
__device__ void store_outputs(typename Config::Shared& shared, const DeviceProblem& p, const ChunkMaps& maps,
                              const ScanTask& t, int group) {
  const int lane = threadIdx.x % 32;
  const int64_t column = t.first + 64 * group;
  for (int64_t c = 0; c < t.chunks; ++c) {
    const int buffer = static_cast<int>(c % Config::kOutputs);
    ptx::mbarrier_wait(&shared.output_full[group][buffer], (c / Config::kOutputs) & 1);
    const unsigned char* tile = shared.output[group][buffer];
    const int valid = static_cast<int>(min(t.s.length - c * kChunk, int64_t{kChunk}));
    if (valid == kChunk || !p.sequences.starts.data) {
      if (lane != 0) continue;
      ptx::tma_store_4d(&maps.output, tile, static_cast<int>(column), static_cast<int>(t.s.begin + c * kChunk),
                        static_cast<int>(t.head), static_cast<int>(t.s.batch));
      ptx::tma_store_commit();
      ptx::tma_store_wait_read<0>();
      ptx::mbarrier_arrive(&shared.output_empty[group][buffer]);
      continue;
    }
    BFloat16* to =
        place_in<BFloat16>(p.output, t.s, t.head, c * kChunk) + column;  // the last chunk: nobody waits for it
    for (int at = lane; at < valid * 8; at += 32)
      *reinterpret_cast<uint4*>(to + at / 8 * p.output.step + at % 8 * 8) =
          *reinterpret_cast<const uint4*>(tile + tile_offset(at / 8, at % 8));
  }
}

}  // namespace tenor::delta
