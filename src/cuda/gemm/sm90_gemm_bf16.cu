#include "src/cuda/gemm/sm90_gemm_launch.cuh"

namespace tenor::cuda::gemm {

cudaError_t launch_bfloat16(bool outer, int tile, const GemmLaunch& launch) {
  return outer ? launch_tile<__nv_bfloat16, true>(tile, launch) : launch_tile<__nv_bfloat16, false>(tile, launch);
}

}  // namespace tenor::cuda::gemm
