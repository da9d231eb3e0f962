// The Hopper GEMM: C[M,N] = A[M,K] * B[N,K]^T (or A[M,K] * B[K,N]) for two-byte operands, float32 accumulation over k
// in ascending order, one rounding at the end. Each element's bits depend on its row of A, its column of the product
// and K alone, never on M, N, the batch or the tile it falls in: the contract of batch invariance.
//
// A block computes 128 x kColumns of C: one warpgroup only loads (one thread issues TMA), two compute 64 rows each (of
// grouped products also three).
// Blocks come in clusters of kClusterM x kClusterN: those beside one another need the same rows of A, those above one
// another the same columns of B, so each loads its share of them and multicasts it. The grid is persistent; tiles are
// walked so that neighbours in time share operands in L2.
#pragma once

#include <cuda.h>

#include "src/cuda/gemm/sm90_gemm_carry.cuh"
#include "src/cuda/gemm/sm90_gemm_maps.cuh"
#include "src/cuda/gemm/sm90_gemm_store.cuh"
#include "src/cuda/gemm/sm90_swiglu.cuh"
#include "src/cuda/ptx/mbarrier.cuh"
#include "src/cuda/ptx/tma.cuh"
#include "src/cuda/ptx/wgmma.cuh"

namespace tenor::cuda::gemm {

/// Everything that a kernel is compiled for. kSwiGlu: B is two matrices, gate and up; half of a tile's columns are of
/// each, and C's are silu(A gate^T) * (A up^T), half as many. kConsumers warpgroups compute 64 rows each; with three, C
/// may not lie turned.
template <class T_, int kColumns_, int kClusterM_, int kClusterN_, ptx::TileLayout kLayoutB_, int kRing = 192 << 10,
          bool kSwiGlu_ = false, int kConsumers_ = 2>
struct GemmConfig {
  using T = T_;
  static constexpr int kConsumers = kConsumers_, kTileM = 64 * kConsumers, kThreads = 128 * (kConsumers + 1);
  static constexpr int kProducerRegisters = kConsumers == 2 ? 40 : 24, kConsumerRegisters = kConsumers == 2 ? 232 : 160;
  static constexpr bool kSwiGlu = kSwiGlu_;
  static constexpr int kStored = kSwiGlu_ ? kColumns_ / 2 : kColumns_;  ///< columns of C in a tile
  static constexpr int kColumns = kColumns_, kClusterM = kClusterM_, kClusterN = kClusterN_,
                       kBlocks = kClusterM * kClusterN;
  static constexpr ptx::TileLayout kLayoutB = kLayoutB_;
  static constexpr bool kOuterB = kLayoutB == ptx::TileLayout::kOuter;
  static constexpr int kStageBytes = (kTileM + kColumns) * kTileK * 2;
  static constexpr int kStages = kRing / kStageBytes < 8 ? kRing / kStageBytes : 8;
  /// What this block loads and multicasts: rows of A, and of B columns or (outer) lines of k.
  static constexpr int kShareA = kTileM / kClusterN, kShareB = (kOuterB ? kTileK : kColumns) / kClusterM;
};

template <class Config>
inline constexpr int kSaveBarrier = Config::kConsumers + 1;  ///< the first of those at which sums are handed on

/// The shared memory of a block. Operand tiles are 1024-byte aligned, as their swizzle asks.
template <class Config>
struct alignas(1024) GemmShared {
  /// A warpgroup's box of C on its way out.
  static constexpr int kBoxSize = Config::kConsumers == 2 ? kStaging : 64 * kStoreColumns<Config::kStored>;
  typename Config::T a[Config::kStages][Config::kTileM * kTileK];
  typename Config::T b[Config::kStages][Config::kColumns * kTileK];
  typename Config::T c[Config::kConsumers][2][kBoxSize];
  uint64_t full[Config::kStages], empty[Config::kStages];
};

/// Where a cluster's tile lies.
struct TilePlace {
  int y, last;   ///< its first row, and where the rows end that are its matrix's or its group's
  int column;    ///< counted in tiles of clusters
  int2 a, b, c;  ///< the matrices of the batch
};

/// The tiles of a batch of products. The one that comes i-th: columns run inside groups of `kGroup` tile rows, so that
/// a wave of clusters touches a near-square part of C and its operands stay in L2; matrices come one after the other.
template <class Config>
struct DenseTiles {
  static constexpr bool kRagged = false;  ///< whether many tiles end in the middle
  const GemmShape& shape;
  /// This cluster's i-th piece of work.
  __device__ __forceinline__ bool piece(int i, Piece& piece) const {
    return piece_of(i, shape.tiles_m * shape.tiles_n * shape.batch[0] * shape.batch[1], shape.split, steps_of(shape),
                    blockIdx.x / Config::kBlocks, gridDim.x / Config::kBlocks, piece);
  }
  __device__ __forceinline__ TilePlace place(int i) const {
    constexpr int kGroup = 8;
    const int tiles = shape.tiles_m * shape.tiles_n, matrix = i / tiles;
    const int z = matrix % shape.batch[0], w = matrix / shape.batch[0];
    i -= matrix * tiles;
    const int per_group = kGroup * shape.tiles_n, group = i / per_group, first = group * kGroup;
    const int rows = min(kGroup, shape.tiles_m - first), within = i - group * per_group;
    return {(first + within % rows) * Config::kClusterM * Config::kTileM,
            shape.m,
            within / rows,
            {shape.shared_a[0] ? 0 : z, shape.shared_a[1] ? 0 : w},
            {shape.shared_b[0] ? 0 : z, shape.shared_b[1] ? 0 : w},
            {z, w}};
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
__device__ __forceinline__ void load_b(typename Config::T* tile, const GemmMaps& maps, int k, int first, int2 matrix,
                                       int rank, const LoadTarget& to) {
  const int share = rank * Config::kShareB;
  const CUtensorMap& map = maps.b;
  if constexpr (Config::kSwiGlu) {
    static_assert(Config::kClusterM == 1 && !Config::kOuterB);
    load<1>(tile, map, k, first, matrix, to);
    load<1>(tile + Config::kStored * kTileK, maps.up, k, first, matrix, to);
  } else if constexpr (Config::kOuterB) {
    for (int block = 0; block < Config::kColumns / 64; ++block)
      load<Config::kClusterM>(tile + (block * kTileK + share) * 64, map, first + block * 64, k + share, matrix, to);
  } else {
    load<Config::kClusterM>(tile + share * kTileK, map, k, first + share, matrix, to);
  }
}

/// Whether this block's cluster computes the first steps of a tile that the next one finishes; it does so first of all.
template <class Tiles>
__device__ __forceinline__ bool saves(const Tiles& tiles) {
  Piece piece;
  return tiles.piece(0, piece) && piece.last < steps_of(tiles.shape);
}

/// The loading warpgroup: one thread walks the block's tiles and keeps the ring full.
template <class Config, class Tiles>
__device__ void gemm_produce(GemmShared<Config>& shared, const Tiles& tiles, const GemmMaps& maps) {
  const BlockPlace<Config> place;
  LoadTarget rows{nullptr, place.beside()}, columns{nullptr, place.stacked()};
  Ring<Config::kStages> ring;
  Piece piece;
  for (int i = 0; tiles.piece(i, piece); ++i) {
    const TilePlace tile = tiles.place(piece.tile);
    const int y = tile.y + place.m * Config::kTileM + place.n * Config::kShareA,
              x = (tile.column * Config::kClusterN + place.n) * Config::kStored;
    for (int step = piece.first; step < piece.last; ++step) {
      ptx::mbarrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
      rows.full = columns.full = &shared.full[ring.stage];
      ptx::mbarrier_arrive_expect(rows.full, Config::kStageBytes);
      load<Config::kClusterN>(shared.a[ring.stage] + place.n * Config::kShareA * kTileK, maps.a, step * kTileK, y,
                              tile.a, rows);
      load_b<Config>(shared.b[ring.stage], maps, step * kTileK, x, tile.b, place.m, columns);
      ring.advance();
    }
    if constexpr (requires { tiles.load_beside(shared, ring, maps, 0, 0, int2{}); })
      if (piece.last == steps_of(tiles.shape))
        tiles.load_beside(shared, ring, maps, tile.y + place.m * Config::kTileM, x, tile.c);
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
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < kTileK / 16; ++k)
    ptx::wgmma<typename Config::T, Config::kColumns, Config::kLayoutB>(
        d, a + k * ptx::kWgmmaStepK<>, b + k * ptx::kWgmmaStepK<Config::kLayoutB>, !first || k > 0);
  ptx::wgmma_commit();
}

/// A computing warpgroup: 64 rows of each of the block's tiles.
template <class Config, class Tiles>
__device__ void gemm_consume(GemmShared<Config>& shared, const Tiles& tiles, const GemmMaps& maps) {
  const BlockPlace<Config> place;
  const GemmShape& shape = tiles.shape;
  const int group = threadIdx.x / 128 - 1, steps = steps_of(shape), slot = blockIdx.x * Config::kConsumers + group;
  Ring<Config::kStages> ring;
  float d[Config::kColumns / 2];
  Piece piece;
  for (int i = 0; tiles.piece(i, piece); ++i) {
    if constexpr (Tiles::kRagged) {
      // Nothing to compute where all of this warpgroup's rows lie past the end: the other has the tensor cores.
      const TilePlace tile = tiles.place(piece.tile);
      if (tile.y + place.m * Config::kTileM + group * 64 >= tile.last) {
        for (int step = piece.first; step < piece.last; ++step) {
          ptx::mbarrier_wait(&shared.full[ring.stage], ring.parity);
          // No product holds the warps together here: one that still stores the tile before must not find that the
          // stage has been filled twice meanwhile.
          warpgroup_sync(group + 1);
          release(shared, place, ring.stage);
          ring.advance();
        }
        continue;
      }
    }
    if constexpr (requires { tiles.prepare(0, 0, int2{}); }) {
      const TilePlace tile = tiles.place(piece.tile);
      tiles.prepare(tile.y + place.m * Config::kTileM + group * 64,
                    (tile.column * Config::kClusterN + place.n) * Config::kStored, tile.c);
    }
    if (piece.first > 0) load_sums(shape.carry, slot - Config::kBlocks * Config::kConsumers, d, group + 1);
    ptx::wgmma_pin(d);
    const auto step_over = [&](bool first) {
      ptx::mbarrier_wait(&shared.full[ring.stage], ring.parity);
      multiply<Config>(d, shared.a[ring.stage] + group * 64 * kTileK, shared.b[ring.stage], first);
    };
    step_over(piece.first == 0);
    int before = ring.stage;
    ring.advance();
    for (int step = piece.first + 1; step < piece.last; ++step) {
      step_over(false);
      // One product stays in flight: the stage before it has been read.
      ptx::wgmma_wait<1>();
      release(shared, place, before);
      before = ring.stage;
      ring.advance();
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(d);
    release(shared, place, before);
    if (piece.last < steps) {
      save_sums(shape.carry, slot, d, kSaveBarrier<Config> + group);
      continue;
    }
    const TilePlace tile = tiles.place(piece.tile);
    const int y = tile.y + place.m * Config::kTileM + group * 64,
              x = (tile.column * Config::kClusterN + place.n) * Config::kStored;
    if constexpr (Config::kSwiGlu) fold_swiglu(d);
    if constexpr (requires { tiles.finish(d, y, x, tile.c, shared, ring, place); })
      tiles.finish(d, y, x, tile.c, shared, ring, place);
    store_tile<typename Config::T, Config::kStored, Tiles::kRagged>(shared.c[group], d, shape, maps.c, tile.last, y, x,
                                                                    tile.c.x, tile.c.y, group + 1);
  }
  if (threadIdx.x % 128 < kTurnedBoxes) ptx::tma_store_wait_read<0>();
}

/// A block's work, once its tiles are known: the body of the kernels.
template <class Config, class Tiles>
__device__ __forceinline__ void gemm_block(GemmShared<Config>& shared, const Tiles& tiles, const GemmMaps& maps) {
  if (threadIdx.x == 0) {
    for (int s = 0; s < Config::kStages; ++s) {
      ptx::mbarrier_init(&shared.full[s], 1);
      ptx::mbarrier_init(&shared.empty[s], Config::kConsumers * (Config::kClusterM + Config::kClusterN - 1));
    }
    ptx::mbarrier_init_fence();
    ptx::tma_prefetch_map(&maps.a);
    ptx::tma_prefetch_map(&maps.b);
    if constexpr (Config::kSwiGlu) ptx::tma_prefetch_map(&maps.up);
    if (tiles.shape.tma_store) ptx::tma_prefetch_map(&maps.c);
  }
  ptx::cluster_sync();
  if (threadIdx.x < 128) {
    ptx::registers_decrease<Config::kProducerRegisters>();
    const int group = static_cast<int>(threadIdx.x) / 32 - 1;
    if (threadIdx.x == 0) gemm_produce(shared, tiles, maps);
    if (group >= 0 && group < Config::kConsumers && saves(tiles))
      publish_sums(tiles.shape.carry, blockIdx.x * Config::kConsumers + group, kSaveBarrier<Config> + group);
  } else {
    ptx::registers_increase<Config::kConsumerRegisters>();
    gemm_consume(shared, tiles, maps);
  }
  ptx::cluster_sync();  // no block leaves while another may still write to its shared memory
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    sm90_gemm_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                     const __grid_constant__ CUtensorMap map_c, const __grid_constant__ GemmShape shape) {
  if constexpr (!ptx::kIsHopper) return;  // in PTX for other devices the kernel is empty, and never launched
  extern __shared__ __align__(1024) unsigned char raw[];
  gemm_block(*reinterpret_cast<GemmShared<Config>*>(raw), DenseTiles<Config>{shape}, {map_a, map_b, map_c, map_b});
}

}  // namespace tenor::cuda::gemm
