#include "src/ops/attention/flash_sm80_launch.cuh"

namespace tenor::attn {

void launch_flash_sm80_bfloat16(const FlashShape& shape, Device device, int tiles, bool general) {
  launch_flash_sm80<__nv_bfloat16>(shape, device, tiles, general);
}

}  // namespace tenor::attn
