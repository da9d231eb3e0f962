// The chunk form's first kernel where each channel of the keys has a decay of its own (Kimi Delta Attention): what does
// not wait for the state, with the decays inside the products. G's differences are sums of what lies between: decays
// are summed up within blocks of 16 steps alone, so that a difference that does not vanish is a sum of small numbers.
//
// Between two blocks of 16 steps, row i's block w and column j's block m < w, exp(G_i - G_j) is exp of i's sum within w
// times exp of what follows j in m times exp of the blocks between; no factor exceeds 1, and none looks past i. Within
// a block every pair takes its own exponent.
#pragma once

#include "src/ops/gated_delta/chunk_prepare.cuh"

namespace tenor::delta {

inline constexpr int kChannelThreads = 256;
inline constexpr int kBlock = 16;                // steps
inline constexpr int kBlocks = kChunk / kBlock;  // of a chunk
inline constexpr int kHalf = kBlock / 2;
inline constexpr int kPairs = kHalf / 2 + 1;  // of steps that a lane multiplies, at most

/// What the first kernel leaves for the second, a chunk and value head each. The tiles of the keys and queries are
/// decayed, scaled and rounded: exp(G) k, exp(G) q and exp(G_C - G) k.
template <int kKeyDim>
struct ChannelFactors {
  static constexpr int kHalves = kKeyDim / 64;
  unsigned char key[kHalves][kSquareBytes], query[kHalves][kSquareBytes], update[kHalves][kSquareBytes];
  unsigned char attend[kSquareBytes], solve[kSquareBytes];
  float decay[kKeyDim];  ///< exp(G_C)
  static constexpr int kTileBytes = (3 * kHalves + 2) * kSquareBytes;
};

/// Sums of steps' log decays within their blocks, to base 2.
template <int kKeyDim>
using ChannelSums = float[kChunk][kKeyDim + 4];

/// Of a block besides what it makes, the sums, and L and its inverse (`lower`).
template <int kKeyDim_>
struct ChannelNumbers {
  static constexpr int kKeyDim = kKeyDim_;
  float before[kBlocks][kKeyDim], after[kBlocks][kKeyDim];  // the sums of all blocks before one, and behind it
  float beta[kChunk], key_norm[kChunk], query_norm[kChunk];
  int good;  // steps before the first whose key, beta or decay is no number
  uint64_t barrier;
};

/// With how keys and queries lie in what it makes: tiles of 64 channels, at first as TMA brings them.
template <int kKeyDim>
struct ChannelShared : ChannelNumbers<kKeyDim> {
  using Element = BFloat16;
  static constexpr bool kFine = false, kHasNorms = true;  ///< norms and the scale go into what is made
  alignas(1024) ChannelFactors<kKeyDim> made;
  union {
    ChannelSums<kKeyDim> sums_;
    float lower[kChunk][kPad];  // when the sums are done with
  };

  __device__ auto& sums() { return sums_; }
  __device__ auto& keys() { return made.key; }
  __device__ auto& queries() { return made.query; }
  __device__ auto& updates() { return made.update; }
  __device__ auto& decays() { return made.decay; }
  /// Elements [channel, channel + 8) of a row.
  template <class Tiles>
  static __device__ __forceinline__ auto& eight(Tiles& tiles, int row, int channel) {
    return *reinterpret_cast<cuda::Pack<BFloat16, 8>*>(tiles[channel / 64] + tile_offset(row, channel % 64 / 8));
  }
  template <class Tiles>
  static __device__ __forceinline__ float2 two(const Tiles& tiles, int row, int channel) {
    const uint32_t two =
        *reinterpret_cast<const uint32_t*>(tiles[channel / 64] + tile_offset(row, channel % 64 / 8) + channel % 8 * 2);
    return make_float2(__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u));
  }
  __device__ __forceinline__ void set_attend(int i, int j, float x) {
    *reinterpret_cast<BFloat16*>(made.attend + tile_offset(i, j / 8) + j % 8 * 2) = cuda::convert<BFloat16>(x);
  }
  __device__ __forceinline__ void clear_attend() {
    for (int at = threadIdx.x; at < kSquareBytes / 16; at += kChannelThreads)
      reinterpret_cast<uint4*>(made.attend)[at] = make_uint4(0, 0, 0, 0);
  }
};

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <class Shared>
struct ChannelChunk {
  static constexpr int kKeyDim = Shared::kKeyDim;
  using Element = typename Shared::Element;
  Shared& shared;
  const DeviceProblem& p;
  const ChunkTask& task;

