// Partial states of a row's splits become its result.

#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/ops/paged/paged_launch.h"

namespace tenor::cuda::paged {
namespace {

constexpr int kMergeWarps = 4;

/// What a warp adds up of a (row, head): kVectors times kWidth neighbouring columns a lane, from column `first` on.
template <int kVectors_, int kWidth_>
struct Sums {
  static constexpr int kVectors = kVectors_, kWidth = kWidth_;
  float top = -INFINITY, sum = 0, total[kVectors][kWidth] = {};
  static __device__ __forceinline__ int column(int first, int v) {
    return first + (v * 32 + static_cast<int>(threadIdx.x & 31)) * kWidth;
  }
};

/// Columns [d, d + kWidth) of a partial state.
template <int kWidth>
__device__ __forceinline__ void read_columns(const Decode& p, int64_t part, int d, float (&x)[kWidth]) {
  const float* from = p.part_out + part * p.value_dim + d;
  if constexpr (kWidth == 4) {
    if (p.value_dim % 4 == 0) {
      const float4 four = d < p.value_dim ? __ldcg(reinterpret_cast<const float4*>(from)) : float4{};
      x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
      return;
    }
  }
#pragma unroll
  for (int e = 0; e < kWidth; ++e) x[e] = d + e < p.value_dim ? __ldcg(from + e) : 0.0f;
}

/// Top and sum of a lane's partial state of `count` from `part` on.
__device__ __forceinline__ float2 read_state(const Decode& p, int64_t part, int count) {
  const int lane = threadIdx.x & 31;
  return lane < count ? __ldcg(&p.part_state[part + lane]) : make_float2(-INFINITY, 0.0f);
}

/// How a lane's partial state joins those of the lanes before it and what came before them.
struct Link {
  Fold fold;
  float sum;  // of this one
  /// `top` of all so far becomes that with these.
  __device__ __forceinline__ Link(const Decode& p, const float2& state, float& top) : sum(state.y) {
    const int lane = threadIdx.x & 31;
    float up_to = fmaxf(state.x, top);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float earlier = __shfl_up_sync(~0u, up_to, step);
      if (lane >= step) up_to = fmaxf(up_to, earlier);
    }
    const float last = __shfl_up_sync(~0u, up_to, 1);
    fold = fold_of(p, lane > 0 ? last : top, state.x, up_to);
    top = __shfl_sync(~0u, up_to, 31);
  }
  /// What lane `from` has.
  __device__ __forceinline__ Fold fold_at(int from) const {
    return {__shfl_sync(~0u, fold.shrink, from), __shfl_sync(~0u, fold.weight, from)};
  }
  __device__ __forceinline__ float sum_at(int from) const { return __shfl_sync(~0u, sum, from); }
};

/// Of a warp with columns of its own: the partial states [part, part + count), at most 32, join `all`, one after the
/// other; kAhead are on their way together. `first`: nothing came before.
template <int kAhead, class Sums>
__device__ __forceinline__ void add_parts(const Decode& p, int64_t part, int count, int column, bool first, Sums& all) {
  const Link link(p, read_state(p, part, count), all.top);
  for (int begin = 0; begin < count; begin += kAhead) {
    float x[kAhead][Sums::kVectors][Sums::kWidth];
#pragma unroll
    for (int n = 0; n < kAhead; ++n)
#pragma unroll
      for (int v = 0; v < Sums::kVectors; ++v)
        if (begin + n < count) read_columns(p, part + begin + n, all.column(column, v), x[n][v]);
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      const Fold fold = link.fold_at((begin + n) & 31);
      const float sum = link.sum_at((begin + n) & 31);
      if (begin + n >= count) break;
      const bool copy = first && begin + n == 0;
      all.sum = copy ? sum : fold(all.sum, sum);
#pragma unroll
      for (int v = 0; v < Sums::kVectors; ++v)
#pragma unroll
        for (int e = 0; e < Sums::kWidth; ++e) all.total[v][e] = copy ? x[n][v][e] : fold(all.total[v][e], x[n][v][e]);
    }
  }
}

/// Partial states whose 128 columns a block has in shared memory.
constexpr int kStaged = 64;

/// Of a block with columns [column, column + 128): the partial states [part, part + count), at most kStaged, all on
/// their way together, a warp every fourth; then each thread adds up a column of its own.
__device__ __forceinline__ void add_staged(const Decode& p, int64_t part, int count, int column, bool first,
                                           Sums<1, 1>& all) {
  __shared__ float4 staged[kStaged][32];
  const int lane = threadIdx.x & 31, warp = static_cast<int>(threadIdx.x) >> 5;
  float x[kStaged / kMergeWarps][4] = {};
#pragma unroll
  for (int n = 0; n < kStaged / kMergeWarps; ++n)
    if (n * kMergeWarps + warp < count) read_columns(p, part + n * kMergeWarps + warp, column + lane * 4, x[n]);
  float2 states[kStaged / 32];
#pragma unroll
  for (int n = 0; n < kStaged / 32; ++n) states[n] = read_state(p, part + n * 32, count - n * 32);
  __syncthreads();  // what was here has been read
#pragma unroll
  for (int n = 0; n < kStaged / kMergeWarps; ++n)
    staged[n * kMergeWarps + warp][lane] = make_float4(x[n][0], x[n][1], x[n][2], x[n][3]);
  __syncthreads();
  const float* mine = reinterpret_cast<const float*>(staged) + threadIdx.x;
#pragma unroll 1
  for (int from = 0; from < count; from += 32) {
    const Link link(p, from == 0 ? states[0] : states[1], all.top);
    const int here = min(32, count - from);
#pragma unroll 4
    for (int n = 0; n < here; ++n) {
      const Fold fold = link.fold_at(n);
      const float sum = link.sum_at(n), value = mine[(from + n) * 128];
      const bool copy = first && from + n == 0;
      all.sum = copy ? sum : fold(all.sum, sum);
      all.total[0][0] = copy ? value : fold(all.total[0][0], value);
    }
  }
}

