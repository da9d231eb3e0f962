// What the launches of the implicit GEMM's kernels share.
#pragma once

#include "src/cuda/launch.h"
#include "src/ops/conv/conv_sizes.h"

namespace tenor::conv {

/// Bytes of workspace that a convolution may ask for beside its result and, of a weight gradient, one copy of that in
/// float32.
inline constexpr int64_t kMostWorkspace = int64_t{256} << 20;

/// Who launches and where: the operator that errors name, and the device, which is current.
struct LaunchPlace {
  const char* op;
  Device device;
};

/// @throws CudaError where a kernel does not take what it is handed
inline void check_takes(bool takes, const LaunchPlace& place) {
  cuda::check(takes ? cudaSuccess : cudaErrorInvalidValue, place.op);
}

}  // namespace tenor::conv
