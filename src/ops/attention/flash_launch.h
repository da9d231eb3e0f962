// The kernels of flash_tensorcore that are not Hopper's: their launches.
#pragma once

#include "src/ops/attention/flash_tiles.h"
#include "tenor/device.h"

namespace tenor::attn {

struct FlashShape;

/// A launch for tile kFlash...Tiles[tiles], with or without mask, bias or softcap.
using FlashLauncher = void(const FlashShape& shape, Device device, int tiles, bool general);
FlashLauncher launch_flash_sm80_bfloat16, launch_flash_sm80_float16, launch_flash_tf32;

}  // namespace tenor::attn
