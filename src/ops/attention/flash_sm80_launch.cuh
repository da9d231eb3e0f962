// The mma.sync kernel's instantiations: compiled once for each operand type (flash_sm80_bf16_cuda.cu,
// flash_sm80_f16_cuda.cu).
#pragma once

#include "src/ops/attention/flash_launch.h"
#include "src/ops/attention/flash_sm80.cuh"

namespace tenor::attn {

template <class T, int kTiles, bool kGeneral>
void launch_flash_sm80(const FlashShape& shape, Device device) {
  using Config = FlashSm80Config<T, kFlashSm80Tiles[kTiles].dim, kFlashSm80Tiles[kTiles].groups[kGeneral], kGeneral>;
  launch_walk<FlashSm80<Config>, kFlashSm80Tiles[kTiles].keys[kGeneral]>(shape, device);
}

template <class T>
void launch_flash_sm80(const FlashShape& shape, Device device, int tiles, bool general) {
  constexpr void (*kLaunches[3][2])(const FlashShape&, Device) = {
      {&launch_flash_sm80<T, 0, false>, &launch_flash_sm80<T, 0, true>},
      {&launch_flash_sm80<T, 1, false>, &launch_flash_sm80<T, 1, true>},
      {&launch_flash_sm80<T, 2, false>, &launch_flash_sm80<T, 2, true>}};
  kLaunches[tiles][general](shape, device);
}

}  // namespace tenor::attn
