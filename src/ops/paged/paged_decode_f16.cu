#include "src/ops/paged/paged_decode_launch.cuh"

namespace tenor::cuda::paged {

void launch_decode_float16(const char* op, const DecodeLaunch& launch) { launch_decode<Float16>(op, launch); }

}  // namespace tenor::cuda::paged