  __device__ __forceinline__ void sum_decays() const {
    constexpr int kSides = kChannelThreads / kKeyDim, kEach = kBlocks / kSides;  // blocks of a thread
    constexpr float kLeastDecay = static_cast<float>(kLeast);
    const int channel = threadIdx.x % kKeyDim, top = threadIdx.x / kKeyDim * kEach * kBlock;
    const float* from = row_of<float>(p.decay, task.s, task.head, task.step) + channel * p.decay.dim;
    float decays[kEach * kBlock];
#pragma unroll
    for (int i = 0; i < kEach * kBlock; ++i) decays[i] = from[min(top + i, task.valid - 1) * p.decay.step];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kEach * kBlock; ++i) {
      if (top + i >= task.valid) decays[i] = 0;
      const float decay = decays[i] < kLeastDecay ? kLeastDecay : decays[i];  // NaN stays
      sum = fmaf(decay, static_cast<float>(kLog2e), i % kBlock == 0 ? 0.0f : sum);
      shared.sums()[top + i][channel] = sum;
      if (i % kBlock == kBlock - 1 && !(sum * 0.0f == 0.0f)) find_bad_decay(top + i - (kBlock - 1), channel);
    }
    const int i = threadIdx.x;
    if (i >= kChunk) return;
    float beta = 0;
    if (i < task.valid)
      beta = p.beta_float ? row_of<float>(p.beta, task.s, task.head, task.step + i)[0]
                          : cuda::widen(row_of<Element>(p.beta, task.s, task.head, task.step + i)[0]);
    if (!(beta * 0.0f == 0.0f)) atomicMin(&shared.good, i);
    shared.beta[i] = beta;
  }

  /// A block's sums are no number: from where on.
  __device__ __noinline__ void find_bad_decay(int top, int channel) const {
    for (int i = top; i < top + kBlock; ++i)
      if (!(shared.sums()[i][channel] * 0.0f == 0.0f)) {
        atomicMin(&shared.good, i);
        return;
      }
  }

  /// Zeros behind the sequence's last step; norms; keys that are no number.
  __device__ __forceinline__ void look_at_rows() const {
    const int row = threadIdx.x / 4, part = threadIdx.x % 4;
    float square[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < kKeyDim / 32; ++i) {
      const int channel = 8 * (4 * i + part);
      auto &k = Shared::eight(shared.keys(), row, channel), &q = Shared::eight(shared.queries(), row, channel);
      if (row >= task.valid) k = q = {};
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float a = cuda::widen(k.at[j]), b = cuda::widen(q.at[j]);
        square[0] = fmaf(a, a, square[0]), square[1] = fmaf(b, b, square[1]);
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j)
      square[j] += __shfl_xor_sync(~0u, square[j], 1), square[j] += __shfl_xor_sync(~0u, square[j], 2);
    if (part != 0) return;
    if (!(square[0] * 0.0f == 0.0f)) atomicMin(&shared.good, row);
    shared.key_norm[row] = p.normalize ? rsqrtf(square[0] + 1e-6f) : 1.0f;
    shared.query_norm[row] = (p.normalize ? rsqrtf(square[1] + 1e-6f) : 1.0f) * static_cast<float>(p.scale);
  }

  __device__ __forceinline__ float block_sum(int block, int channel) const {
    return shared.sums()[block * kBlock + kBlock - 1][channel];
  }
  /// Sums of whole blocks, and the chunk's decay.
  __device__ __forceinline__ void sum_blocks() const {
    const int channel = threadIdx.x;
    if (channel >= kKeyDim) return;
    float before = 0, after = 0;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      shared.before[b][channel] = before, shared.after[kBlocks - 1 - b][channel] = after;
      before += block_sum(b, channel), after += block_sum(kBlocks - 1 - b, channel);
    }
    shared.decays()[channel] = exp2_fast(before);
  }

  /// Calls fn(row, channel) for this thread's pieces of eight channels.
  template <class F>
  __device__ __forceinline__ void for_each_piece(F&& fn) const {
#pragma unroll 1
    for (int at = threadIdx.x; at < kChunk * kKeyDim / 8; at += kChannelThreads)
      fn(at / (kKeyDim / 8), at % (kKeyDim / 8) * 8);
  }

  /// Keys with the decay of what follows them in their block, where the decayed keys of the update will be.
  __device__ __forceinline__ void decay_columns() const {
    for_each_piece([&](int row, int channel) {
      const auto k = Shared::eight(shared.keys(), row, channel);
      cuda::Pack<Element, 8> to;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float after = shared.sums()[row | (kBlock - 1)][channel + j] - shared.sums()[row][channel + j];
        to.at[j] = cuda::convert<Element>(cuda::widen(k.at[j]) * exp2_fast(after));
      }
      Shared::eight(shared.updates(), row, channel) = to;
    });
  }

  /// What the second kernel reads of keys and queries, in place of what was brought.
  __device__ __forceinline__ void decay_rows() const {
    const int good = shared.good;
    for_each_piece([&](int row, int channel) {
      auto &key = Shared::eight(shared.keys(), row, channel), &query = Shared::eight(shared.queries(), row, channel);
      float own_sums[8], last[8], before[8], after[8];
      load_sums(own_sums, row, channel), load_sums(last, row | (kBlock - 1), channel);
      load_floats(before, &shared.before[row / kBlock][channel]),
          load_floats(after, &shared.after[row / kBlock][channel]);
#pragma unroll
      for (int j = 0; j < 8; ++j) before[j] += own_sums[j], after[j] += last[j] - own_sums[j];
      const float key_norm = Shared::kHasNorms ? shared.key_norm[row] : 1.0f,
                  query_norm = Shared::kHasNorms ? shared.query_norm[row] : 1.0f;
      const cuda::Pack<Element, 8> k = key, q = query;
      cuda::Pack<Element, 8> to[3];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float own = cuda::widen(k.at[j]) * key_norm, gone = exp2_fast(before[j]);
        to[0].at[j] = cuda::convert<Element>(row >= good && row < task.valid ? NAN : own * gone);
        to[1].at[j] = cuda::convert<Element>(cuda::widen(q.at[j]) * query_norm * gone);
        to[2].at[j] = cuda::convert<Element>(row >= good ? 0.0f : own * exp2_fast(after[j]));
      }
      key = to[0], query = to[1], Shared::eight(shared.updates(), row, channel) = to[2];
    });
  }

  __device__ __forceinline__ float2 sums_of(int row, int channel) const {
    return *reinterpret_cast<const float2*>(&shared.sums()[row][channel]);
  }
  struct Corner {
    float2 row, key;
  };
  /// Two channels of a step of a block's first half, and of the step eight later in `rows`: each decays towards the
  /// middle.
  template <class Rows>
  __device__ __forceinline__ Corner corner_factors(const Rows& rows, int column, int channel) const {
    const int row = column + kHalf;
    const float2 middle = sums_of((column | (kHalf - 1)), channel), below = sums_of(row, channel),
                 above = sums_of(column, channel), x = Shared::two(rows, row, channel),
                 key = Shared::two(shared.keys(), column, channel);
    return {make_float2(x.x * exp2_fast(below.x - middle.x), x.y * exp2_fast(below.y - middle.y)),
            make_float2(key.x * exp2_fast(middle.x - above.x), key.y * exp2_fast(middle.y - above.y))};
  }

  /// Which steps of a block's diagonal lane `r` of eight multiplies t-th: four lanes of each half of its rows, whose
  /// rows i and 7 - i have nine pairs together.
  static __device__ __forceinline__ int2 pair(int r, int t) {
    const int i = r % 4, half = r / 4 * kHalf;
    return t <= i ? make_int2(half + i, half + t) : make_int2(half + kHalf - 1 - i, half + t - i - 1);
  }
  struct Row {
    float sums[8], key[8], query[8];
  };
  template <class Rows>
  static __device__ __forceinline__ void load_eight(float (&to)[8], Rows& rows, int row, int channel) {
    const auto x = Shared::eight(rows, row, channel);
#pragma unroll
    for (int j = 0; j < 8; ++j) to[j] = cuda::widen(x.at[j]);
  }
  static __device__ __forceinline__ void load_floats(float (&to)[8], const float* from) {
#pragma unroll
    for (int j = 0; j < 8; j += 4) *reinterpret_cast<float4*>(&to[j]) = *reinterpret_cast<const float4*>(from + j);
  }
  __device__ __forceinline__ void load_sums(float (&to)[8], int row, int channel) const {
    load_floats(to, &shared.sums()[row][channel]);
  }
  __device__ __forceinline__ void load_row(Row& to, int row, int channel) const {
    load_sums(to.sums, row, channel);
    load_eight(to.key, shared.keys(), row, channel), load_eight(to.query, shared.queries(), row, channel);
  }

  /// Pairs `from` on of block w's diagonal: sums over the channels, of a quarter of them by each eight lanes.
  __device__ __forceinline__ void diagonal_products(float (&by_key)[kPairs], float (&by_query)[kPairs], int w,
                                                    int from) const {
    const int r = threadIdx.x % 8, half = r / 4 * kHalf, top = kBlock * w, first = threadIdx.x % 32 / 8 * (kKeyDim / 4);
#pragma unroll 1
    for (int channel = first; channel < first + kKeyDim / 4; channel += 8) {
      Row rows[2];
      load_row(rows[0], top + half + r % 4, channel), load_row(rows[1], top + half + kHalf - 1 - r % 4, channel);
#pragma unroll
      for (int t = 0; t < kPairs; ++t) {
        const bool upper = from + t <= r % 4;
        float sums[8], key[8];
        const int j = top + min(pair(r, from + t).y, kBlock - 1);
        load_sums(sums, j, channel), load_eight(key, shared.keys(), j, channel);
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          const float x = key[c] * exp2_fast((upper ? rows[0].sums[c] : rows[1].sums[c]) - sums[c]);
          by_key[t] = fmaf(upper ? rows[0].key[c] : rows[1].key[c], x, by_key[t]);
          by_query[t] = fmaf(upper ? rows[0].query[c] : rows[1].query[c], x, by_query[t]);
        }
      }
    }
