// Kernel launches: every one is checked and named by its operator.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/cuda/capability.h"
#include "src/cuda/runtime.h"

namespace tenor::cuda {

struct Grid {
  dim3 blocks;
  dim3 threads;
  size_t shared = 0;  ///< dynamic shared memory of a block, in bytes
  int cluster = 1;    ///< blocks of a cluster along x
  bool early =
      false;  ///< may start before the kernel in front ends, for whose results it waits (ptx::wait_for_previous)
};

/// Launches on the current stream of `device`, which the caller has made current (DeviceGuard).
/// @throws CudaError naming the operator
template <class... Params, class... Args>
void launch(const char* op, void (*kernel)(Params...), const Grid& grid, Device device, Args&&... args) {
  constexpr size_t kWithoutAsking = 24 << 10;  // of 48 KiB, which a kernel's own arrays share
  if (grid.shared > kWithoutAsking)
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(grid.shared)),
          op);
  if (grid.cluster > 8)
    check(
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
        op);
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (grid.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {static_cast<unsigned>(grid.cluster), 1, 1};
  }
  if (grid.early && capability(device).clusters) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared;
  config.stream = current_stream(device).handle;
  config.attrs = attributes;
  config.numAttrs = count;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), op);
}

/// Blocks for `count` items, `per_block` a block: at most `waves` blocks a multiprocessor, whose threads then loop.
inline unsigned blocks_for(int64_t count, int64_t per_block, Device device, int waves = 16) {
  return static_cast<unsigned>(
      std::clamp<int64_t>((count + per_block - 1) / per_block, 1, int64_t{waves} * multiprocessors(device)));
}

}  // namespace tenor::cuda
