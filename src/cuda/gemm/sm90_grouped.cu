// The grouped products: few rows a group by the kernel for few rows, more by the tiles of the Hopper GEMM. Which of
// them runs is decided by the sizes that the host knows; both take any offsets.
#include <algorithm>

#include "src/cuda/gemm/sm90_gemm_launch.cuh"
#include "src/cuda/gemm/sm90_gemm_map.h"
#include "src/cuda/gemm/sm90_grouped.h"
#include "src/cuda/gemm/sm90_rows.h"

namespace tenor::cuda::gemm {
namespace {

constexpr int kMostGroups = 4096;  // whose tiles are counted in shared memory

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
    return {offsets.first(group) + within % rows * Config::kClusterM * kTileM,
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
__global__ void __launch_bounds__(kThreads, 1)
    sm90_grouped_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                        const __grid_constant__ CUtensorMap map_c, const __grid_constant__ GemmShape shape,
                        const __grid_constant__ GroupOffsets offsets) {
  if constexpr (!ptx::kIsHopper) return;  // in PTX for other devices the kernel is empty, and never launched
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<GroupedShared<Config>*>(raw);
  count_tiles(shared.starts, offsets, kTileM * Config::kClusterM);
  gemm_block(shared.gemm, GroupedTiles<Config>{shape, offsets, shared.starts}, map_a, map_b, map_c);
}

/// As the GEMM sees it: groups are a batch of B.
GemmProblem dense_problem(const GroupedProblem& p) {
  GemmProblem d{p.a, p.b, p.c, p.m, p.n, p.k, p.stride_a, p.stride_b, p.stride_c, p.bfloat16};
  d.float_result = p.float_result;
  d.batch[0] = p.groups, d.batch_b[0] = p.group_b;
  return d;
}

/// Maps of A and B in boxes of so many rows.
bool make_operand_maps(const GemmProblem& p, int box_a, int box_b, CUtensorMap* a, CUtensorMap* b) {
  return make_map(a, {p.a, p.m, p.k, p.stride_a, p.batch, p.batch_a}, p.bfloat16, box_a, kTileK) &&
         make_map(b, {p.b, p.n, p.k, p.stride_b, p.batch, p.batch_b}, p.bfloat16, box_b, kTileK);
}

cudaError_t launch_rows(const GroupedProblem& p, int rows, cudaStream_t stream) {
  const GemmProblem d = dense_problem(p);
  const GroupOffsets offsets{p.offsets, p.wide_offsets, p.groups, p.m};
  const int counts = (p.groups + 1) * static_cast<int>(sizeof(int)), blocks = multiprocessors();
  return visit_rows(p.bfloat16, rows, [&]<class T, int kRows>() {
    RowsShape shape{};
    shape.out = stores_of(d);
    // As many ranges as there would be if no two rows had a group in common; the device counts them anew.
    const int ranges = std::min(p.groups, p.m) + p.m / kRows;
    const int ring = plan_rows(shape, kRows, ranges, blocks, kRowsBytes - counts);
    // Most groups fit one pass, and their matrices are read once.
    shape.read_once = 2 * (p.m / p.groups) <= kRows && int64_t{std::min(p.groups, p.m)} * p.n * p.k * 2 >= kHalfOfL2;
    CUtensorMap a, b;
    if (!make_operand_maps(d, kRows, shape.pass, &a, &b)) return cudaErrorInvalidValue;
    const auto kernel = sm90_grouped_rows_kernel<T, kRows>;
    if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kRowsBytes);
        e != cudaSuccess)
      return e;
    kernel<<<blocks, kRowsThreads, ring + counts, stream>>>(a, b, shape, offsets, ring);
    return cudaGetLastError();
  });
}

template <class Config>
cudaError_t launch_tiles(const GroupedProblem& p, cudaStream_t stream) {
  const GemmProblem d = dense_problem(p);
  GemmShape shape = stores_of(d);
  shape.batch[0] = 1;
  shape.tiles_n = (p.n + Config::kColumns * Config::kClusterN - 1) / (Config::kColumns * Config::kClusterN);
  shape.tma_store =
      !p.float_result && p.n % 8 == 0 && p.stride_c % 8 == 0 && reinterpret_cast<uintptr_t>(p.c) % 16 == 0;
  CUtensorMap a, b, c{};
  if (!make_operand_maps(d, kTileM / Config::kClusterN, Config::kColumns / Config::kClusterM, &a, &b) ||
      (shape.tma_store && !make_map(&c, {p.c, p.m, p.n, p.stride_c, shape.batch, shape.batch_c}, p.bfloat16, 64,
                                    kStoreColumns<Config::kColumns>)))
    return cudaErrorInvalidValue;
  const auto kernel = sm90_grouped_kernel<Config>;
  if (cudaError_t e =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(GroupedShared<Config>));
      e != cudaSuccess)
    return e;
  GemmGrid<Config> grid(multiprocessors() / Config::kBlocks, stream);
  grid.config.dynamicSmemBytes = sizeof(GroupedShared<Config>);
  const GroupOffsets offsets{p.offsets, p.wide_offsets, p.groups, p.m};
  return cudaLaunchKernelEx(&grid.config, kernel, a, b, c, shape, offsets);
}

/// Columns of a tile: two blocks side by side share the rows.
template <class T>
cudaError_t launch_wide(const GroupedProblem& p, cudaStream_t stream) {
  constexpr int kRing = 176 << 10;  // what the counts of the groups leave
  constexpr auto kInner = ptx::TileLayout::kInner;
  return launch_tiles<GemmConfig<T, 192, 1, 2, kInner, kRing>>(p, stream);
}

}  // namespace

std::string sm90_grouped_why_not(const GroupedProblem& p) {
  if (p.m < 1 || p.n < 1 || p.k < 1 || p.groups < 1) return "it has an empty dim";
  if (p.groups > kMostGroups) return "it has more than 4096 groups";
  if (reinterpret_cast<uintptr_t>(p.a) % 16 || reinterpret_cast<uintptr_t>(p.b) % 16)
    return "an operand does not start at a multiple of 16 bytes";
  if (p.stride_a % 8 || p.stride_b % 8 || p.group_b % 8) return "a stride is no multiple of 8 elements";
  if ((double(p.m) / 128 + p.groups) * (double(p.n) / 64 + 1) > INT32_MAX) return "it has more than 2^31 tiles";
  return {};
}

cudaError_t sm90_grouped(const GroupedProblem& p, cudaStream_t stream) {
  const int mean = (p.m + p.groups - 1) / p.groups;  // rows of a group
  if (mean <= kMostRows) return launch_rows(p, std::min(2 * mean, kMostRows), stream);
  return p.bfloat16 ? launch_wide<__nv_bfloat16>(p, stream) : launch_wide<__half>(p, stream);
}

}  // namespace tenor::cuda::gemm
