// Few rows against a matrix that is read once: C[M,N] = A[M,K] * B[N,K]^T for two-byte operands and M up to 64, at the
// memory's speed and with the bits of the Hopper GEMM (sm90_gemm.cuh).
//
// The roles are exchanged: wgmma's 64 rows are columns of C, its columns the few rows of A. Each block streams its own
// columns of B, all of k, through a ring of stages that fills shared memory; k is not split, so an element adds its
// products in one accumulator in ascending order, as the GEMM does. The columns of all matrices are dealt as ranges of
// equal length, so that the blocks end together.
#pragma once

#include <cuda.h>

#include "src/cuda/gemm/sm90_gemm_maps.cuh"
#include "src/cuda/gemm/sm90_gemm_store.cuh"
#include "src/cuda/gemm/sm90_groups.cuh"
#include "src/cuda/gemm/sm90_swiglu.cuh"
#include "src/cuda/gemm/sm90_token_sum.cuh"
#include "src/cuda/ptx/mbarrier.cuh"
#include "src/cuda/ptx/tma.cuh"
#include "src/cuda/ptx/wgmma.cuh"

namespace tenor::cuda::gemm {

inline constexpr int kRowsPass = 128;                       ///< columns of a pass at most: 64 for each warpgroup
inline constexpr int kRowsThreads = 128 * kConsumers + 32;  ///< the computing warpgroups and a loading warp
inline constexpr int kRowsMaxStages = 16;

/// What a launch needs beside what its stores need.
struct RowsShape {
  GemmShape out;
  int pass;          ///< columns that are loaded at once
  int matrices = 1;  ///< 2: gate and up, whose columns go to a warpgroup each; C is silu(A gate^T) * (A up^T)
  int chunks;        ///< of 64 k in a stage
  int stages;
  bool read_once;        ///< B does not stay in L2
  bool one_row = false;  ///< A has one row, which is every range's
};

/// Whether each range has blocks of its own.
__host__ __device__ inline bool few_ranges(int64_t ranges, int64_t blocks) { return 2 * ranges <= blocks; }

/// A stage of the ring, in elements: chunks of 64 k of B's columns, then those of A's rows.
template <int kRows>
struct RowsStage {
  static constexpr int kChunkA = kRows * kTileK;
  /// wgmma reads 64 columns whether or not they are there.
  static constexpr int kSlackBytes = 128 * kTileK * 2;
  /// Of one matrix.
  static __host__ __device__ int chunk_b(const RowsShape& s) { return (s.pass + 7) / 8 * 8 * kTileK; }
  static __host__ __device__ int bytes(const RowsShape& s, int chunks) {
    return chunks * (s.matrices * chunk_b(s) + kChunkA) * 2;
  }
  /// Of which so many bytes arrive.
  static __device__ int arriving(const RowsShape& s, int chunks) {
    return chunks * (s.matrices * s.pass * kTileK + kChunkA) * 2;
  }
};

/// Columns [first, first + count) of the product of rows from `row` on, those below `last` being C's.
struct RowsPass {
  int first, count, row, last;
  int2 a, b, c;  ///< the matrices of the batch
};

/// Calls fn(range's number, first column, count) for the passes of this block's share of `ranges` times n columns. Few
/// ranges are dealt to as many blocks each, since a share that reaches into a second one loads another pass for it.
template <class F>
__device__ __forceinline__ void for_each_range(const RowsShape& shape, int64_t ranges, F&& fn) {
  const int64_t n = shape.out.n, columns = ranges * n;
  int64_t at = columns * blockIdx.x / gridDim.x, last = columns * (blockIdx.x + 1) / gridDim.x;
  if (few_ranges(ranges, gridDim.x)) {
    const int64_t each = gridDim.x / max(ranges, int64_t{1}), range = blockIdx.x / each, piece = blockIdx.x % each;
    at = min(range * n + n * piece / each, columns), last = min(range * n + n * (piece + 1) / each, columns);
  }
  while (at < last) {
    const int range = static_cast<int>(at / n), first = static_cast<int>(at - range * n);
    const int count = static_cast<int>(min(min(int64_t{shape.pass}, n - first), last - at));
    fn(range, first, count);
    at += count;
  }
}

/// The passes over a batch of products of the same rows.
struct DenseRows {
  const RowsShape& shape;
  template <class F>
  __device__ __forceinline__ void for_each_pass(F&& fn) const {
    const GemmShape& s = shape.out;
    for_each_range(shape, int64_t{s.batch[0]} * s.batch[1], [&](int matrix, int first, int count) {
      const int z = matrix % s.batch[0], w = matrix / s.batch[0];
      fn(RowsPass{first,
                  count,
                  0,
                  s.m,
                  {s.shared_a[0] ? 0 : z, s.shared_a[1] ? 0 : w},
                  {s.shared_b[0] ? 0 : z, s.shared_b[1] ? 0 : w},
                  {z, w}});
    });
  }
};

/// The passes over groups of rows, kRows at a time.
template <int kRows>
struct GroupedRows {
  const RowsShape& shape;
  const GroupOffsets& offsets;
  const int* starts;
  template <class F>
  __device__ __forceinline__ void for_each_pass(F&& fn) const {
    for_each_range(shape, starts[offsets.groups], [&](int tile, int first, int count) {
      const int group = group_of(starts, offsets.groups, tile);
      fn(RowsPass{first,
                  count,
                  offsets.first(group) + (tile - starts[group]) * kRows,
                  offsets.last(group),
                  {0, 0},
                  {group, 0},
                  {0, 0}});
    });
  }
};

struct RowsBarriers {
  uint64_t full[kRowsMaxStages], empty[kRowsMaxStages];
};

/// A place in the ring.
struct RowsRing {
  int stages, stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

/// Where a stage's operands lie in the ring.
template <class T, int kRows>
struct RowsPlaces {
  unsigned char* raw;
  int stage_bytes, chunk_b, chunks, matrices;
  __device__ RowsPlaces(unsigned char* raw, const RowsShape& shape)
      : raw(raw),
        stage_bytes(RowsStage<kRows>::bytes(shape, shape.chunks)),
        chunk_b(RowsStage<kRows>::chunk_b(shape)),
        chunks(shape.chunks),
        matrices(shape.matrices) {}
  __device__ __forceinline__ T* b(int stage, int chunk, int matrix = 0) const {
    return reinterpret_cast<T*>(raw + stage * stage_bytes) + (chunk * matrices + matrix) * chunk_b;
  }
  __device__ __forceinline__ T* a(int stage, int chunk) const {
    return b(stage, chunks) + chunk * RowsStage<kRows>::kChunkA;
  }
};

/// The loading thread.
template <class T, int kRows, class Rows>
__device__ void rows_produce(const Rows& rows, const RowsPlaces<T, kRows>& places, RowsBarriers& barriers,
                             const GemmMaps& maps) {
  const RowsShape& shape = rows.shape;
  const int chunks = steps_of(shape.out);
  const uint64_t policy = ptx::evict_first_policy();
  RowsRing ring{shape.stages};
  rows.for_each_pass([&](const RowsPass& pass) {
    for (int chunk = 0; chunk < chunks; chunk += shape.chunks) {
      const int some = min(shape.chunks, chunks - chunk);
      uint64_t* full = &barriers.full[ring.stage];
      ptx::mbarrier_wait(&barriers.empty[ring.stage], ring.parity ^ 1);
      ptx::mbarrier_arrive_expect(full, RowsStage<kRows>::arriving(shape, some));
      for (int i = 0; i < some; ++i) {
        const int k = (chunk + i) * kTileK;
        for (int m = 0; m < shape.matrices; ++m) {
          T* to = places.b(ring.stage, i, m);
          const CUtensorMap* map = m == 0 ? &maps.b : &maps.up;
          if (shape.read_once)
            ptx::tma_load_4d_hinted(to, map, k, pass.first, pass.b.x, pass.b.y, full, policy);
          else
            ptx::tma_load_4d(to, map, k, pass.first, pass.b.x, pass.b.y, full);
        }
        ptx::tma_load_4d(places.a(ring.stage, i), &maps.a, k, shape.one_row ? 0 : pass.row, pass.a.x, pass.a.y, full);
      }
      ring.advance();
    }
  });
}

/// Where the warpgroup of the up's columns leaves its sums for that of the gate's.
template <int kRows>
struct RowsExchange {
  float sums[kRows / 2][128];
};

/// Between the two computing warpgroups.
__device__ __forceinline__ void consumers_sync() { asm volatile("bar.sync 1, %0;" ::"n"(128 * kConsumers) : "memory"); }

/// A computing warpgroup: 64 columns of each pass, or of one of the two matrices.
template <class T, int kRows, bool kSwiGlu, class Rows>
__device__ void rows_consume(const Rows& rows, const RowsPlaces<T, kRows>& places, RowsBarriers& barriers,
                             RowsExchange<kRows>* exchange) {
  const RowsShape& shape = rows.shape;
  const int chunks = steps_of(shape.out), group = threadIdx.x / 128;
  RowsRing ring{shape.stages};
  rows.for_each_pass([&](const RowsPass& pass) {
    float d[kRows / 2];
    int before = -1;
    for (int chunk = 0; chunk < chunks; chunk += shape.chunks) {
      const int some = min(shape.chunks, chunks - chunk);
      ptx::mbarrier_wait(&barriers.full[ring.stage], ring.parity);
      for (int i = 0; i < some; ++i) {
        ptx::wgmma_fence();
        const T* columns = kSwiGlu ? places.b(ring.stage, i, group) : places.b(ring.stage, i) + group * 64 * kTileK;
        const uint64_t b = ptx::wgmma_descriptor(columns), a = ptx::wgmma_descriptor(places.a(ring.stage, i));
#pragma unroll
        for (int k = 0; k < kTileK / 16; ++k)
          ptx::wgmma<T, kRows, ptx::TileLayout::kInner>(d, b + k * ptx::kWgmmaStepK<>, a + k * ptx::kWgmmaStepK<>,
                                                        chunk + i > 0 || k > 0);
        ptx::wgmma_commit();
      }
      ptx::wgmma_wait<1>();  // one product stays in flight: the stage before it has been read
      if (before >= 0 && threadIdx.x % 128 == 0) ptx::mbarrier_arrive(&barriers.empty[before]);
      before = ring.stage;
      ring.advance();
    }
    ptx::wgmma_wait<0>();
    if (threadIdx.x % 128 == 0) ptx::mbarrier_arrive(&barriers.empty[before]);
    if constexpr (kSwiGlu) {
      if (group == 1)
#pragma unroll
        for (int i = 0; i < kRows / 2; ++i) exchange->sums[i][threadIdx.x % 128] = d[i];
      consumers_sync();
      if (group == 0)
#pragma unroll
        for (int i = 0; i < kRows / 2; ++i) d[i] = swiglu(d[i], exchange->sums[i][threadIdx.x]);
      consumers_sync();  // the next pass's sums may be left there
      if (group == 1) return;
    }
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      const int at = group * 64 + accumulator_row(i), row = pass.row + accumulator_column(i);
      if (at < pass.count && row < pass.last)
        store_element<T>(d[i], shape.out, row, pass.first + at, pass.c.x, pass.c.y);
    }
  });
}

/// A block's work, once its passes are known: the body of the kernels.
template <class T, int kRows, bool kSwiGlu = false, class Rows>
__device__ __forceinline__ void rows_block(const Rows& rows, unsigned char* raw, RowsBarriers& barriers,
                                           const GemmMaps& maps, RowsExchange<kRows>* exchange = nullptr) {
  const RowsPlaces<T, kRows> places(raw, rows.shape);
  constexpr int kLoader = 128 * kConsumers;
  if (threadIdx.x == kLoader) {
    ptx::tma_prefetch_map(&maps.b);
    ptx::tma_prefetch_map(&maps.a);
    for (int s = 0; s < rows.shape.stages; ++s) {
      ptx::mbarrier_init(&barriers.full[s], 1);
      ptx::mbarrier_init(&barriers.empty[s], kConsumers);
    }
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x == kLoader) rows_produce(rows, places, barriers, maps);
  if (threadIdx.x < kLoader) rows_consume<T, kRows, kSwiGlu>(rows, places, barriers, exchange);
}

template <class T, int kRows>
__global__ void __launch_bounds__(kRowsThreads, 1)
    sm90_rows_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                     const __grid_constant__ RowsShape shape) {
  if constexpr (!ptx::kIsHopper) return;  // in PTX for other devices the kernel is empty, and never launched
  extern __shared__ __align__(1024) unsigned char raw[];
  __shared__ RowsBarriers barriers;
  rows_block<T, kRows>(DenseRows{shape}, raw, barriers, {map_a, map_b, map_b, map_b});
}

