// The chunk form's first kernel: everything that does not wait for the state. A block makes one chunk's triangular
// factors for one value head: the products K K^T and Q K^T on the tensor cores, and the inverse of I + L from inverses
// of 16 x 16 blocks, found by substitution in float32 and joined by TF32 products, a warp a column of blocks.
#pragma once

#include "src/ops/gated_delta/chunk_tiles.cuh"

namespace tenor::delta {

inline constexpr int kPrepareThreads = 128;
inline constexpr int kPad = 68;         // floats of a row of L: pairs of eight rows in different banks
inline constexpr double kLeast = -200;  // a decay below is 0 in float32
inline constexpr double kLog2e = 1.4426950408889634;

template <int kKeyDim>
struct PrepareShared {
  struct Tiles {
    alignas(1024) unsigned char key[kKeyDim / 64][kSquareBytes], query[kKeyDim / 64][kSquareBytes];
  };
  struct Squares {
    alignas(128) ChunkFactors made;
    float lower[kChunk][kPad];  // L, its strict triangle; then the diagonal blocks' inverses
  };
  union {  // the squares when the products are done
    Tiles tiles;
    Squares squares;
  };
  double sums[kChunk];  // of log decays
  // Per pair of steps: two parts of both sums to base 2, the leading ones and the rest, less the keys' norms.
  float4 columns[kChunk / 2];
  float2 rows[kChunk];  // the two parts of a step's sum
  float beta[kChunk], key_norm[kChunk], query_norm[kChunk];
  int good;  // steps before the first whose key, beta or decay is no number
  uint64_t barrier;
};

/// Running sums of a chunk's log decays by the first warp, beta by the next two; steps from `valid` on change nothing.
template <class T, class Shared>
__device__ __forceinline__ void load_gates(Shared& shared, const DeviceProblem& p, const DeviceSequence& s,
                                           int64_t head, int64_t step, int valid) {
  const int t = threadIdx.x;
  if (t >= 32 && t < 96) {
    const int i = t - 32;
    float beta = 0;
    if (i < valid)
      beta = p.beta_float ? row_of<float>(p.beta, s, head, step + i)[0]
                          : cuda::convert<float>(row_of<T>(p.beta, s, head, step + i)[0]);
    shared.beta[i] = beta;
  }
  if (t >= 32) return;
  double pair[2];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int i = 2 * t + j;
    const double decay = i < valid ? row_of<float>(p.decay, s, head, step + i)[0] : 0.0;
    pair[j] = decay < kLeast ? kLeast : decay;  // NaN stays
  }
  double sum = pair[0] + pair[1];
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const double before = __shfl_up_sync(~0u, sum, d);
    if (t >= d) sum += before;
  }
  const double before = __shfl_up_sync(~0u, sum, 1), first = (t == 0 ? 0 : before) + pair[0];
  shared.sums[2 * t] = first;  // not sum - pair[1], which a NaN would reach
  shared.sums[2 * t + 1] = first + pair[1];
}

/// 1 / norms of the keys' and queries' rows.
template <int kKeyDim>
__device__ __forceinline__ void load_norms(PrepareShared<kKeyDim>& shared) {
  const int row = threadIdx.x / 2, half = threadIdx.x % 2;
  float square[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < kKeyDim / 16; ++i) {
    const uint32_t at = tile_offset(row, i % 4 * 2 + half);
    const auto k = *reinterpret_cast<const cuda::Pack<BFloat16, 8>*>(shared.tiles.key[i / 4] + at),
               q = *reinterpret_cast<const cuda::Pack<BFloat16, 8>*>(shared.tiles.query[i / 4] + at);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float a = cuda::convert<float>(k.at[j]), b = cuda::convert<float>(q.at[j]);
      square[0] = fmaf(a, a, square[0]), square[1] = fmaf(b, b, square[1]);
    }
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) square[j] += __shfl_xor_sync(~0u, square[j], 1);
  if (half == 0) shared.key_norm[row] = rsqrtf(square[0] + 1e-6f), shared.query_norm[row] = rsqrtf(square[1] + 1e-6f);
}

