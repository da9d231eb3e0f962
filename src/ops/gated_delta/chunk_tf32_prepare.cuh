// The first kernel of the chunk form by TF32 products: as chunk_prepare.cuh, with factors of float32.
#pragma once

#include "src/ops/gated_delta/chunk_tf32_tiles.cuh"

namespace tenor::delta {

template <class T, int kKeyDim>
struct Tf32PrepareShared {
  struct Tiles {
    alignas(128) ChunkRows<T, kKeyDim> key, query;
  };
  struct Squares {
    alignas(128) Tf32Factors made;
    float lower[kChunk][kPad];
  };
  union {  // the squares when the products are done
    Tiles tiles;
    Squares squares;
  };
  double sums[kChunk];
  float4 columns[kChunk / 2];
  float2 rows[kChunk];
  float beta[kChunk], key_norm[kChunk], query_norm[kChunk];
  int good;
  uint64_t barrier;
};

/// 1 / norms of the keys' and queries' rows.
template <class T, int kKeyDim>
__device__ __forceinline__ void load_norms(Tf32PrepareShared<T, kKeyDim>& shared) {
  const int row = threadIdx.x / 2, half = threadIdx.x % 2;
  float square[2] = {0, 0};
#pragma unroll 8
  for (int i = 0; i < kKeyDim / 4; ++i) {
    const float2 k = two_of(&shared.tiles.key[row][4 * i + 2 * half]),
                 q = two_of(&shared.tiles.query[row][4 * i + 2 * half]);
    square[0] = fmaf(k.x, k.x, square[0]), square[0] = fmaf(k.y, k.y, square[0]);
    square[1] = fmaf(q.x, q.x, square[1]), square[1] = fmaf(q.y, q.y, square[1]);
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) square[j] += __shfl_xor_sync(~0u, square[j], 1);
  if (half == 0) shared.key_norm[row] = rsqrtf(square[0] + 1e-6f), shared.query_norm[row] = rsqrtf(square[1] + 1e-6f);
}

/// Eight channels of a warp's sixteen rows, as a left factor.
template <int kKeyDim>
__device__ __forceinline__ Tf32Factor<true, 4> rows_factor(const ChunkRows<float, kKeyDim>& rows, int channel) {
  const int lane = threadIdx.x % 32, row = 16 * (threadIdx.x / 32) + lane / 4, column = channel + lane % 4 * 2;
  const float2 a = two_of(&rows[row][column]), b = two_of(&rows[row + 8][column]);
  return Tf32Factor<true, 4>({a.x, a.y, b.x, b.y});
}

/// Rows 16 w to 16 w + 15 of K K^T and Q K^T up to the diagonal's block: warp w's, eight columns a tile.
template <int kKeyDim>
__device__ __forceinline__ void triangle_products(const Tf32PrepareShared<float, kKeyDim>& shared,
                                                  float (&by_key)[4][2][4], float (&by_query)[4][2][4]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 2
  for (int k = 0; k < kKeyDim; k += 8) {
    const Tf32Factor<true, 4> key = rows_factor<kKeyDim>(shared.tiles.key, k),
                              query = rows_factor<kKeyDim>(shared.tiles.query, k);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      if (n / 2 > warp) continue;
      const auto b = exact_factor<true>(two_of(&shared.tiles.key[8 * n + lane / 4][k + lane % 4 * 2]));
      multiply_tf32<true>(by_key[n / 2][n % 2], key, b);
      multiply_tf32<true>(by_query[n / 2][n % 2], query, b);
    }
  }
}
/// Likewise of float16, whose products are exact.
template <int kKeyDim>
__device__ __forceinline__ void triangle_products(const Tf32PrepareShared<Float16, kKeyDim>& shared,
                                                  float (&by_key)[4][2][4], float (&by_query)[4][2][4]) {
  const auto& [rows, queries] = shared.tiles;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int k = 0; k < kKeyDim; k += 16) {
    uint32_t a[4], q[4];
    ptx::ldmatrix_x4(a, ptx::shared_address(&rows[16 * warp + lane % 16][k + lane / 16 * 8]));
    ptx::ldmatrix_x4(q, ptx::shared_address(&queries[16 * warp + lane % 16][k + lane / 16 * 8]));
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      if (n > warp) continue;
      uint32_t b[4];
      ptx::ldmatrix_x4(b, ptx::shared_address(&rows[16 * n + lane % 8 + lane / 16 * 8][k + lane / 8 % 2 * 8]));
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        ptx::mma_m16n8k16<Float16>(by_key[n][h], a[0], a[1], a[2], a[3], b[2 * h], b[2 * h + 1]);
        ptx::mma_m16n8k16<Float16>(by_query[n][h], q[0], q[1], q[2], q[3], b[2 * h], b[2 * h + 1]);
      }
    }
  }
}

