#include "src/ops/conv/sm90_conv_launch.cuh"

namespace tenor::conv {

void launch_conv_float16(const ConvPlan& plan, const ConvLaunch& launch) { return launch_conv<__half>(plan, launch); }

}  // namespace tenor::conv