#pragma unroll
    for (int t = 0; t < kPairs; ++t)
#pragma unroll
      for (int mask = 8; mask < 32; mask *= 2) {
        by_key[t] += __shfl_xor_sync(~0u, by_key[t], mask);
        by_query[t] += __shfl_xor_sync(~0u, by_query[t], mask);
      }
  }

  /// The diagonal block's elements, weighed; L's diagonal and what lies above stays as clear_squares left it.
  __device__ __forceinline__ void write_diagonal(const float (&by_key)[kPairs], const float (&by_query)[kPairs], int w,
                                                 int from) const {
    if (threadIdx.x % 32 >= 8) return;
#pragma unroll
    for (int t = 0; t < kPairs; ++t) {
      const int2 at = pair(threadIdx.x % 8, from + t);
      const int i = kBlock * w + at.x, j = kBlock * w + at.y;
      if (from + t > kHalf || i >= shared.good) continue;
      if (j < i) shared.lower[i][j] = shared.beta[i] * shared.key_norm[i] * shared.key_norm[j] * by_key[t];
      shared.set_attend(i, j, shared.query_norm[i] * shared.key_norm[j] * by_query[t]);
    }
  }

  /// The corner of the diagonal's block: L, or Q K^T rounded.
  __device__ __forceinline__ void write_corner(const float (&corner)[4], int w, bool query) const {
    const int lane = threadIdx.x % 32, i = kBlock * w + kHalf + lane / 4;
    if (i >= shared.good) return;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int j = kBlock * w + lane % 4 * 2 + c;
      const float x = corner[2 + c] * shared.key_norm[j];
      if (query)
        shared.set_attend(i, j, shared.query_norm[i] * x);
      else
        shared.lower[i][j] = shared.beta[i] * shared.key_norm[i] * x;
    }
  }

  /// Blocks left of the diagonal: L, to TF32 but where kFine, or Q K^T rounded.
  __device__ __forceinline__ void write_blocks(const float (&by)[kBlocks - 1][2][4], int w, bool query) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < kBlocks - 1; ++m) {
      if (m >= w) continue;
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const int i = kBlock * w + lane / 4 + c % 4 / 2 * 8, j = kBlock * m + c / 4 * 8 + lane % 4 * 2 + c % 2;
        if (i >= shared.good) continue;
        const float x = by[m][c / 4][c % 4] * shared.key_norm[j];
        const float lower = shared.beta[i] * shared.key_norm[i] * x;
        if (query)
          shared.set_attend(i, j, shared.query_norm[i] * x);
        else
          shared.lower[i][j] = Shared::kFine ? lower : to_tf32(lower);
      }
    }
  }

  __device__ __forceinline__ void clear_squares() const {
    shared.clear_attend();
    for (int at = threadIdx.x; at < kChunk * kPad; at += kChannelThreads) (&shared.lower[0][0])[at] = 0;
  }

  /// L and Q K^T, and the rows that the second kernel reads, of what has been brought; L's diagonal blocks inverted.
  __device__ __forceinline__ void make() const {
    look_at_rows();
    __syncthreads();
    decay_columns();
    __syncthreads();
    const int warp = threadIdx.x / 32, w = warp % kBlocks, from = warp / kBlocks * kPairs;
    const bool query = warp >= kBlocks;
    float by_key[kPairs] = {}, by_query[kPairs] = {}, corner[4] = {}, by[kBlocks - 1][2][4] = {};
    const auto& rows = query ? shared.queries() : shared.keys();
    sum_blocks();
    diagonal_products(by_key, by_query, w, from);
    corner_products(*this, corner, rows, w);
    block_products(*this, by, rows, w);
    __syncthreads();
    decay_rows();
    __syncthreads();  // the sums are done with
    clear_squares();
    __syncthreads();
    write_blocks(by, w, query);
    write_corner(corner, w, query);
    write_diagonal(by_key, by_query, w, from);
    __syncthreads();
    if (warp < kBlocks) invert_diagonal<Shared::kFine>(shared.lower);
    __syncthreads();
  }
};

