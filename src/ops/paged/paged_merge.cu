// Partial states of a row's splits become its result.

#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/ops/paged/paged_launch.h"

namespace tenor::cuda::paged {
namespace {

// Splits that a warp adds up in their order at most; of more, a quarter, and then the quarters in theirs.
constexpr int kMergeGroup = 32;
constexpr int kMergeWarps = 4;
static_assert(kMostSplits <= kMergeGroup * kMergeWarps);

/// Four neighbouring columns a lane, `kVectors` times.
template <int kVectors>
struct GroupSum {
  float top, sum, total[kVectors][4];
};

/// Columns [d, d + 4) of a partial state.
__device__ __forceinline__ void read_columns(const Decode& p, int64_t part, int d, float (&x)[4]) {
  const float* from = p.part_out + part * p.value_dim + d;
  if (p.value_dim % 4 == 0) {
    const float4 four = d < p.value_dim ? __ldcg(reinterpret_cast<const float4*>(from)) : float4{};
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
    return;
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) x[e] = d + e < p.value_dim ? __ldcg(from + e) : 0.0f;
}

/// A warp's sum over the partial states [part, part + count), at most kMergeGroup. kAhead are on their way together.
template <int kVectors, int kAhead>
__device__ __forceinline__ GroupSum<kVectors> add_group(const Decode& p, int64_t part, int count, int column) {
  const int lane = threadIdx.x & 31;
  float2 state = make_float2(-INFINITY, 0.0f);
  if (lane < count) state = __ldcg(&p.part_state[part + lane]);
  GroupSum<kVectors> group{state.x, 0, {}};
#pragma unroll
  for (int step = 16; step > 0; step /= 2) group.top = fmaxf(group.top, __shfl_xor_sync(~0u, group.top, step));
  const float base = group.top == -INFINITY ? 0.0f : group.top,
              weight = ptx::exp2_approximate((state.x - base) * p.scale_log2);
  group.sum = lane < count ? weight * state.y : 0.0f;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) group.sum += __shfl_xor_sync(~0u, group.sum, step);
  for (int first = 0; first < count; first += kAhead) {
    float x[kAhead][kVectors][4];
#pragma unroll
    for (int n = 0; n < kAhead; ++n)
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
        if (first + n < count) read_columns(p, part + first + n, column + v * 128 + lane * 4, x[n][v]);
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      const float w = __shfl_sync(~0u, weight, (first + n) & 31);
      if (first + n >= count) break;
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
#pragma unroll
        for (int e = 0; e < 4; ++e) group.total[v][e] += w * x[n][v][e];
    }
  }
  return group;
}

template <class T, int kVectors>
__device__ __forceinline__ void write_merged(const Decode& p, const Place& at, const GroupSum<kVectors>& sum,
                                             int column) {
  const int lane = threadIdx.x & 31;
  const float share = share_of(p, at.head, sum.top, sum.sum);
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
#pragma unroll
    for (int e = 0; e < 4; e += 2)
      write_pair<T>(p, at, column + v * 128 + lane * 4 + e, sum.total[v][e], sum.total[v][e + 1], share);
  if (column + lane == 0 && p.lse) p.lse[at.row * p.lse_row + at.head * p.lse_head] = lse_of(p, sum.top, sum.sum);
}

