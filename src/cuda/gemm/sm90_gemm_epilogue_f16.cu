#include "src/cuda/gemm/sm90_gemm_epilogue.cuh"

namespace tenor::cuda::gemm {

cudaError_t launch_chain_float16(bool outer, int tile, const GemmLaunch& launch, const Chain& chain) {
  return outer ? launch_chain_tile<__half, true>(tile, launch, chain)
               : launch_chain_tile<__half, false>(tile, launch, chain);
}

}  // namespace tenor::cuda::gemm