/// by[m]: rows of block w times the keys of block m, for m < w. A left factor holds the decay since the end of block
/// m: at first since the block before w, then of one block more each time.
template <int kKeyDim, class Tiles>
__device__ __forceinline__ void block_products(const ChannelChunk<ChannelShared<kKeyDim>>& chunk,
                                               float (&by)[kBlocks - 1][2][4], const Tiles& tiles, int w) {
  if (w == 0) return;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < kKeyDim / 16; ++k) {
    float2 x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = kBlock * w + lane / 4 + i % 2 * 8, channel = 16 * k + lane % 4 * 2 + i / 2 * 8;
      const float2 sums = chunk.sums_of(row, channel);
      x[i] = chunk.shared.two(tiles, row, channel);
      x[i].x *= exp2_fast(sums.x), x[i].y *= exp2_fast(sums.y);
    }
#pragma unroll
    for (int m = kBlocks - 2; m >= 0; --m) {
      if (m >= w) continue;
      uint32_t a[4], b[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = pack_bf16(x[i].x, x[i].y);
      ptx::ldmatrix_x4(b, ptx::shared_address(chunk.shared.updates()[k / 4]) +
                              tile_offset(kBlock * m + lane % 8 + lane / 16 * 8, k % 4 * 2 + lane / 8 % 2));
#pragma unroll
      for (int h = 0; h < 2; ++h) ptx::mma_m16n8k16<BFloat16>(by[m][h], a[0], a[1], a[2], a[3], b[2 * h], b[2 * h + 1]);
      if (m == 0) continue;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float2 block = chunk.sums_of(kBlock * m + kBlock - 1, 16 * k + lane % 4 * 2 + 8 * h);
        const float2 decay = make_float2(exp2_fast(block.x), exp2_fast(block.y));
#pragma unroll
        for (int i = 0; i < 2; ++i) x[2 * h + i].x *= decay.x, x[2 * h + i].y *= decay.y;
      }
    }
  }
}

