// The Hopper kernel's instantiations: compiled once for each operand type (flash_sm90_bf16_cuda.cu,
// flash_sm90_f16_cuda.cu).
#pragma once

#include "src/cuda/launch.h"
#include "src/ops/attention/flash_sm90_kernel.cuh"
#include "src/ops/attention/flash_tiles.h"

namespace tenor::attn {

inline constexpr bool kFlashTurns[] = {true, true, false};  ///< for each of kFlashSm90Tiles

struct FlashLaunch {
  FlashMaps maps;
  FlashShape shape;
  Device device;
  int blocks;
};

template <class T, int kTiles, bool kGeneral>
void launch_flash(const FlashLaunch& l) {
  constexpr FlashTiles kShape = kFlashSm90Tiles[kTiles];
  using Config = FlashConfig<T, kShape.dim, kShape.keys, kShape.groups[kGeneral], kFlashTurns[kTiles], kGeneral>;
  const cuda::Grid grid{dim3(static_cast<unsigned>(l.blocks)), dim3(Config::kThreads), sizeof(FlashShared<Config>)};
  cuda::launch("attention", flash_sm90<Config>, grid, l.device, l.maps, l.shape);
}

template <class T>
void launch_flash(const FlashLaunch& l, int tiles, bool general) {
  constexpr void (*kLaunches[3][2])(const FlashLaunch&) = {{&launch_flash<T, 0, false>, &launch_flash<T, 0, true>},
                                                           {&launch_flash<T, 1, false>, &launch_flash<T, 1, true>},
                                                           {&launch_flash<T, 2, false>, &launch_flash<T, 2, true>}};
  kLaunches[tiles][general](l);
}

void launch_flash_bfloat16(const FlashLaunch& l, int tiles, bool general);
void launch_flash_float16(const FlashLaunch& l, int tiles, bool general);

}  // namespace tenor::attn
