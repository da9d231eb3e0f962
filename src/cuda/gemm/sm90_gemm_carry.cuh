// How the Hopper GEMM fills its last wave: a tile's accumulators may be carried from one cluster to the next.
//
// Where tiles do not divide among the clusters, the first R of them (at least one a cluster, fewer than two) are dealt
// as ranges of steps of equal length. A range that ends inside a tile computes the tile's first steps and saves the
// accumulators; the next cluster's range, which begins there, loads them and goes on. The chain of additions over k is
// that of one cluster alone, so no bit depends on the split. A cluster saves before all else and loads at the very end:
// nobody waits long, and only for a cluster of lower index.
#pragma once

#include <cstdint>

namespace tenor::cuda::gemm {

/// What the clusters hand on: accumulators, and for each warpgroup's a flag that holds the launch's token while they
/// lie there. Whoever takes them clears the flag.
struct CarrySpace {
  float4* sums = nullptr;  ///< null: no tile is split
  uint64_t* flags = nullptr;
  uint64_t token = 0;
};

/// Steps [first, last) of a tile.
struct Piece {
  int tile, first, last;
};

/// The i-th piece that a cluster computes; false past its last. `split` tiles, from the first on, are dealt by steps
/// (their number times `steps` below 2^31). Worked out anew each time: registers are dearer here.
__host__ __device__ inline bool piece_of(int i, int tiles, int split, int steps, int cluster, int clusters,
                                         Piece& piece) {
  const int per = split * steps / clusters, rest = split * steps % clusters;
  const int low = per * cluster + rest * cluster / clusters,
            high = low + per + (rest * (cluster + 1) / clusters - rest * cluster / clusters);
  const int head = high / steps, head_last = high % steps, tail_first = low % steps, inner = (low + steps - 1) / steps;
  if (head_last > 0 && i-- == 0) {
    piece = {head, 0, head_last};
    return true;
  }
  int tile = inner + i;
  if (tile >= head) tile = split + cluster + (tile - head) * clusters;
  if (tile < tiles) {
    piece = {tile, 0, steps};
    return true;
  }
  piece = {inner - 1, tail_first, steps};
  return tail_first > 0 && tile < tiles + clusters;
}

__device__ __forceinline__ void warpgroup_sync(int barrier) {
  asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory");
}

/// Writes a warpgroup's accumulators to `slot`. It does not wait until they are there: a warp that has nothing else to
/// do does so, in publish_sums, and meets this warpgroup at `barrier`.
template <int kCount>
__device__ void save_sums(const CarrySpace& space, int slot, const float (&d)[kCount], int barrier) {
  float4* to = space.sums + int64_t{slot} * (kCount / 4) * 128 + threadIdx.x % 128;
#pragma unroll
  for (int i = 0; i < kCount; i += 4) to[i / 4 * 128] = {d[i], d[i + 1], d[i + 2], d[i + 3]};
  asm volatile("bar.arrive %0, 160;" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void publish_sums(const CarrySpace& space, int slot, int barrier) {
  asm volatile("bar.sync %0, 160;" ::"r"(barrier) : "memory");
  if (threadIdx.x % 32 == 0)
    asm volatile("fence.acq_rel.gpu;\nst.release.gpu.u64 [%0], %1;" ::"l"(space.flags + slot), "l"(space.token)
                 : "memory");
}

/// Takes them, once they are there.
template <int kCount>
__device__ void load_sums(const CarrySpace& space, int slot, float (&d)[kCount], int barrier) {
  if (threadIdx.x % 128 == 0) {
    uint64_t seen;
    do {
      asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(seen) : "l"(space.flags + slot) : "memory");
    } while (seen != space.token);
    space.flags[slot] = 0;
  }
  warpgroup_sync(barrier);
  const float4* from = space.sums + int64_t{slot} * (kCount / 4) * 128 + threadIdx.x % 128;
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    const float4 x = __ldcg(from + i / 4 * 128);
    d[i] = x.x, d[i + 1] = x.y, d[i + 2] = x.z, d[i + 3] = x.w;
  }
}

}  // namespace tenor::cuda::gemm