/// Takes notice of a key that is no number: the diagonal of K K^T shows it.
template <class Shared>
__device__ __forceinline__ void check_keys(Shared& shared, const float (&by_key)[2][4], int valid) {
  const int lane = threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2;
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int i = 16 * (threadIdx.x / 32) + row + 8 * h;
      if (column + c == row && i < valid && !(by_key[h][2 * h + c] * 0.0f == 0.0f)) atomicMin(&shared.good, i);
    }
}

/// What decays a pair of steps, and what the second kernel weighs steps by: 64 threads, a step each.
template <class Shared>
__device__ __forceinline__ void make_weights(Shared& shared, bool normalize, float scale, int valid,
                                             float (&weights)[4]) {
  const int i = threadIdx.x;
  const float key_norm = normalize ? shared.key_norm[i] : 1.0f, query_norm = normalize ? shared.query_norm[i] : 1.0f;
  const double sum = shared.sums[i] * kLog2e, end = shared.sums[kChunk - 1] * kLog2e;
  const float lead = static_cast<float>(sum), rest = static_cast<float>(sum - lead);
  shared.rows[i] = make_float2(lead, rest);
  float* column = reinterpret_cast<float*>(&shared.columns[i / 2]) + i % 2;
  column[0] = lead, column[2] = normalize ? rest - log2f(key_norm) : rest;
  shared.key_norm[i] = shared.beta[i] * key_norm, shared.query_norm[i] = scale * query_norm;  // L's and Q K^T's rows
  const float gone = exp2f(lead), late = exp2f(static_cast<float>(end - sum));
  const bool inside = i < valid;
  if (inside && !((lead + shared.beta[i]) * 0.0f == 0.0f)) atomicMin(&shared.good, i);
  weights[0] = inside ? gone * key_norm : 0.0f, weights[1] = inside ? gone * query_norm * scale : 0.0f;
  weights[2] = inside ? late * key_norm : 0.0f, weights[3] = exp2f(static_cast<float>(end));
}

/// The weights into the factors, NaN from the first step on that is no number: steps from there on take no part, and
/// the second kernel finds NaN in their weights. Says which one that is. All threads call, done with the tiles.
template <class Shared>
__device__ __forceinline__ int set_weights(Shared& shared, const DeviceProblem& p, int valid, float (&to)[4][kChunk]) {
  float weights[4];
  __syncthreads();
  if (threadIdx.x < kChunk) make_weights(shared, p.normalize, static_cast<float>(p.scale), valid, weights);
  __syncthreads();
  const int good = shared.good, t = threadIdx.x;
  if (t < kChunk)
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i][t] = good < valid && (i == 3 || (t >= good && t < valid)) ? NAN : weights[i];
  return good;
}

/// Rows 16 w to 16 w + 15 of K K^T and Q K^T up to the diagonal's block: warp w's, eight columns a tile.
template <int kKeyDim>
__device__ __forceinline__ void triangle_products(const PrepareShared<kKeyDim>& shared, float (&by_key)[4][2][4],
                                                  float (&by_query)[4][2][4]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int k = 0; k < kKeyDim / 16; ++k) {
    const uint32_t key = ptx::shared_address(shared.tiles.key[k / 4]),
                   query = ptx::shared_address(shared.tiles.query[k / 4]);
    uint32_t a[4], q[4];
    const uint32_t own = tile_offset(16 * warp + lane % 16, k % 4 * 2 + lane / 16);
    ptx::ldmatrix_x4(a, key + own);
    ptx::ldmatrix_x4(q, query + own);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      if (n > warp) continue;
      uint32_t b[4];  // sixteen columns: both halves of k for the first eight, then for the others
      ptx::ldmatrix_x4(b, key + tile_offset(16 * n + lane % 8 + lane / 16 * 8, k % 4 * 2 + lane / 8 % 2));
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        ptx::mma_m16n8k16<BFloat16>(by_key[n][h], a[0], a[1], a[2], a[3], b[2 * h], b[2 * h + 1]);
        ptx::mma_m16n8k16<BFloat16>(by_query[n][h], q[0], q[1], q[2], q[3], b[2 * h], b[2 * h + 1]);
      }
    }
  }
}

__device__ __forceinline__ float to_tf32(float x) {
  uint32_t y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return __uint_as_float(y);
}

