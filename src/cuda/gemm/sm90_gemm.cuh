// The Hopper GEMM: C[M,N] = A[M,K] * B[N,K]^T (or A[M,K] * B[K,N]) for two-byte operands, float32 accumulation over k
// in ascending order, one rounding at the end. Each element's bits depend on its row of A, its column of the product
// and K alone, never on M, N, the batch or the tile it falls in: the contract of batch invariance.
//
// A block computes 128 x kColumns of C: one warpgroup only loads (one thread issues TMA), two compute 64 rows each.
// Blocks come in clusters of kClusterM x kClusterN: those beside one another need the same rows of A, those above one
// another the same columns of B, so each loads its share of them and multicasts it. The grid is persistent; tiles are
// walked so that neighbours in time share operands in L2.
#pragma once

#include <cuda.h>

#include "src/cuda/gemm/sm90_gemm_store.cuh"
#include "src/cuda/ptx/mbarrier.cuh"
#include "src/cuda/ptx/tma.cuh"
#include "src/cuda/ptx/wgmma.cuh"

namespace tenor::cuda::gemm {

/// Everything that a kernel is compiled for.
template <class T_, int kColumns_, int kClusterM_, int kClusterN_, ptx::TileLayout kLayoutB_>
struct GemmConfig {
  using T = T_;
  static constexpr int kColumns = kColumns_, kClusterM = kClusterM_, kClusterN = kClusterN_,
                       kBlocks = kClusterM * kClusterN;
  static constexpr ptx::TileLayout kLayoutB = kLayoutB_;
  static constexpr bool kOuterB = kLayoutB == ptx::TileLayout::kOuter;
  static constexpr int kStageBytes = (kTileM + kColumns) * kTileK * 2;
  static constexpr int kStages = (192 << 10) / kStageBytes < 8 ? (192 << 10) / kStageBytes : 8;
  static constexpr int kInstruction =
      kColumns == 224 || kColumns == 192 ? kColumns / 2 : kColumns;  ///< columns of one wgmma
  static constexpr int kParts = kColumns / kInstruction;
  /// What this block loads and multicasts: rows of A, and of B columns or (outer) lines of k.
  static constexpr int kShareA = kTileM / kClusterN, kShareB = (kOuterB ? kTileK : kColumns) / kClusterM;
};

/// The shared memory of a block. Operand tiles are 1024-byte aligned, as their swizzle asks.
template <class Config>
struct alignas(1024) GemmShared {
  typename Config::T a[Config::kStages][kTileM * kTileK];
  typename Config::T b[Config::kStages][Config::kColumns * kTileK];
  typename Config::T c[kConsumers][2]
                      [64 * kStoreColumns<Config::kColumns>];  // boxes of each warpgroup on their way out
  uint64_t full[Config::kStages], empty[Config::kStages];
};

/// The cluster's tile that comes i-th: columns run inside groups of `kGroup` tile rows, so that a wave of clusters
/// touches a near-square part of C and its operands stay in L2; matrices of the batch come one after the other.
struct TilePlace {
  static constexpr int kGroup = 8;
  int row, column, z, w;  // z and w: the matrix of the batch
  __device__ TilePlace(const GemmShape& shape, int i) {
    const int tiles = shape.tiles_m * shape.tiles_n, matrix = i / tiles;
    z = matrix % shape.batch[0], w = matrix / shape.batch[0], i -= matrix * tiles;
    const int per_group = kGroup * shape.tiles_n, group = i / per_group, first = group * kGroup;
    const int rows = min(kGroup, shape.tiles_m - first), within = i - group * per_group;
    row = first + within % rows;
    column = within / rows;
  }
};

/// This block's place in its cluster.
template <class Config>
struct BlockPlace {
  int m, n;
  __device__ BlockPlace() {
    const int rank = Config::kBlocks > 1 ? static_cast<int>(ptx::cluster_rank()) : 0;
    m = rank % Config::kClusterM, n = rank / Config::kClusterM;
  }
  /// Whether block `rank` shares rows or columns with this one: each reads what the other loads.
  __device__ bool shares(int rank) const { return rank % Config::kClusterM == m || rank / Config::kClusterM == n; }
  __device__ uint16_t beside() const {  // mask of blocks with the same rows
    uint16_t mask = 0;
    for (int j = 0; j < Config::kClusterN; ++j) mask |= 1 << (j * Config::kClusterM + m);
    return mask;
  }
  __device__ uint16_t stacked() const { return ((1 << Config::kClusterM) - 1) << (n * Config::kClusterM); }
};

/// A ring of stages and the parity of the round it is in.
template <int kStages>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// What a block's loads name besides their place: the barrier that counts them and the blocks that get them.
struct LoadTarget {
  uint64_t* full;
  uint16_t blocks;
};

template <int kBlocks>
__device__ __forceinline__ void load(void* dst, const CUtensorMap& map, int x, int y, int2 matrix,
                                     const LoadTarget& to) {
  if constexpr (kBlocks > 1)
    ptx::tma_load_4d_multicast(dst, &map, x, y, matrix.x, matrix.y, to.full, to.blocks);
  else
    ptx::tma_load_4d(dst, &map, x, y, matrix.x, matrix.y, to.full);
}

/// This block's share of B at step k of columns from `first` on.
template <class Config>
__device__ __forceinline__ void load_b(typename Config::T* tile, const CUtensorMap& map, int k, int first, int2 matrix,
                                       int rank, const LoadTarget& to) {
  const int share = rank * Config::kShareB;
  if constexpr (Config::kOuterB) {
    for (int block = 0; block < Config::kColumns / 64; ++block)
      load<Config::kClusterM>(tile + (block * kTileK + share) * 64, map, first + block * 64, k + share, matrix, to);
  } else {
    load<Config::kClusterM>(tile + share * kTileK, map, k, first + share, matrix, to);
  }
}

/// The loading warpgroup: one thread walks the block's tiles and keeps the ring full.
template <class Config>
__device__ void gemm_produce(GemmShared<Config>& shared, const GemmShape& shape, const CUtensorMap& map_a,
                             const CUtensorMap& map_b) {
  const BlockPlace<Config> place;
  const int clusters = gridDim.x / Config::kBlocks, steps = (shape.k + kTileK - 1) / kTileK;
  LoadTarget rows{nullptr, place.beside()}, columns{nullptr, place.stacked()};
  Ring<Config::kStages> ring;
  for (int i = blockIdx.x / Config::kBlocks; i < shape.tiles_m * shape.tiles_n * shape.batch[0] * shape.batch[1];
       i += clusters) {
    const TilePlace tile(shape, i);
    const int y = (tile.row * Config::kClusterM + place.m) * kTileM + place.n * Config::kShareA,
              x = (tile.column * Config::kClusterN + place.n) * Config::kColumns;
    const int2 matrix_a{shape.shared_a[0] ? 0 : tile.z, shape.shared_a[1] ? 0 : tile.w};
    const int2 matrix_b{shape.shared_b[0] ? 0 : tile.z, shape.shared_b[1] ? 0 : tile.w};
    for (int step = 0; step < steps; ++step) {
      ptx::mbarrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
      rows.full = columns.full = &shared.full[ring.stage];
      ptx::mbarrier_arrive_expect(rows.full, Config::kStageBytes);
      load<Config::kClusterN>(shared.a[ring.stage] + place.n * Config::kShareA * kTileK, map_a, step * kTileK, y,
                              matrix_a, rows);
      load_b<Config>(shared.b[ring.stage], map_b, step * kTileK, x, matrix_b, place.m, columns);
      ring.advance();
    }
  }
  // The last stages must be released before the block may leave: its neighbours still arrive at these barriers.
  for (int s = 0; s < Config::kStages; ++s) {
    ptx::mbarrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
    ring.advance();
  }
}

/// Tells every block that loads for this one that this warpgroup has read a stage.
template <class Config>
__device__ __forceinline__ void release(GemmShared<Config>& shared, const BlockPlace<Config>& place, int stage) {
  const int rank = threadIdx.x % 128;
  if (rank < Config::kBlocks && place.shares(rank)) ptx::mbarrier_arrive_cluster(&shared.empty[stage], rank);
}

/// The products of one stage: 64 rows from `a` with all columns of `b`.
template <class Config>
__device__ __forceinline__ void multiply(float (&d)[Config::kColumns / 2], const typename Config::T* a_tile,
                                         const typename Config::T* b_tile, bool first) {
  const uint64_t a = ptx::wgmma_descriptor(a_tile), b = ptx::wgmma_descriptor<Config::kLayoutB>(b_tile);
  constexpr int kOwn = Config::kInstruction / 2, kPartBytes = Config::kInstruction * kTileK * 2;
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < kTileK / 16; ++k)
#pragma unroll
    for (int part = 0; part < Config::kParts; ++part)
      ptx::wgmma<typename Config::T, Config::kInstruction, Config::kLayoutB>(
          reinterpret_cast<float(&)[kOwn]>(d[part * kOwn]), a + k * ptx::kWgmmaStepK<>,
          b + part * (kPartBytes >> 4) + k * ptx::kWgmmaStepK<Config::kLayoutB>, !first || k > 0);
  ptx::wgmma_commit();
}

