// The instruction set that a kernel is being compiled for. The library holds code of sm_90a and, for every other device
// since Ampere, PTX of compute_80, in which what follows is false.
#pragma once

namespace tenor::cuda::ptx {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr bool kHasClusters =
    true;  ///< clusters, their barriers and shared memory; programmatic dependent launch
#else
inline constexpr bool kHasClusters = false;
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
inline constexpr bool kIsHopper = true;  ///< wgmma, setmaxnreg
#else
inline constexpr bool kIsHopper = false;
#endif

}  // namespace tenor::cuda::ptx
