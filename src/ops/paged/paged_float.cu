// The plain kernel's fast form for float32: heads of up to 128 columns that lie in whole accesses of sixteen bytes. A
// block takes splits of the keys of one row and up to kHeads heads that share a key head, so that a key is read once
// for them. Each warp takes every eighth batch of 32 keys by their place in the sequence; the warps' sums are added up
// in the order of the warps. So a row's bits depend on its own keys alone.
#include "src/cuda/launch.h"
#include "src/ops/paged/paged_finish.cuh"
#include "src/ops/paged/paged_general.cuh"

namespace tenor::cuda::paged {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kBatch = 32, kMostColumns = 128;

/// A warp's sums of its keys: lane l holds columns 4 l to 4 l + 3.
template <int kHeads>
struct FloatState {
  float top[kHeads], sum[kHeads], out[kHeads][4];
};
template <int kHeads>
struct FloatShared {
  float top[kWarps][kHeads], sum[kWarps][kHeads];
  float4 out[kWarps][kHeads][32];
};

__device__ __forceinline__ float4 four_at(const float* from, int64_t at, int column, int columns) {
  return at >= 0 && column < columns ? *reinterpret_cast<const float4*>(from + at + column) : float4{};
}
__device__ __forceinline__ int64_t shuffle(int64_t x, int lane) { return __shfl_sync(~0u, x, lane); }

/// Eight lanes hold a row of up to 128 columns, fours of every 32.
struct FloatRow {
  float4 at[4];
  __device__ __forceinline__ void load(const float* from, int64_t offset, int columns) {
#pragma unroll
    for (int i = 0; i < 4; ++i) at[i] = four_at(from, offset, (i * 8 + (threadIdx.x & 7)) * 4, columns);
  }
};
__device__ __forceinline__ float dot(const FloatRow& a, const FloatRow& b) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    sum = fmaf(a.at[i].x, b.at[i].x,
               fmaf(a.at[i].y, b.at[i].y, fmaf(a.at[i].z, b.at[i].z, fmaf(a.at[i].w, b.at[i].w, sum))));
#pragma unroll
  for (int step = 1; step < 8; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return sum;
}

/// The key of a batch whose scores a lane keeps: eight lanes score four keys at a time.
__device__ __forceinline__ int key_of_lane(int lane) { return lane % 8 * 4 + lane / 8; }
__device__ __forceinline__ int lane_of_key(int key) { return key % 4 * 8 + key / 4; }

/// Scores of a batch: of the lane's key, -inf where `at` says that it has none.
template <int kHeads>
__device__ __forceinline__ void score_batch(const General& p, const float* keys, const FloatRow (&query)[kHeads],
                                            int64_t at, float (&s)[kHeads]) {
  constexpr int kTogether = 2;
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int first = 0; first < 8; first += kTogether) {
    FloatRow key[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) key[i].load(keys, shuffle(at, (lane & ~7) | (first + i)), p.dim);
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        const float x = dot(query[h], key[i]);
        if (lane % 8 == first + i) s[h] = x;
      }
  }
  const auto scale = static_cast<float>(p.score_scale), cap = static_cast<float>(p.score_cap);
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    s[h] *= scale;
    if (cap > 0) s[h] = cap * tanhf(s[h] / cap);
    if (at < 0) s[h] = -INFINITY;
  }
}

/// Adds a batch's values. A key of score -inf counts for nothing, whatever its value is.
template <int kHeads>
__device__ __forceinline__ void add_batch(const General& p, const float* values, int64_t at, float (&s)[kHeads],
                                          FloatState<kHeads>& state) {
  constexpr int kTogether = 8;
  const int lane = threadIdx.x & 31;
  bool all = true;
  unsigned seen[kHeads];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    seen[h] = __ballot_sync(~0u, s[h] != -INFINITY), all = all && seen[h] == ~0u;
    float top = s[h];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    top = fmaxf(top, state.top[h]);
    const float base = top == -INFINITY ? 0.0f : top, shrink = expf(state.top[h] - base);
    s[h] = expf(s[h] - base);
    state.top[h] = top, state.sum[h] = fmaf(state.sum[h], shrink, s[h]);
#pragma unroll
    for (float& x : state.out[h]) x *= shrink;
  }
#pragma unroll 1
  for (int first = 0; first < kBatch; first += kTogether) {
    float4 v[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
      v[i] = four_at(values, shuffle(at, lane_of_key(first + i)), lane * 4, p.value_dim);
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        const float weight = __shfl_sync(~0u, s[h], lane_of_key(first + i));
        if (!all && !(seen[h] >> lane_of_key(first + i) & 1)) continue;
        float(&out)[4] = state.out[h];
        out[0] = fmaf(weight, v[i].x, out[0]), out[1] = fmaf(weight, v[i].y, out[1]);
        out[2] = fmaf(weight, v[i].z, out[2]), out[3] = fmaf(weight, v[i].w, out[3]);
      }
  }
}

