// Launches that overlap with the kernel in front (programmatic dependent launch).
#pragma once

#include "src/cuda/launch.h"

namespace tenor::cuda {

/// As launch, but the kernel may start before the one in front ends, whose results it waits for by griddepcontrol.wait.
template <class... Params, class... Args>
void launch_early(const char* op, void (*kernel)(Params...), const Grid& grid, Device device, Args&&... args) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.stream = current_stream(device).handle;
  config.attrs = &early;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), op);
}

}  // namespace tenor::cuda
