// The grouped products: few rows a group by the kernel for few rows, more by the tiles of the Hopper GEMM. Which of
// them runs is decided by the sizes that the host knows; both take any offsets.
#include <algorithm>
#include <cstddef>

#include "src/cuda/gemm/sm90_gemm_launch.cuh"
#include "src/cuda/gemm/sm90_gemm_map.h"
#include "src/cuda/gemm/sm90_grouped.h"
#include "src/cuda/gemm/sm90_rows.h"

namespace tenor::cuda::gemm {
namespace {

constexpr int kMostMean = 32;  // rows of a group, beyond which tiles are faster than one or two passes of few rows
/// Means beyond which many groups have a second tile of 128 rows, which reads their matrix anew for a few rows more,
/// and beyond which most have a second one of 192.
constexpr int kLeastTallMean = 116, kMostTallMean = 176;
constexpr int kMostWideGroups = 500;  // whose counts the widest tiles leave room for
constexpr int kMostGroups = 4096;     // whose tiles are counted in shared memory

/// A group's tiles, columns slower than rows, so that neighbours in time share the group's matrix.
template <class Config>
struct GroupedTiles {
  static constexpr bool kRagged = true;
  const GemmShape& shape;
  const GroupOffsets& offsets;
  const int* starts;
  __device__ __forceinline__ bool piece(int i, Piece& piece) const {
    piece = {static_cast<int>(blockIdx.x / Config::kBlocks + i * (gridDim.x / Config::kBlocks)), 0, steps_of(shape)};
    return piece.tile < starts[offsets.groups] * shape.tiles_n;
  }
  __device__ __forceinline__ TilePlace place(int tile) const {
    const int group = group_of(starts, offsets.groups, tile / shape.tiles_n), start = starts[group],
              rows = starts[group + 1] - start, within = tile - start * shape.tiles_n;
    return {offsets.first(group) + within % rows * Config::kClusterM * Config::kTileM,
            offsets.last(group),
            within / rows,
            {0, 0},
            {group, 0},
            {0, 0}};
  }
};

template <class Config>
struct GroupedShared {
  GemmShared<Config> gemm;
  int starts[kMostGroups + 1];
};

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    sm90_grouped_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                        const __grid_constant__ CUtensorMap map_c, const __grid_constant__ CUtensorMap map_up,
                        const __grid_constant__ GemmShape shape, const __grid_constant__ GroupOffsets offsets) {
  if constexpr (!ptx::kIsHopper) return;  // in PTX for other devices the kernel is empty, and never launched
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<GroupedShared<Config>*>(raw);
  count_tiles(shared.starts, offsets, Config::kTileM * Config::kClusterM);
  gemm_block(shared.gemm, GroupedTiles<Config>{shape, offsets, shared.starts}, {map_a, map_b, map_c, map_up});
}

/// As the GEMM sees it: groups are a batch of B.
GemmProblem dense_problem(const GroupedProblem& p) {
  GemmProblem d{p.a, p.b, p.c, p.m, p.n, p.k, p.stride_a, p.stride_b, p.stride_c, p.bfloat16};
  d.float_result = p.float_result;
  d.batch[0] = p.groups, d.batch_b[0] = p.group_b;
  return d;
}

/// Maps of A, B and, if there is one, the second matrix (else B's again), in boxes of so many rows.
struct OperandMaps {
  CUtensorMap a, b, up;
  bool good;
  OperandMaps(const GemmProblem& p, const void* second, int box_a, int box_b) {
    const auto matrix = [&](CUtensorMap* map, const void* data) {
      return make_map(map, {data, p.n, p.k, p.stride_b, p.batch, p.batch_b}, p.bfloat16, box_b, kTileK);
    };
    good = make_map(&a, {p.a, p.m, p.k, p.stride_a, p.batch, p.batch_a}, p.bfloat16, box_a, kTileK) &&
           matrix(&b, p.b) && matrix(&up, second ? second : p.b);
  }
};

template <class T, int kRows, bool kSwiGlu>
cudaError_t launch_rows_of(const GroupedProblem& p, cudaStream_t stream) {
  const GemmProblem d = dense_problem(p);
  const GroupOffsets offsets{p.offsets, p.wide_offsets, p.groups, p.m};
  const int counts = (p.groups + 1) * static_cast<int>(sizeof(int)), blocks = multiprocessors();
  RowsShape shape{};
  shape.out = stores_of(d), shape.one_row = p.one_row;
  shape.matrices = kSwiGlu ? 2 : 1;
  // As many ranges as there would be if as many groups as can be had rows; the device counts them anew.
  const int most = std::min(p.groups, p.m), ranges = most + (p.m - most) / kRows;
  const int ring = plan_rows(shape, kRows, ranges, blocks, kRowsBytes - counts);
  // Most groups fit one pass, and their matrices are read once.
  shape.read_once =
      2 * (p.m / p.groups) <= kRows && int64_t{std::min(p.groups, p.m)} * p.n * p.k * 2 * shape.matrices >= kHalfOfL2;
  GemmProblem read = d;
  if (p.one_row) read.m = 1;
  const OperandMaps maps(read, p.up, kRows, shape.pass);
  if (!maps.good) return cudaErrorInvalidValue;
  const auto kernel = sm90_grouped_rows_kernel<T, kRows, kSwiGlu>;
  if (cudaError_t e = allow_shared(kernel, kRowsBytes); e != cudaSuccess) return e;
  kernel<<<blocks, kRowsThreads, ring + counts, stream>>>(maps.a, maps.b, maps.up, shape, offsets, ring, p.sum);
  return cudaGetLastError();
}

cudaError_t launch_rows(const GroupedProblem& p, int rows, cudaStream_t stream) {
  return visit_rows(p.bfloat16, rows, [&]<class T, int kRows>() {
    return p.up ? launch_rows_of<T, kRows, true>(p, stream) : launch_rows_of<T, kRows, false>(p, stream);
  });
}

template <class Config>
cudaError_t launch_tiles(const GroupedProblem& p, cudaStream_t stream) {
  constexpr int kStored = Config::kStored;
  const GemmProblem d = dense_problem(p);
  GemmShape shape = stores_of(d);
  shape.batch[0] = 1;
  shape.tiles_n = (p.n + kStored * Config::kClusterN - 1) / (kStored * Config::kClusterN);
  shape.tma_store =
      !p.float_result && p.n % 8 == 0 && p.stride_c % 8 == 0 && reinterpret_cast<uintptr_t>(p.c) % 16 == 0;
  const OperandMaps maps(d, p.up, Config::kTileM / Config::kClusterN, kStored / Config::kClusterM);
  CUtensorMap c{};
  if (!maps.good || (shape.tma_store && !make_map(&c, {p.c, p.m, p.n, p.stride_c, shape.batch, shape.batch_c},
                                                  p.bfloat16, 64, kStoreColumns<kStored>)))
    return cudaErrorInvalidValue;
  const auto kernel = sm90_grouped_kernel<Config>;
  const size_t bytes = offsetof(GroupedShared<Config>, starts) + (p.groups + 1) * sizeof(int);
  if (cudaError_t e = allow_shared(kernel, bytes); e != cudaSuccess) return e;
  GemmGrid<Config> grid(multiprocessors() / Config::kBlocks, stream);
  grid.config.dynamicSmemBytes = bytes;
  const GroupOffsets offsets{p.offsets, p.wide_offsets, p.groups, p.m};
  return cudaLaunchKernelEx(&grid.config, kernel, maps.a, maps.b, c, maps.up, shape, offsets);
}

/// Tiles of two blocks side by side, which share the rows. The widest leave room for the counts of fewer groups.
template <class T, int kColumns, int kRing, int kConsumers = 2>
cudaError_t launch_wide(const GroupedProblem& p, cudaStream_t stream) {
  constexpr auto kInner = ptx::TileLayout::kInner;
  if (p.up) return launch_tiles<GemmConfig<T, kColumns, 1, 2, kInner, kRing, true, kConsumers>>(p, stream);
  return launch_tiles<GemmConfig<T, kColumns, 1, 2, kInner, kRing, false, kConsumers>>(p, stream);
}

/// Tiles of 192 rows, which take most groups of a hundred to two hundred at once and read their matrices once.
template <class T>
cudaError_t launch_tall(const GroupedProblem& p, cudaStream_t stream) {
  return p.up ? launch_wide<T, 192, 192 << 10, 3>(p, stream) : launch_wide<T, 192, 144 << 10, 3>(p, stream);
}

template <class T>
cudaError_t launch_plan(const GroupedProblem& p, GroupedPlan plan, cudaStream_t stream) {
  if (plan == GroupedPlan::kTallTiles) return launch_tall<T>(p, stream);
  if (plan == GroupedPlan::kWideTiles) return launch_wide<T, 256, 192 << 10>(p, stream);
  return launch_wide<T, 192, 176 << 10>(p, stream);
}

/// The fastest measured, by the mean of rows a group.
GroupedPlan plan_of(const GroupedProblem& p, int mean) {
  if (mean <= kMostMean) return GroupedPlan::kRows;
  if (mean >= kLeastTallMean && mean <= kMostTallMean && p.groups <= kMostWideGroups) return GroupedPlan::kTallTiles;
  const bool wide = p.groups <= kMostWideGroups && (!p.up || mean <= 80);
  return wide ? GroupedPlan::kWideTiles : GroupedPlan::kTiles;
}

}  // namespace