/// Adds the groups of a row's splits up in their order; the block's warps hold one each.
template <int kVectors>
__device__ __forceinline__ void add_groups(const Decode& p, GroupSum<kVectors>& mine) {
  __shared__ GroupSum<kVectors> groups[kMergeWarps][32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  __syncthreads();  // those of the pair before have been read
  groups[warp][lane] = mine;
  __syncthreads();
  GroupSum<kVectors> all{-INFINITY, 0, {}};
#pragma unroll
  for (int g = 0; g < kMergeWarps; ++g) all.top = fmaxf(all.top, groups[g][0].top);
  const float base = all.top == -INFINITY ? 0.0f : all.top;
#pragma unroll
  for (int g = 0; g < kMergeWarps; ++g) {
    const GroupSum<kVectors>& x = groups[g][lane];
    const float weight = ptx::exp2_approximate((x.top - base) * p.scale_log2);
    all.sum += weight * x.sum;
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
#pragma unroll
      for (int e = 0; e < 4; ++e) all.total[v][e] += weight * x.total[v][e];
  }
  mine = all;
}

/// One (row, head): a warp adds up all of its splits, or with kGroups each of the block's a group of them.
template <class T, int kVectors, bool kGroups>
__device__ __forceinline__ void merge_one(const Decode& p, const Place& at, const OwnSplits& own, int column) {
  const int warp = threadIdx.x >> 5, parts = own.last - own.first,
            each = kGroups && parts > kMergeGroup ? (parts + kMergeWarps - 1) / kMergeWarps : kMergeGroup,
            first = kGroups ? warp * each : 0, count = max(0, min(each, parts - first));
  GroupSum<kVectors> sum =
      add_group<kVectors, (kGroups ? 16 : 4) / kVectors>(p, part_of(p, at) + own.first + first, count, column);
  if constexpr (kGroups) {
    add_groups(p, sum);
    if (warp > 0) return;
  }
  write_merged<T>(p, at, sum, column);
}

/// kGroups: a block a (row, head), else a warp; blockIdx.y: kVectors * 128 columns. Rows that are done are passed by.
/// The first round, while the kernel in front ends, adds up columns that nobody has and stores nothing: it brings the
/// instructions and the first row's place in the schedule, for which all would wait afterwards.
template <class T, int kVectors, bool kGroups>
__global__ void __launch_bounds__(kMergeWarps * 32, kGroups         ? 2
                                                    : kVectors == 1 ? 10
                                                                    : 8)
    merge_decoded(const __grid_constant__ Decode p) {
  const int pairs = p.rows * p.heads, here = kGroups ? 1 : kMergeWarps, step = static_cast<int>(gridDim.x) * here,
            begin = static_cast<int>(blockIdx.x) * here + (kGroups ? 0 : static_cast<int>(threadIdx.x) >> 5);
  Load load{0, 0};
#pragma unroll 1
  for (int i = begin - step; i < pairs; i += step) {
    const bool ready = i >= begin;
    const int pair = ready ? i : min(begin, pairs - 1);
    const Place at{pair / p.heads, pair % p.heads};
    const OwnSplits own = own_splits(visible(p, at.row), cut_of(p, load, at.row, own_keys(p, at.row)));
    if (ready && own.last - own.first <= p.done_splits) continue;
    merge_one<T, kVectors, kGroups>(p, at, own, ready ? static_cast<int>(blockIdx.y) * kVectors * 128 : p.value_dim);
    if (ready) continue;
    ptx::wait_for_previous();  // in every block: whoever comes after this kernel comes after that one
    load = load_of(p);
  }
}

template <class T, int kVectors>
void launch_columns(const char* op, const Decode& p, Device device) {
  const int64_t pairs = int64_t{p.rows} * p.heads;
  const bool groups = p.most_splits > kMergeGroup;
  const int64_t most = int64_t{8} * multiprocessors(device),
                wanted = groups ? pairs : (pairs + kMergeWarps - 1) / kMergeWarps;
  const dim3 blocks(static_cast<unsigned>(std::min(wanted, most)),
                    static_cast<unsigned>((p.value_dim + kVectors * 128 - 1) / (kVectors * 128)));
  const Grid grid{.blocks = blocks, .threads = kMergeWarps * 32, .early = true};
  launch(op, groups ? merge_decoded<T, kVectors, true> : merge_decoded<T, kVectors, false>, grid, device, p);
}

}  // namespace

void launch_merge(const char* op, const Decode& p, DType dtype, Device device) {
  // Few rows: more warps, each with less to wait for; no bit depends on it.
  const bool wide = p.value_dim > 128 && int64_t{p.rows} * p.heads >= 16 * multiprocessors(device);
  core::visit_float(
      dtype, [&]<class T>() { wide ? launch_columns<T, 4>(op, p, device) : launch_columns<T, 1>(op, p, device); });
}

}  // namespace tenor::cuda::paged