/// A warp's batches of keys [begin, end).
template <int kHeads>
__device__ __forceinline__ FloatState<kHeads> attend(const General& p, const FloatRow (&query)[kHeads],
                                                     const int* table, int kv_head, int begin, int end) {
  FloatState<kHeads> state;
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    state.top[h] = -INFINITY, state.sum[h] = 0;
#pragma unroll
    for (float& x : state.out[h]) x = 0;
  }
  const float *keys = static_cast<const float*>(p.k) + kv_head * p.k_at[2],
              *values = static_cast<const float*>(p.v) + kv_head * p.v_at[2];
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, first = begin / kBatch, skip = warp - first % kWarps;
  for (int batch = first + (skip < 0 ? skip + kWarps : skip); batch * kBatch < end; batch += kWarps) {
    const int key = batch * kBatch + key_of_lane(lane);
    int64_t k_at = -1, v_at = -1;
    if (key >= begin && key < end) {
      const int64_t number = key / p.page_size, row = key - number * p.page_size, page = table[number];
      k_at = page * p.k_at[0] + row * p.k_at[1], v_at = page * p.v_at[0] + row * p.v_at[1];
    }
    float s[kHeads];
    score_batch<kHeads>(p, keys, query, k_at, s);
    add_batch<kHeads>(p, values, v_at, s, state);
  }
#pragma unroll
  for (int h = 0; h < kHeads; ++h)
#pragma unroll
    for (int step = 16; step > 0; step /= 2) state.sum[h] += __shfl_xor_sync(~0u, state.sum[h], step);
  return state;
}

/// Columns [4 l, 4 l + 4) of lane l of one head: its sums over the block's warps, stored as `whole` says.
template <int kHeads>
__device__ __forceinline__ void finish_head(const General& p, const FloatShared<kHeads>& shared, int head,
                                            const Place& at, int split, bool whole) {
  const int lane = threadIdx.x & 31;
  float top = -INFINITY, sum = 0, out[4] = {};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) top = fmaxf(top, shared.top[w][head]);
  const float base = top == -INFINITY ? 0.0f : top;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float weight = expf(shared.top[w][head] - base);
    const float4 x = shared.out[w][head][lane];
    sum = fmaf(weight, shared.sum[w][head], sum);
    out[0] = fmaf(weight, x.x, out[0]), out[1] = fmaf(weight, x.y, out[1]);
    out[2] = fmaf(weight, x.z, out[2]), out[3] = fmaf(weight, x.w, out[3]);
  }
  if (whole)
    write_columns<float>(p, at, lane * 4, out, top, sum);
  else
    write_part(p, part_of(p, at) + split, lane * 4, out, top, sum);
}

template <int kHeads>
__global__ void __launch_bounds__(kThreads) float_kernel(const __grid_constant__ General p) {
  __shared__ FloatShared<kHeads> shared;
  const int chunks = (p.group + kHeads - 1) / kHeads, unit = static_cast<int>(blockIdx.x) % (p.kv_heads * chunks),
            row = static_cast<int>(blockIdx.x) / (p.kv_heads * chunks), kv_head = unit / chunks,
            first = kv_head * p.group + unit % chunks * kHeads, past = (kv_head + 1) * p.group;
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  const GeneralSplits splits = general_splits(p, row);
  FloatRow query[kHeads];
#pragma unroll
  for (int h = 0; h < kHeads; ++h)
    query[h].load(static_cast<const float*>(p.q), row * p.q_row + min(first + h, past - 1) * p.q_head, p.dim);
  const int* table = p.ids[row] < 0 ? nullptr : p.tables + p.ids[row] * p.table_stride;
  const bool whole = p.most_splits == 1;
  for (int n = splits.first + static_cast<int>(blockIdx.y); n < splits.last || (whole && n == splits.first);
       n += gridDim.y) {
    const Range keys = splits.keys(n);
    const FloatState<kHeads> state = attend<kHeads>(p, query, table, kv_head, keys.begin, keys.end);
    __syncthreads();  // the split before has been read
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      shared.out[warp][h][lane] = make_float4(state.out[h][0], state.out[h][1], state.out[h][2], state.out[h][3]);
      if (lane == 0) shared.top[warp][h] = state.top[h], shared.sum[warp][h] = state.sum[h];
    }
    __syncthreads();
    if (warp >= kHeads || first + warp >= past) continue;
    finish_head<kHeads>(p, shared, warp, {row, first + warp}, n, whole);
  }
}

/// Whether rows of one operand lie in whole accesses.
bool in_fours(const void* data, std::initializer_list<int64_t> strides) {
  bool fits = reinterpret_cast<uintptr_t>(data) % 16 == 0;
  for (const int64_t stride : strides) fits = fits && stride % 4 == 0;
  return fits;
}

template <int kHeads>
void launch_heads(const char* op, const General& p, int slots, Device device) {
  const int chunks = (p.group + kHeads - 1) / kHeads;
  const Grid grid{dim3(static_cast<unsigned>(p.rows) * p.kv_heads * chunks, slots), dim3(kThreads)};
  launch(op, float_kernel<kHeads>, grid, device, p);
}

}  // namespace

bool takes_float(const General& p) {
  return p.tail_dim == 0 && p.dim % 4 == 0 && p.value_dim % 4 == 0 && std::max(p.dim, p.value_dim) <= kMostColumns &&
         p.q_col == 1 && p.k_at[3] == 1 && p.v_at[3] == 1 && in_fours(p.q, {p.q_row, p.q_head}) &&
         in_fours(p.k, {p.k_at[0], p.k_at[1], p.k_at[2]}) && in_fours(p.v, {p.v_at[0], p.v_at[1], p.v_at[2]});
}

void launch_float(const char* op, const General& p, Device device) {
  const int heads = p.group >= 3 ? 4 : p.group, pairs = p.rows * p.kv_heads * ((p.group + heads - 1) / heads),
            slots = std::clamp(8 * multiprocessors(device) / std::max(pairs, 1), 1, p.most_splits);
  if (heads == 1) return launch_heads<1>(op, p, slots, device);
  heads == 2 ? launch_heads<2>(op, p, slots, device) : launch_heads<4>(op, p, slots, device);
}

}  // namespace tenor::cuda::paged