/// A computing warpgroup: 64 rows of each of the block's tiles.
template <class Config>
__device__ void gemm_consume(GemmShared<Config>& shared, const GemmShape& shape, const CUtensorMap& map_c) {
  const BlockPlace<Config> place;
  const int group = threadIdx.x / 128 - 1, clusters = gridDim.x / Config::kBlocks,
            steps = (shape.k + kTileK - 1) / kTileK;
  Ring<Config::kStages> ring;
  float d[Config::kColumns / 2];
  for (int i = blockIdx.x / Config::kBlocks; i < shape.tiles_m * shape.tiles_n * shape.batch[0] * shape.batch[1];
       i += clusters) {
    const TilePlace tile(shape, i);
    int before = -1;
    for (int step = 0; step < steps; ++step) {
      ptx::mbarrier_wait(&shared.full[ring.stage], ring.parity);
      multiply<Config>(d, shared.a[ring.stage] + group * 64 * kTileK, shared.b[ring.stage], step == 0);
      // One product stays in flight: the stage before it has been read.
      ptx::wgmma_wait<1>();
      if (before >= 0) release(shared, place, before);
      before = ring.stage;
      ring.advance();
    }
    ptx::wgmma_wait<0>();
    if (before >= 0) release(shared, place, before);
    const int y = (tile.row * Config::kClusterM + place.m) * kTileM + group * 64,
              x = (tile.column * Config::kClusterN + place.n) * Config::kColumns;
    store_tile<typename Config::T, Config::kColumns>(shared.c[group], d, shape, map_c, y, x, tile.z, tile.w, group + 1);
  }
  if (threadIdx.x % 128 == 0) ptx::tma_store_wait_read<0>();
}