/// Blocks: value heads fastest, then slots of chunks. Dynamic shared memory: Tf32PrepareShared.
template <class T, int kKeyDim>
__global__ void __launch_bounds__(kPrepareThreads)
    prepare_tf32_kernel(const __grid_constant__ DeviceProblem p, Tf32Factors* factors) {
  if constexpr (!ptx::kIsHopper) return;  // in PTX for other devices the kernel is empty, and never launched
  constexpr bool kFine = kIsFine<T>;
  extern __shared__ __align__(1024) unsigned char prepare_memory[];
  auto& shared = *reinterpret_cast<Tf32PrepareShared<T, kKeyDim>*>(prepare_memory);
  ptx::launch_dependents();
  const int64_t head = blockIdx.x % static_cast<unsigned>(p.value_heads),
                slot = blockIdx.x / static_cast<unsigned>(p.value_heads);
  const int64_t n = sequence_of(p.sequences, slot);
  const DeviceSequence s(p.sequences, n);
  const int64_t step = (slot - first_slot(p.sequences, n)) * kChunk;
  if (step >= s.length) return;
  const int valid = static_cast<int>(min(s.length - step, int64_t{kChunk})), warp = threadIdx.x / 32,
            lane = threadIdx.x % 32;
  clear_rows<T, kKeyDim>(shared.tiles.key, valid, threadIdx.x, kPrepareThreads);
  clear_rows<T, kKeyDim>(shared.tiles.query, valid, threadIdx.x, kPrepareThreads);
  if (threadIdx.x == 0) {
    shared.good = valid;
    ptx::mbarrier_init(&shared.barrier, 1);
    ptx::mbarrier_init_fence();
    ptx::mbarrier_arrive_expect(&shared.barrier, 2 * row_bytes<T, kKeyDim>(valid));
  }
  __syncthreads();
  const int row = threadIdx.x % kChunk;
  if (threadIdx.x < kChunk)
    copy_rows<T, kKeyDim>(shared.tiles.key, row_of<T>(p.key, s, head / p.group, step), p.key.step, valid, row, kChunk,
                          &shared.barrier);
  else
    copy_rows<T, kKeyDim>(shared.tiles.query, row_of<T>(p.query, s, head / p.group, step), p.query.step, valid, row,
                          kChunk, &shared.barrier);
  load_gates<T>(shared, p, s, head, step, valid);
  __syncthreads();
  ptx::mbarrier_wait(&shared.barrier, 0);
  float by_key[4][2][4] = {}, by_query[4][2][4] = {};
  if (p.normalize) load_norms(shared);
  triangle_products(shared, by_key, by_query);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (i == warp) check_keys(shared, by_key[i], valid);
  Tf32Factors& made = shared.squares.made;
  const int good = set_weights(shared, p, valid, made.weights);
  const auto rounded = [](float x) { return kFine ? x : to_tf32(x); };
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i > warp) continue;
    if (i < warp) weigh_block<false, kFine>(shared, i, good, by_key[i], by_query[i]);
    if (i == warp) weigh_block<true, kFine>(shared, i, good, by_key[i], by_query[i]);
#pragma unroll
    for (int h = 0; h < 4; ++h)
      *reinterpret_cast<float2*>(&made.attend[16 * warp + lane / 4 + h % 2 * 8][16 * i + h / 2 * 8 + lane % 4 * 2]) =
          make_float2(rounded(by_query[i][h / 2][h % 2 * 2]), rounded(by_query[i][h / 2][h % 2 * 2 + 1]));
  }
  __syncwarp();
  invert_diagonal<kFine>(shared.squares.lower);
  __syncthreads();
  join_blocks<kFine>(shared.squares.lower, shared.beta, good, [&](int block, const float(&x)[2][4]) {
#pragma unroll
    for (int at = 0; at < 8; ++at)
      made.solve[16 * block + at / 4 * 8 + lane % 4 * 2 + at % 2][16 * warp + lane / 4 + at % 4 / 2 * 8] =
          rounded(x[at / 4][at % 4]);
  });
  ptx::fence_async_proxy();
  __syncthreads();
  if (threadIdx.x != 0) return;
  ptx::bulk_store(factors + slot * p.value_heads + head, &made, sizeof(made));
  ptx::tma_store_commit();
  ptx::tma_store_wait_read<0>();
}

}  // namespace tenor::delta