bool takes_token_sum(int slots) {
  const int blocks = multiprocessors();
  return few_ranges(slots, blocks) && blocks / slots <= kMostArrivals;
}

std::string sm90_grouped_why_not(const GroupedProblem& p) {
  if (p.m < 1 || p.n < 1 || p.k < 1 || p.groups < 1) return "it has an empty dim";
  if (p.groups > kMostGroups) return "it has more than 4096 groups";
  if (reinterpret_cast<uintptr_t>(p.a) % 16 || reinterpret_cast<uintptr_t>(p.b) % 16 ||
      reinterpret_cast<uintptr_t>(p.up) % 16)
    return "an operand does not start at a multiple of 16 bytes";
  if (p.stride_a % 8 || p.stride_b % 8 || p.group_b % 8) return "a stride is no multiple of 8 elements";
  if ((double(p.m) / 128 + p.groups) * (double(p.n) / 64 + 1) > INT32_MAX) return "it has more than 2^31 tiles";
  return {};
}

cudaError_t sm90_grouped(const GroupedProblem& p, cudaStream_t stream, GroupedPlan plan) {
  const int mean = (p.m + p.groups - 1) / p.groups;  // rows of a group
  if (p.one_row || p.sum.out) plan = GroupedPlan::kRows;
  if (plan == GroupedPlan::kAuto) plan = plan_of(p, mean);
  if (plan == GroupedPlan::kRows) return launch_rows(p, std::min(2 * mean, kMostRows), stream);
  return p.bfloat16 ? launch_plan<__nv_bfloat16>(p, plan, stream) : launch_plan<__half>(p, plan, stream);
}

}  // namespace tenor::cuda::gemm