template <class Config>
__global__ void __launch_bounds__(kThreads, 1)
    sm90_gemm_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                     const __grid_constant__ CUtensorMap map_c, const __grid_constant__ GemmShape shape) {
  if constexpr (!ptx::kIsHopper) return;  // in PTX for other devices the kernel is empty, and never launched
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<GemmShared<Config>*>(raw);
  if (threadIdx.x == 0) {
    for (int s = 0; s < Config::kStages; ++s) {
      ptx::mbarrier_init(&shared.full[s], 1);
      ptx::mbarrier_init(&shared.empty[s], kConsumers * (Config::kClusterM + Config::kClusterN - 1));
    }
    ptx::mbarrier_init_fence();
    ptx::tma_prefetch_map(&map_a);
    ptx::tma_prefetch_map(&map_b);
    if (shape.tma_store) ptx::tma_prefetch_map(&map_c);
  }
  ptx::cluster_sync();
  if (threadIdx.x < 128) {
    ptx::registers_decrease<40>();
    if (threadIdx.x == 0) gemm_produce(shared, shape, map_a, map_b);
  } else {
    ptx::registers_increase<232>();
    gemm_consume(shared, shape, map_c);
  }
  ptx::cluster_sync();  // no block leaves while another may still write to its shared memory
}

}  // namespace tenor::cuda::gemm
