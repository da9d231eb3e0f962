// The Hopper GEMM: C[M,N] = A[M,K] * B[N,K]^T for two-byte operands with contiguous K, float32 accumulation over k in
// ascending order, one rounding at the end. Each element's bits depend on its row of A, its row of B and K alone, never on
// M, N or the tile it falls in: the contract of batch invariance.
//
// Blocks come in clusters of two, one above the other: a cluster computes 256 x 256 of C, and each block loads its own 128
// rows of A and half of the 256 rows of B, multicast to both. In a block one warpgroup only loads (one thread issues TMA),
// two compute 64 x 256 each. The grid is persistent; tiles are walked so that neighbours in time share operands in L2.
#pragma once

#include <cuda.h>

#include "src/cuda/ptx/mbarrier.cuh"
#include "src/cuda/ptx/tma.cuh"
#include "src/cuda/ptx/wgmma.cuh"

namespace tenor::cuda::gemm {

namespace ptx = tenor::cuda::ptx;

inline constexpr int kTileM = 128, kTileN = 256, kTileK = 64, kStages = 4, kCluster = 2;
inline constexpr int kConsumers = 2, kThreads = 128 * (kConsumers + 1);
inline constexpr int kStoreColumns = 64;  // one swizzled row of C's staging: 128 bytes

/// The shared memory of a block. Operand tiles are 1024-byte aligned, as their swizzle asks.
template <class T>
struct alignas(1024) GemmShared {
  T a[kStages][kTileM * kTileK];
  T b[kStages][kTileN * kTileK];
  T c[kConsumers][2][64 * kStoreColumns];  // half of a warpgroup's 64 x 256, two boxes at a time
  uint64_t full[kStages], empty[kStages];
};

/// What a launch needs. Tiles count clusters: 256 x 256 of C.
struct GemmShape {
  int m, n, k;
  int tiles_m, tiles_n;
  void* c;           ///< where TMA cannot store: it clips a row of C at multiples of 16 bytes only
  int64_t stride_c;
};

/// The cluster tile that comes i-th: columns run inside groups of `kGroup` tile rows, so that a wave of clusters touches
/// a near-square part of C and its operands stay in L2.
struct TileOrder {
  static constexpr int kGroup = 8;
  __device__ static void at(const GemmShape& shape, int i, int& row, int& column) {
    const int per_group = kGroup * shape.tiles_n, group = i / per_group, first = group * kGroup;
    const int rows = min(kGroup, shape.tiles_m - first), within = i - group * per_group;
    row = first + within % rows;
    column = within / rows;
  }
};

/// A ring of stages and the parity of the round it is in.
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

/// The loading warpgroup: one thread walks the block's tiles and keeps the ring full.
template <class T>
__device__ void gemm_produce(GemmShared<T>& shared, const GemmShape& shape, const CUtensorMap& map_a, const CUtensorMap& map_b) {
  const uint32_t rank = ptx::cluster_rank();
  const int clusters = gridDim.x / kCluster, steps = (shape.k + kTileK - 1) / kTileK;
  constexpr int kHalf = kTileN / kCluster;
  constexpr uint32_t kBytes = (kTileM + kTileN) * kTileK * sizeof(T);
  Ring ring;
  for (int tile = blockIdx.x / kCluster; tile < shape.tiles_m * shape.tiles_n; tile += clusters) {
    int row, column;
    TileOrder::at(shape, tile, row, column);
    for (int step = 0; step < steps; ++step) {
      ptx::mbarrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
      ptx::mbarrier_arrive_expect(&shared.full[ring.stage], kBytes);
      ptx::tma_load_2d(shared.a[ring.stage], &map_a, step * kTileK, (row * kCluster + rank) * kTileM, &shared.full[ring.stage]);
      ptx::tma_load_2d_multicast(shared.b[ring.stage] + rank * kHalf * kTileK, &map_b, step * kTileK, column * kTileN + rank * kHalf,
                                 &shared.full[ring.stage], (1 << kCluster) - 1);
      ring.advance();
    }
  }
  // The last stages must be released before the block may leave: its neighbour still arrives at these barriers.
  for (int s = 0; s < kStages; ++s) {
    ptx::mbarrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
    ring.advance();
  }
}

/// Tells both blocks of the cluster that this warpgroup has read a stage.
template <class T>
__device__ __forceinline__ void release(GemmShared<T>& shared, int stage) {
  if (threadIdx.x % 128 < kCluster) ptx::mbarrier_arrive_cluster(&shared.empty[stage], threadIdx.x % 128);
}

template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high);
template <>
__device__ __forceinline__ uint32_t pack<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&two);
}
template <>
__device__ __forceinline__ uint32_t pack<__half>(float low, float high) {
  const __half2 two = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&two);
}