/// Block n of a warp's rows, decayed and weighed: L, to TF32 left of the diagonal's block but where kFine, and Q K^T.
template <bool kDiagonal, bool kFine, class Shared>
__device__ __forceinline__ void weigh_block(Shared& shared, int n, int valid, float (&by_key)[2][4],
                                            float (&by_query)[2][4]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = 16 * warp + lane / 4 + 8 * half;
    const float2 row = shared.rows[i];
    const float key_weight = shared.key_norm[i], query_weight = shared.query_norm[i];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int j = 16 * n + 8 * h + lane % 4 * 2;
      const float4 column = shared.columns[j / 2];
      const float decay[2] = {exp2f(row.x - column.x + (row.y - column.z)),
                              exp2f(row.x - column.y + (row.y - column.w))};
      float lower[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float& key = by_key[h][2 * half + c];
        float& query = by_query[h][2 * half + c];
        lower[c] = key_weight * decay[c] * key, query = query_weight * decay[c] * query;
        if (i >= valid || (kDiagonal && j + c > i)) query = 0;  // whatever the decay is above the diagonal
        if (i >= valid || (kDiagonal && j + c >= i)) lower[c] = 0;
        if (!kDiagonal && !kFine) lower[c] = to_tf32(lower[c]);
      }
      *reinterpret_cast<float2*>(&shared.squares.lower[i][j]) = make_float2(lower[0], lower[1]);
    }
  }
}

/// Block n of a warp's rows to a tile, rounded.
__device__ __forceinline__ void store_block(unsigned char* tile, int n, const float (&x)[2][4]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   ptx::shared_address(tile) + tile_offset(16 * warp + lane % 16, 2 * n + lane / 16)),
               "r"(pack_bf16(x[0][0], x[0][1])), "r"(pack_bf16(x[0][2], x[0][3])), "r"(pack_bf16(x[1][0], x[1][1])),
               "r"(pack_bf16(x[1][2], x[1][3]))
               : "memory");
}

/// Zeros in a 16 x 16 block of a tile.
__device__ __forceinline__ void clear_block(unsigned char* tile, int row, int column) {
  const int lane = threadIdx.x % 32;
  *reinterpret_cast<uint4*>(tile + tile_offset(16 * row + lane / 2, 2 * column + lane % 2)) = make_uint4(0, 0, 0, 0);
}

/// The inverse of I + L within diagonal block `warp`, in place, to TF32 but where kFine: a lane solves a column.
template <bool kFine>
__device__ __forceinline__ void invert_diagonal(float (&lower)[kChunk][kPad]) {
  const int column = threadIdx.x % 16, block = threadIdx.x / 32;
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const float* row = &lower[16 * block + i][16 * block];
    float value[4] = {i == column ? 1.0f : 0.0f, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 four = *reinterpret_cast<const float4*>(row + j);
      value[0] = fmaf(-four.x, x[j], value[0]);
      if (j + 1 < i) value[1] = fmaf(-four.y, x[j + 1], value[1]);
      if (j + 2 < i) value[2] = fmaf(-four.z, x[j + 2], value[2]);
      if (j + 3 < i) value[3] = fmaf(-four.w, x[j + 3], value[3]);
    }
    x[i] = (value[0] + value[1]) + (value[2] + value[3]);
  }
  __syncwarp();  // all have read
  if (threadIdx.x % 32 < 16)
#pragma unroll
    for (int i = 0; i < 16; ++i) lower[16 * block + i][16 * block + column] = kFine ? x[i] : to_tf32(x[i]);
}

/// d[16 x 8] += a[16 x 8] * b[8 x 8], all TF32. Columns of a and rows of b are taken in the order 0, 2, 4, 6, 1, 3, 5,
/// 7, in which a is what an accumulator holds and b two neighbours in memory.
__device__ __forceinline__ void mma_tf32(float (&d)[4], const float (&a)[4], float2 b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[3])),
        "r"(__float_as_uint(b.x)), "r"(__float_as_uint(b.y)));
}

