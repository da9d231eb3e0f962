// The kernels of flash_tensorcore that are not Hopper's: their launches.
#pragma once

#include "src/ops/attention/flash_tiles.h"
#include "tenor/device.h"

namespace tenor::attn {

struct FlashShape;

/// A launch for tile kFlash...Tiles[tiles], with or without mask, bias or softcap.
using FlashLauncher = void(const FlashShape& shape, Device device, int tiles, bool general);
FlashLauncher launch_flash_sm80_bfloat16, launch_flash_sm80_float16;
/// Of float32, with so many groups of 64 rows a tile; `streams` 2: two blocks' worth of warps share 64 rows, each every
/// other tile of keys, which gives other bits. Without options alone, as fewer groups than the table's are.
void launch_flash_tf32(const FlashShape& shape, Device device, int tiles, bool general, int groups, int streams);

}  // namespace tenor::attn