/// Rounds 64 x 256 accumulators to T and stores them through shared memory, 128 columns at a time.
template <class T>
__device__ void store_rounded(T (&staging)[2][64 * kStoreColumns], const float (&d)[128], const CUtensorMap& map_c, int y, int x, int barrier) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  const int matrix = lane / 8, row = warp * 16 + (matrix & 1) * 8 + lane % 8;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (threadIdx.x % 128 == 0) ptx::tma_store_wait_read<0>();
    asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory");
#pragma unroll
    for (int pair = 0; pair < 8; ++pair) {  // two groups of 8 columns a stmatrix
      const int j = half * 16 + pair * 2, chunk = pair % 4 * 2 + (matrix >> 1);
      T* line = staging[pair / 4] + row * kStoreColumns + ((chunk ^ (row & 7)) * 8);
      ptx::stmatrix_x4(line, pack<T>(d[4 * j], d[4 * j + 1]), pack<T>(d[4 * j + 2], d[4 * j + 3]),
                       pack<T>(d[4 * j + 4], d[4 * j + 5]), pack<T>(d[4 * j + 6], d[4 * j + 7]));
    }
    ptx::fence_async_proxy();
    asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory");
    if (threadIdx.x % 128 == 0) {
      for (int box = 0; box < 2; ++box) ptx::tma_store_2d(&map_c, staging[box], x + half * 128 + box * kStoreColumns, y);
      ptx::tma_store_commit();
    }
  }
}

/// Rounds 64 x 256 accumulators to T and stores them element by element, for rows of C that end inside 16 bytes.
template <class T>
__device__ void store_clipped(const float (&d)[128], const GemmShape& shape, int y, int x) {
  const int lane = threadIdx.x % 32, row = y + threadIdx.x % 128 / 32 * 16 + lane / 4;
  T* c = static_cast<T*>(shape.c);
#pragma unroll
  for (int i = 0; i < 128; ++i) {
    const int r = row + (i & 2) * 4, column = x + i / 4 * 8 + lane % 4 * 2 + (i & 1);
    if (r < shape.m && column < shape.n) c[r * shape.stride_c + column] = static_cast<T>(d[i]);
  }
}

/// A computing warpgroup: 64 rows of each of the block's tiles.
template <class T>
__device__ void gemm_consume(GemmShared<T>& shared, const GemmShape& shape, const CUtensorMap& map_c) {
  const int group = threadIdx.x / 128 - 1, clusters = gridDim.x / kCluster, steps = (shape.k + kTileK - 1) / kTileK;
  const uint32_t rank = ptx::cluster_rank();
  Ring ring;
  float d[128];
  for (int tile = blockIdx.x / kCluster; tile < shape.tiles_m * shape.tiles_n; tile += clusters) {
    int row, column, before = -1;
    TileOrder::at(shape, tile, row, column);
    for (int step = 0; step < steps; ++step) {
      ptx::mbarrier_wait(&shared.full[ring.stage], ring.parity);
      const uint64_t a = ptx::wgmma_descriptor(shared.a[ring.stage] + group * 64 * kTileK), b = ptx::wgmma_descriptor(shared.b[ring.stage]);
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < kTileK / 16; ++k)
        ptx::wgmma_m64n256k16<T>(d, a + k * ptx::kWgmmaStepK, b + k * ptx::kWgmmaStepK, step > 0 || k > 0);
      ptx::wgmma_commit();
      // One product stays in flight: the stage before it has been read.
      ptx::wgmma_wait<1>();
      if (before >= 0) release(shared, before);
      before = ring.stage;
      ring.advance();
    }
    ptx::wgmma_wait<0>();
    if (before >= 0) release(shared, before);
    const int y = (row * kCluster + rank) * kTileM + group * 64, x = column * kTileN;
    if (shape.n % 8 == 0) {
      store_rounded<T>(shared.c[group], d, map_c, y, x, group + 1);
    } else {
      store_clipped<T>(d, shape, y, x);
    }
  }
  if (threadIdx.x % 128 == 0) ptx::tma_store_wait_read<0>();
}

template <class T>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    sm90_gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, const __grid_constant__ CUtensorMap map_c,
              const GemmShape shape) {
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<GemmShared<T>*>(raw);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      ptx::mbarrier_init(&shared.full[s], 1);
      ptx::mbarrier_init(&shared.empty[s], kConsumers * kCluster);
    }
    ptx::mbarrier_init_fence();
    ptx::tma_prefetch_map(&map_a);
    ptx::tma_prefetch_map(&map_b);
    ptx::tma_prefetch_map(&map_c);
  }
  ptx::cluster_sync();
  if (threadIdx.x < 128) {
    ptx::registers_decrease<24>();
    if (threadIdx.x == 0) gemm_produce(shared, shape, map_a, map_b);
  } else {
    ptx::registers_increase<240>();
    gemm_consume(shared, shape, map_c);
  }
  ptx::cluster_sync();  // no block leaves while another may still write to its shared memory
}

}  // namespace tenor::cuda::gemm
