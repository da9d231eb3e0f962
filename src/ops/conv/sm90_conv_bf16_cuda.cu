#include "src/ops/conv/sm90_conv_launch.cuh"

namespace tenor::conv {

void launch_conv_bfloat16(const ConvPlan& plan, const ConvLaunch& launch) {
  return launch_conv<__nv_bfloat16>(plan, launch);
}

}  // namespace tenor::conv