/// Of block w's diagonal, the last eight rows times the first eight columns, in to[2] and to[3] of accumulators.
template <int kKeyDim, class Tiles>
__device__ __forceinline__ void corner_products(const ChannelChunk<ChannelShared<kKeyDim>>& chunk, float (&to)[4],
                                                const Tiles& tiles, int w) {
  const int lane = threadIdx.x % 32, top = kBlock * w, column = top + lane / 4;
#pragma unroll
  for (int k = 0; k < kKeyDim / 16; ++k) {
    uint32_t a[2], b[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const auto [x, key] = chunk.corner_factors(tiles, column, 16 * k + lane % 4 * 2 + 8 * h);
      a[h] = pack_bf16(x.x, x.y), b[h] = pack_bf16(key.x, key.y);
    }
    ptx::mma_m16n8k16<BFloat16>(to, 0u, a[0], 0u, a[1], b[0], b[1]);
  }
}

/// Blocks: value heads fastest, then slots of the slice's chunks.
template <int kKeyDim>
__global__ void __launch_bounds__(kChannelThreads, 2)
    prepare_channels_kernel(const __grid_constant__ DeviceProblem p, const __grid_constant__ ChunkMaps maps,
                            ChannelFactors<kKeyDim>* factors, ChunkSlice slice) {
  if constexpr (!ptx::kIsHopper) return;  // in PTX for other devices the kernel is empty, and never launched
  extern __shared__ __align__(1024) unsigned char channel_memory[];
  auto& shared = *reinterpret_cast<ChannelShared<kKeyDim>*>(channel_memory);
  ptx::launch_dependents();
  const ChunkTask t(p, slice.slot(block_slot(p)));
  if (t.valid <= 0) return;
  if (threadIdx.x == 0) load_tiles(shared, shared.made.key, shared.made.query, p, maps, t);
  __syncthreads();
  const ChannelChunk<ChannelShared<kKeyDim>> chunk{shared, p, t};
  chunk.sum_decays();
  ptx::mbarrier_wait(&shared.barrier, 0);
  chunk.make();
  if (threadIdx.x < 32 * kBlocks) make_solve(shared.lower, shared.made.solve, shared.beta, shared.good);
  store_factors(factors, p, t, shared.made);
  end_slice(slice);
}

}  // namespace tenor::delta
