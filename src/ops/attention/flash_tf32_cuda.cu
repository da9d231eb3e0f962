#include "src/cuda/launch.h"
#include "src/ops/attention/flash_launch.h"
#include "src/ops/attention/flash_tf32.cuh"

namespace tenor::attn {
namespace {

template <int kTiles, bool kGeneral>
void launch(const FlashShape& shape, Device device) {
  using Config = FlashTf32Config<kFlashTf32Tiles[kTiles].dim, kFlashTf32Tiles[kTiles].groups[kGeneral], kGeneral>;
  launch_walk<FlashTf32<Config>, kFlashTf32Tiles[kTiles].keys[kGeneral]>(shape, device);
}

}  // namespace

void launch_flash_tf32(const FlashShape& shape, Device device, int tiles, bool general) {
  constexpr void (*kLaunches[2][2])(const FlashShape&, Device) = {{&launch<0, false>, &launch<0, true>},
                                                                  {&launch<1, false>, &launch<1, true>}};
  kLaunches[tiles][general](shape, device);
}

}  // namespace tenor::attn
