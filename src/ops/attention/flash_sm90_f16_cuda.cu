#include "src/ops/attention/flash_sm90_launch.cuh"

namespace tenor::attn {

void launch_flash_float16(const FlashLaunch& l, int tiles, bool general) { launch_flash<__half>(l, tiles, general); }

}  // namespace tenor::attn