/// `starts_at`: where in shared memory the tiles of the groups are counted.
template <class T, int kRows, bool kSwiGlu>
__global__ void __launch_bounds__(kRowsThreads, 1)
    sm90_grouped_rows_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                             const __grid_constant__ CUtensorMap map_up, const __grid_constant__ RowsShape shape,
                             const __grid_constant__ GroupOffsets offsets, int starts_at,
                             const __grid_constant__ TokenSum sum) {
  if constexpr (!ptx::kIsHopper) return;  // in PTX for other devices the kernel is empty, and never launched
  extern __shared__ __align__(1024) unsigned char raw[];
  __shared__ RowsBarriers barriers;
  int* starts = reinterpret_cast<int*>(raw + starts_at);
  count_tiles(starts, offsets, kRows);
  const GroupedRows<kRows> rows{shape, offsets, starts};
  const GemmMaps maps{map_a, map_b, map_b, map_up};
  if constexpr (kSwiGlu) {
    __shared__ RowsExchange<kRows> exchange;
    rows_block<T, kRows, true>(rows, raw, barriers, maps, &exchange);
  } else {
    rows_block<T, kRows>(rows, raw, barriers, maps);
    if (sum.out) finish_token<T>(shape.out, sum, starts[offsets.groups]);
  }
}

}  // namespace tenor::cuda::gemm
