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

/// Begins to bring a chunk's rows: half of the block's threads keys, the others queries. All threads call.
template <class Shared, class T, int kKeyDim>
__device__ __forceinline__ void load_rows(Shared& shared, ChunkRows<T, kKeyDim>& key, ChunkRows<T, kKeyDim>& query,
                                          const DeviceProblem& p, const ChunkTask& t) {
  if (threadIdx.x == 0) {
    shared.good = t.valid;
    ptx::mbarrier_init(&shared.barrier, 1);
    ptx::mbarrier_init_fence();
    ptx::mbarrier_arrive_expect(&shared.barrier, 2 * row_bytes<T, kKeyDim>(t.valid));
  }
  __syncthreads();
  const bool of_key = threadIdx.x < kChunk;
  const Rows& from = of_key ? p.key : p.query;
  if (threadIdx.x < 2 * kChunk)
    copy_rows<T, kKeyDim>(of_key ? key : query, row_of<T>(from, t.s, t.head / p.group, t.step), from.step, t.valid,
                          threadIdx.x % kChunk, kChunk, &shared.barrier);
}

/// What a square holds: rounded to TF32 but where kFine.
template <bool kFine>
__device__ __forceinline__ float square_element(float x) {
  return kFine ? x : to_tf32(x);
}

/// A warp's rows of L and of Q K^T from products, decayed and weighed.
template <bool kFine, class Shared>
__device__ __forceinline__ void weigh_rows(Shared& shared, int good, float (&by_key)[4][2][4],
                                           float (&by_query)[4][2][4]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i > warp) continue;
    if (i < warp) weigh_block<false, kFine>(shared, i, good, by_key[i], by_query[i]);
    if (i == warp) weigh_block<true, kFine>(shared, i, good, by_key[i], by_query[i]);
#pragma unroll
    for (int h = 0; h < 4; ++h)
      *reinterpret_cast<float2*>(
          &shared.squares.made.attend[16 * warp + lane / 4 + h % 2 * 8][16 * i + h / 2 * 8 + lane % 4 * 2]) =
          make_float2(square_element<kFine>(by_query[i][h / 2][h % 2 * 2]),
                      square_element<kFine>(by_query[i][h / 2][h % 2 * 2 + 1]));
  }
}

/// (I + L)^-1 beta to a square; four warps call.
template <bool kFine>
__device__ __forceinline__ void make_solve(const float (&lower)[kChunk][kPad], float (&solve)[kChunk][kSquarePitch],
                                           const float (&betas)[kChunk], int good) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  join_blocks<kFine>(lower, betas, good, [&](int block, const float(&x)[2][4]) {
#pragma unroll
    for (int at = 0; at < 8; ++at)
      solve[16 * block + at / 4 * 8 + lane % 4 * 2 + at % 2][16 * warp + lane / 4 + at % 4 / 2 * 8] =
          square_element<kFine>(x[at / 4][at % 4]);
  });
}

/// Dynamic shared memory: Tf32PrepareShared.
template <class T, int kKeyDim>
__global__ void __launch_bounds__(kPrepareThreads)
    prepare_tf32_kernel(const __grid_constant__ DeviceProblem p, Tf32Factors* factors) {
  if constexpr (!ptx::kIsHopper) return;  // in PTX for other devices the kernel is empty, and never launched
  constexpr bool kFine = kIsFine<T>;
  extern __shared__ __align__(1024) unsigned char prepare_memory[];
  auto& shared = *reinterpret_cast<Tf32PrepareShared<T, kKeyDim>*>(prepare_memory);
  ptx::launch_dependents();
  const ChunkTask t(p, block_slot(p));
  if (t.valid <= 0) return;
  const int warp = threadIdx.x / 32;
  clear_rows<T, kKeyDim>(shared.tiles.key, t.valid, threadIdx.x, kPrepareThreads);
  clear_rows<T, kKeyDim>(shared.tiles.query, t.valid, threadIdx.x, kPrepareThreads);
  load_rows<Tf32PrepareShared<T, kKeyDim>, T, kKeyDim>(shared, shared.tiles.key, shared.tiles.query, p, t);
  load_gates<T>(shared, p, t.s, t.head, t.step, t.valid);
  __syncthreads();
  ptx::mbarrier_wait(&shared.barrier, 0);
  float by_key[4][2][4] = {}, by_query[4][2][4] = {};
  if (p.normalize) load_norms(shared);
  triangle_products(shared, by_key, by_query);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (i == warp) check_keys(shared, by_key[i], t.valid);
  Tf32Factors& made = shared.squares.made;
  const int good = set_weights(shared, p, t.valid, made.weights);
  weigh_rows<kFine>(shared, good, by_key, by_query);
  __syncwarp();
  invert_diagonal<kFine>(shared.squares.lower);
  __syncthreads();
  make_solve<kFine>(shared.squares.lower, made.solve, shared.beta, good);
  store_factors(factors, p, t, made);
}

}  // namespace tenor::delta
