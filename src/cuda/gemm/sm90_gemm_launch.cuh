// The Hopper GEMM's instantiations: one table of tiles, compiled once for each operand type.
#pragma once

#include "src/cuda/allow.h"
#include "src/cuda/gemm/sm90_gemm.cuh"
#include "src/cuda/gemm/sm90_gemm.h"
#include "src/cuda/runtime.h"

namespace tenor::cuda::gemm {

/// B with contiguous k, and with contiguous n. The wide ones serve products that fill the chip, those between a dim of
/// so many rows or columns that they fit it, the narrow ones small matrices.
inline constexpr TileShape kInnerTiles[] = {{256, 2, 1}, {256, 2, 2}, {224, 2, 1}, {208, 2, 1},
                                            {192, 2, 1}, {176, 2, 1}, {128, 2, 1}, {128, 2, 2},
                                            {112, 2, 1}, {64, 1, 1},  {32, 1, 2}};
inline constexpr TileShape kOuterTiles[] = {{256, 2, 1}, {256, 2, 2}, {128, 1, 4}, {128, 1, 1}};

/// Of them those with epilogues: the widest, that of fewer waves, one for small matrices.
inline constexpr int kChainTiles[] = {0, 4, 6}, kChainOuterTiles[] = {0, 2};

/// What the stores of a problem need, and its sizes.
inline GemmShape stores_of(const GemmProblem& p) {
  GemmShape s{};
  s.m = p.m, s.n = p.n, s.k = p.k;
  for (int d = 0; d < 2; ++d) {
    s.batch[d] = p.batch[d], s.batch_c[d] = p.batch_c[d];
    s.shared_a[d] = p.batch_a[d] == 0, s.shared_b[d] = p.batch_b[d] == 0;
  }
  s.float_result = p.float_result, s.bias_float = p.bias_float;
  s.c = p.c, s.stride_c = p.stride_c, s.column_c = p.column_c;
  s.bias = p.bias, s.bias_row = p.bias_row, s.bias_column = p.bias_column;
  return s;
}

inline Device current_device() {
  int device = 0;
  cudaGetDevice(&device);
  return {DeviceType::kCuda, device};
}
/// Of the current device.
inline int multiprocessors() { return cuda::multiprocessors(current_device()); }

struct GemmLaunch {
  CUtensorMap a, b, c, beside;  ///< `beside`: of what an epilogue reads beside C
  GemmShape shape;
  int clusters;  ///< tiles; at most as many clusters as the device holds at once
  cudaStream_t stream;
};

/// A launch's attributes: its size and that blocks come in clusters.
template <class Config>
struct GemmGrid {
  cudaLaunchAttribute cluster{};
  cudaLaunchConfig_t config{};
  GemmGrid(int clusters, cudaStream_t stream) {
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {Config::kBlocks, 1, 1};
    config.gridDim = clusters * Config::kBlocks;
    config.blockDim = Config::kThreads;
    config.dynamicSmemBytes = sizeof(GemmShared<Config>);
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
  }
};

/// `more`: the kernel's arguments behind the shape.
template <class Config, class Kernel, class... More>
cudaError_t launch_kernel(Kernel kernel, const GemmLaunch& launch, const More&... more) {
  if (cudaError_t e = allow_shared(kernel, sizeof(GemmShared<Config>)); e != cudaSuccess) return e;
  static DeviceCount counts;
  const int resident = counts.of(current_device(), [&] {
    int count = 0;
    const GemmGrid<Config> grid(1, nullptr);
    return cudaOccupancyMaxActiveClusters(&count, kernel, &grid.config) == cudaSuccess && count > 0
               ? count
               : 32 / Config::kBlocks;
  });
  const int clusters = launch.clusters < resident ? launch.clusters : resident;
  GemmShape shape = launch.shape;
  if (shape.carry.sums && launch.clusters % clusters) shape.split = launch.clusters % clusters + clusters;
  const GemmGrid<Config> grid(clusters, launch.stream);
  return cudaLaunchKernelEx(&grid.config, kernel, launch.a, launch.b, launch.c, shape, more...);
}
template <class Config>
cudaError_t launch_config(const GemmLaunch& launch) {
  return launch_kernel<Config>(sm90_gemm_kernel<Config>, launch);
}

template <class T, bool kOuter, int kTile = 0>
cudaError_t launch_tile(int tile, const GemmLaunch& launch) {
  constexpr auto& kTiles = [&]() -> auto& {
    if constexpr (kOuter)
      return kOuterTiles;
    else
      return kInnerTiles;
  }
  ();
  if constexpr (kTile < static_cast<int>(sizeof(kTiles) / sizeof(kTiles[0]))) {
    constexpr TileShape kShape = kTiles[kTile];
    constexpr auto kLayout = kOuter ? ptx::TileLayout::kOuter : ptx::TileLayout::kInner;
    if (tile == kTile)
      return launch_config<GemmConfig<T, kShape.columns, kShape.cluster_m, kShape.cluster_n, kLayout>>(launch);
    return launch_tile<T, kOuter, kTile + 1>(tile, launch);
  }
  return cudaErrorInvalidValue;
}

/// sm90_gemm_bf16.cu and sm90_gemm_f16.cu.
cudaError_t launch_bfloat16(bool outer, int tile, const GemmLaunch& launch);
cudaError_t launch_float16(bool outer, int tile, const GemmLaunch& launch);
/// sm90_gemm_epilogue_bf16.cu and sm90_gemm_epilogue_f16.cu.
cudaError_t launch_chain_bfloat16(bool outer, int tile, const GemmLaunch& launch, const Chain& chain);
cudaError_t launch_chain_float16(bool outer, int tile, const GemmLaunch& launch, const Chain& chain);

}  // namespace tenor::cuda::gemm