/// A factor of TF32 products. Where kFine, with what the tensor cores cut off float32 numbers: three products then
/// leave 2^-20 of one at most. (Rounding to the nearest takes five instructions a number on Hopper, cutting off two.)
template <bool kFine, int kCount>
struct Tf32Factor {
  float high[kCount], rest[kFine ? kCount : 1];
  Tf32Factor() = default;
  __device__ __forceinline__ explicit Tf32Factor(const float (&x)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      high[i] = kFine ? x[i] : to_tf32(x[i]);
      if constexpr (kFine) rest[i] = x[i] - __uint_as_float(__float_as_uint(x[i]) & 0xffffe000u);
    }
  }
};
template <bool kFine>
__device__ __forceinline__ void multiply_tf32(float (&d)[4], const Tf32Factor<kFine, 4>& a,
                                              const Tf32Factor<kFine, 2>& b) {
  const float2 high = make_float2(b.high[0], b.high[1]);
  if constexpr (kFine) {
    mma_tf32(d, a.rest, high);
    mma_tf32(d, a.high, make_float2(b.rest[0], b.rest[1]));
  }
  mma_tf32(d, a.high, high);
}

/// to += x * y^T for 16 x 16 blocks, x in accumulators, y in rows of kPad floats; both rounded already unless kFine.
template <bool kFine>
__device__ __forceinline__ void add_block_product(float (&to)[2][4], const float (&x)[2][4], const float* y) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < 2; ++k)
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float2 b = *reinterpret_cast<const float2*>(y + (8 * n + lane / 4) * kPad + 8 * k + lane % 4 * 2);
      if constexpr (kFine)
        multiply_tf32(to[n], Tf32Factor<true, 4>(x[k]), Tf32Factor<true, 2>({b.x, b.y}));
      else
        mma_tf32(to[n], x[k], b);
    }
}

/// Column `warp` of blocks of (I + L)^-1, transposed: X_ij^T = -(sum_m X_mj^T L_im^T) X_ii^T, its columns scaled by
/// beta, is given to `give` with i. Steps from `good` on take no part.
template <bool kFine, class Give>
__device__ __forceinline__ void join_blocks(const float (&lower)[kChunk][kPad], const float (&betas)[kChunk], int good,
                                            Give&& give) {
  const int lane = threadIdx.x % 32, j = threadIdx.x / 32;
  const auto beta_of = [&](int i) { return i < good ? betas[i] : 0.0f; };
  const float beta[2] = {beta_of(16 * j + lane / 4), beta_of(16 * j + lane / 4 + 8)};
  const auto rounded = [](float v) { return kFine ? v : to_tf32(v); };
  float x[4][2][4];
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int c = 0; c < 4; ++c)
      x[0][n][c] = lower[16 * j + 8 * n + lane % 4 * 2 + c % 2][16 * j + lane / 4 + c / 2 * 8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // block row j + i
    if (j + i >= 4) continue;
    if (i > 0) {
      float sum[2][4] = {};
#pragma unroll
      for (int m = 0; m < i; ++m) add_block_product<kFine>(sum, x[m], &lower[16 * (j + i)][16 * (j + m)]);
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[n][c] = rounded(-sum[n][c]), x[i][n][c] = 0;
      add_block_product<kFine>(x[i], sum, &lower[16 * (j + i)][16 * (j + i)]);
    }
    float scaled[2][4];
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c) scaled[n][c] = x[i][n][c] * beta[c / 2], x[i][n][c] = rounded(x[i][n][c]);
    give(j + i, scaled);
  }
}

/// The inverse's column `warp` of blocks, rounded, to a tile.
__device__ __forceinline__ void make_solve(const float (&lower)[kChunk][kPad], unsigned char* solve,
                                           const float (&betas)[kChunk], int good) {
  const int warp = threadIdx.x / 32;
  for (int row = 0; row < warp; ++row) clear_block(solve, row, warp);
  join_blocks<false>(lower, betas, good, [&](int row, const float(&x)[2][4]) {
    TurnedBlock block;
    block.round(x[0], x[1]);
    block.store(solve, 16 * row, 2 * warp);
  });
}

/// The chunk and value head that a first kernel's block makes the factors of. Blocks: value heads fastest, then slots.
struct ChunkTask {
  int64_t head, slot, n;
  DeviceSequence s;
  int64_t step;  ///< the chunk's first one
  int valid;     ///< steps of the chunk; none where the slot is empty
  __device__ __forceinline__ ChunkTask(const DeviceProblem& p, int64_t slot)
      : head(blockIdx.x % static_cast<unsigned>(p.value_heads)),
        slot(slot),
        n(sequence_of(p.sequences, slot)),
        s(p.sequences, n),
        step((slot - first_slot(p.sequences, n)) * kChunk),
        valid(static_cast<int>(min(s.length - step, int64_t{kChunk}))) {}
};
/// Which of the launch's slots a block has.
__device__ __forceinline__ int64_t block_slot(const DeviceProblem& p) {
  return blockIdx.x / static_cast<unsigned>(p.value_heads);
}

