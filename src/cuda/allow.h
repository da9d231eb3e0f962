// Shared memory of kernels whose launches report errors themselves; launch.h's do the same.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace tenor::cuda {

/// Lets the kernel have so many bytes of dynamic shared memory on the current device, where that must be asked for and
/// was not before. Asking costs 0.4 us.
cudaError_t allow_shared(const void* kernel, size_t bytes);

template <class... Params>
cudaError_t allow_shared(void (*kernel)(Params...), size_t bytes) {
  return allow_shared(reinterpret_cast<const void*>(kernel), bytes);
}

}  // namespace tenor::cuda
