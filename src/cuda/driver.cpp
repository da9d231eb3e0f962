#include "src/cuda/driver.h"

#include <cuda_runtime_api.h>

namespace tenor::cuda {

void* driver_entry(const char* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &result);
  return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? entry : nullptr;
}

}  // namespace tenor::cuda