template <class T, class Sums>
__device__ __forceinline__ void write_merged(const Decode& p, const Place& at, const Sums& all, int column) {
  const float share = share_of(p, at.head, all.top, all.sum);
#pragma unroll
  for (int v = 0; v < Sums::kVectors; ++v) {
    const int d = all.column(column, v);
    if constexpr (Sums::kWidth == 1) {
      if (d < p.value_dim) write_result<T>(p, at, d, all.total[v][0], share);
    } else {
#pragma unroll
      for (int e = 0; e < Sums::kWidth; e += 2)
        write_pair<T>(p, at, d + e, all.total[v][e], all.total[v][e + 1], share);
    }
  }
  if (all.column(column, 0) == 0 && p.lse)
    p.lse[at.row * p.lse_row + at.head * p.lse_head] = lse_of(p, all.top, all.sum);
}

/// kSpread: a block a (row, head), else a warp; blockIdx.y: kVectors * 128 columns. Rows that are done are passed by.
/// The first round, while the kernel in front ends, adds up columns that nobody has and stores nothing: it brings the
/// instructions and the first row's place in the schedule, for which all would wait afterwards.
template <class T, int kVectors, bool kSpread>
__global__ void __launch_bounds__(kMergeWarps * 32, kSpread ? 4 : 6) merge_decoded(const __grid_constant__ Decode p) {
  constexpr int kWidth = kSpread ? 1 : 4;
  const int pairs = p.rows * p.heads, here = kSpread ? 1 : kMergeWarps, step = static_cast<int>(gridDim.x) * here,
            warp = static_cast<int>(threadIdx.x) >> 5,
            begin = static_cast<int>(blockIdx.x) * here + (kSpread ? 0 : warp),
            first_column = static_cast<int>(blockIdx.y) * kVectors * 128;
  Load load{0, 0};
#pragma unroll 1
  for (int i = begin - step; i < pairs; i += step) {
    const bool ready = i >= begin;
    const int pair = ready ? i : min(begin, pairs - 1);
    const Place at{pair / p.heads, pair % p.heads};
    const Range seen = visible(p, at.row);
    const Cut cut = cut_of(p, load, at.row, seen, own_keys(p, at.row));
    const OwnSplits own = own_splits(seen, cut.length);
    const int from = cut.first_part(own), parts = own.last - from;
    if (ready && parts <= p.done_splits) continue;
    Sums<kVectors, kWidth> all;
    const int column = ready ? first_column : p.value_dim;
    const int64_t part = part_of(p, at) + from;
    if constexpr (kSpread) {
      for (int n = 0; n < parts; n += kStaged) add_staged(p, part + n, min(kStaged, parts - n), column, n == 0, all);
    } else {
      for (int n = 0; n < parts; n += 32) add_parts<4 / kVectors>(p, part + n, min(32, parts - n), column, n == 0, all);
    }
    write_merged<T>(p, at, all, column + (kSpread ? warp * 32 : 0));
    if (ready) continue;
    ptx::wait_for_previous();  // in every block: whoever comes after this kernel comes after that one
    load = load_of(p);
  }
}

template <class T, int kVectors, bool kSpread>
void launch_columns(const char* op, const Decode& p, Device device) {
  const int64_t pairs = int64_t{p.rows} * p.heads, most = int64_t{8} * multiprocessors(device),
                wanted = kSpread ? pairs : (pairs + kMergeWarps - 1) / kMergeWarps;
  const dim3 blocks(static_cast<unsigned>(std::min(wanted, most)),
                    static_cast<unsigned>((p.value_dim + kVectors * 128 - 1) / (kVectors * 128)));
  launch(op, merge_decoded<T, kVectors, kSpread>, {.blocks = blocks, .threads = kMergeWarps * 32, .early = true},
         device, p);
}

}  // namespace

void launch_merge(const char* op, const Decode& p, DType dtype, Device device) {
  // Few rows: more warps, each with less to wait for; no bit depends on it.
  constexpr int kManyParts = 8;
  const int64_t pairs = int64_t{p.rows} * p.heads, places = multiprocessors(device);
  core::visit_float(dtype, [&]<class T>() {
    if (p.most_splits > kManyParts && pairs <= 8 * places) return launch_columns<T, 1, true>(op, p, device);
    if (p.value_dim > 128 && pairs >= 16 * places) return launch_columns<T, 4, false>(op, p, device);
    launch_columns<T, 1, false>(op, p, device);
  });
}

}  // namespace tenor::cuda::paged