/// Begins to bring a chunk's keys and queries by TMA, in halves of 64 channels; one thread's work. What it sets up is
/// ready for the others when the block has met.
template <class Shared, class Tiles>
__device__ __forceinline__ void load_tiles(Shared& shared, Tiles& key, Tiles& query, const DeviceProblem& p,
                                           const ChunkMaps& maps, const ChunkTask& t) {
  shared.good = t.valid;
  ptx::mbarrier_init(&shared.barrier, 1);
  ptx::mbarrier_init_fence();
  ptx::mbarrier_arrive_expect(&shared.barrier, sizeof(key) + sizeof(query));
  const int at = static_cast<int>(t.s.begin + t.step), key_head = static_cast<int>(t.head / p.group),
            batch = static_cast<int>(t.s.batch);
  for (int h = 0; h < static_cast<int>(sizeof(key) / kSquareBytes); ++h) {
    ptx::tma_load_4d(key[h], &maps.key, 64 * h, at, key_head, batch, &shared.barrier);
    ptx::tma_load_4d(query[h], &maps.query, 64 * h, at, key_head, batch, &shared.barrier);
  }
}

/// What the block has made, to its place; all threads call.
template <class Factors>
__device__ __forceinline__ void store_factors(Factors* factors, const DeviceProblem& p, const ChunkTask& t,
                                              const Factors& made) {
  ptx::fence_async_proxy();
  __syncthreads();
  if (threadIdx.x != 0) return;
  ptx::bulk_store(factors + t.slot * p.value_heads + t.head, &made, sizeof(made));
  ptx::tma_store_commit();
  ptx::tma_store_wait_read<0>();
}

/// A later slice's last block ends after the second kernel of the slice before.
__device__ __forceinline__ void end_slice(const ChunkSlice& slice) {
  if (threadIdx.x == 0 && slice.first > 0 && blockIdx.x + 1 == gridDim.x) ptx::wait_for_previous();
}

template <int kKeyDim>
__global__ void __launch_bounds__(kPrepareThreads, 5)
    prepare_kernel(const __grid_constant__ DeviceProblem p, const __grid_constant__ ChunkMaps maps,
                   ChunkFactors* factors, ChunkSlice slice) {
  extern __shared__ __align__(1024) unsigned char prepare_memory[];
  auto& shared = *reinterpret_cast<PrepareShared<kKeyDim>*>(prepare_memory);
  ptx::launch_dependents();
  const ChunkTask t(p, slice.slot(block_slot(p)));
  if (t.valid <= 0) return;
  const int warp = threadIdx.x / 32;
  if (threadIdx.x == 0) load_tiles(shared, shared.tiles.key, shared.tiles.query, p, maps, t);
  load_gates<BFloat16>(shared, p, t.s, t.head, t.step, t.valid);
  __syncthreads();
  ptx::mbarrier_wait(&shared.barrier, 0);
  float by_key[4][2][4] = {}, by_query[4][2][4] = {};
  if (p.normalize) load_norms(shared);
  triangle_products(shared, by_key, by_query);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (i == warp) check_keys(shared, by_key[i], t.valid);
  ChunkFactors& made = shared.squares.made;
  const int good = set_weights(shared, p, t.valid, made.weights);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < warp) weigh_block<false, false>(shared, i, good, by_key[i], by_query[i]);
    if (i == warp) weigh_block<true, false>(shared, i, good, by_key[i], by_query[i]);
    if (i > warp)
      clear_block(made.attend, warp, i);
    else
      store_block(made.attend, i, by_query[i]);
  }
  __syncwarp();
  invert_diagonal<false>(shared.squares.lower);
  __syncthreads();
  make_solve(shared.squares.lower, made.solve, shared.beta, shared.good);
  store_factors(factors, p, t, made);
  end_slice(slice);
}

}  // namespace tenor::delta
