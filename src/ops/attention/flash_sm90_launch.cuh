// The Hopper kernel's instantiations: compiled once for each operand type (flash_sm90_bf16_cuda.cu,
// flash_sm90_f16_cuda.cu).
#pragma once

#include "src/cuda/launch.h"
#include "src/ops/attention/flash_sm90_kernel.cuh"

namespace tenor::attn {

/// Head sizes are padded to one of these. A tile of keys holds what fits beside a row's accumulators; head and value
/// size alone decide, so that they and a row's own problem decide its bits.
struct FlashTiles {
  int dim, keys, groups;
  bool turns;
};
inline constexpr FlashTiles kFlashTiles[] = {{64, 128, 3, true}, {128, 128, 2, true}, {256, 80, 2, false}};

/// A mask or a bias needs the registers of a third group.
constexpr int groups_of(const FlashTiles& tiles, bool general) { return general ? 2 : tiles.groups; }

struct FlashLaunch {
  FlashMaps maps;
  FlashShape shape;
  Device device;
  int blocks;
};

template <class T, int kTiles, bool kGeneral>
void launch_flash(const FlashLaunch& l) {
  constexpr FlashTiles kShape = kFlashTiles[kTiles];
  using Config = FlashConfig<T, kShape.dim, kShape.keys, groups_of(kShape, kGeneral), kShape.turns, kGeneral>;
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
