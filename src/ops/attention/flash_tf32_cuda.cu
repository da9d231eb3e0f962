#include "src/cuda/launch.h"
#include "src/ops/attention/flash_launch.h"
#include "src/ops/attention/flash_tf32.cuh"

namespace tenor::attn {
namespace {

using Launch = void(const FlashShape& shape, Device device);

template <int kTiles, int kGroups, int kStreams, bool kGeneral>
void launch(const FlashShape& shape, Device device) {
  using Config = FlashTf32Config<kFlashTf32Tiles[kTiles].dim, kGroups, kStreams, kGeneral>;
  launch_walk<FlashTf32<Config>, kFlashTf32Tiles[kTiles].keys[kGeneral]>(shape, device);
}

/// A head size's kernels: as the table has them with and without options, of one group, of two streams.
template <int kTiles>
Launch* kernel_of(bool general, int groups, int streams) {
  constexpr FlashTiles kTile = kFlashTf32Tiles[kTiles];
  if (general) return &launch<kTiles, kTile.groups[1], 1, true>;
  if (streams == 2) return &launch<kTiles, 1, 2, false>;
  return groups == 1 ? &launch<kTiles, 1, 1, false> : &launch<kTiles, kTile.groups[0], 1, false>;
}

}  // namespace

void launch_flash_tf32(const FlashShape& shape, Device device, int tiles, bool general, int groups, int streams) {
  constexpr Launch* (*kKernels[])(bool, int, int) = {&kernel_of<0>, &kernel_of<1>, &kernel_of<2>};
  kKernels[tiles](general, groups, streams)(shape, device);
}

}  // namespace tenor::attn
