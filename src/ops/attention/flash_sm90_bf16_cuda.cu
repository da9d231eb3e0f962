#include "src/ops/attention/attention_cuda.h"
#include "src/ops/attention/flash_sm90_launch.cuh"

namespace tenor::attn {

void launch_flash_bfloat16(const FlashLaunch& l, int tiles, FlashOptions options, bool narrow) {
  launch_flash<__nv_bfloat16>(l, tiles, options, narrow);
}

std::vector<int> flash_spilled_bytes_bfloat16() {
  return spilled_bytes<__nv_bfloat16>(std::make_integer_sequence<int, 12>());
}

}  // namespace tenor::attn
