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

/// Lets the kernel have the shared memory and the cluster of the grid on the current device, where that must be asked for
/// and was not before.
void allow(const char* op, const void* kernel, const Grid& grid);

/// Launches on the current stream of `device`, which the caller has made current (DeviceGuard).
/// @throws CudaError naming the operator
template <class... Params, class... Args>
void launch(const char* op, void (*kernel)(Params...), const Grid& grid, Device device, Args&&... args) {
  allow(op, reinterpret_cast<const void*>(kernel), grid);
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

/// Clusters of that grid that run on the current device at once; 1 at least.
template <class... Params>
int clusters_at_once(const char* op, void (*kernel)(Params...), const Grid& grid) {
  allow(op, reinterpret_cast<const void*>(kernel), grid);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(grid.cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.cluster));
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int count = 0;
  check(cudaOccupancyMaxActiveClusters(&count, kernel, &config), op);
  return std::max(count, 1);
}

/// Blocks for `count` items, `per_block` a block: at most `waves` blocks a multiprocessor, whose threads then loop.
inline unsigned blocks_for(int64_t count, int64_t per_block, Device device, int waves = 16) {
  return static_cast<unsigned>(
      std::clamp<int64_t>((count + per_block - 1) / per_block, 1, int64_t{waves} * multiprocessors(device)));
}

}  // namespace tenor::cuda
