#include "src/cuda/gemm/sm90_gemm_launch.cuh"

namespace tenor::cuda::gemm {

cudaError_t launch_float16(bool outer, int tile, const GemmLaunch& launch) {
  return outer ? launch_tile<__half, true>(tile, launch) : launch_tile<__half, false>(tile, launch);
}

}  // namespace tenor::cuda::gemm
