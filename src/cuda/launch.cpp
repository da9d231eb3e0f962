#include "src/cuda/launch.h"

#include <mutex>
#include <unordered_map>

#include "src/cuda/allow.h"

namespace tenor::cuda {
namespace {

/// What a kernel was allowed on a device. Each costs a call of 0.4 us.
struct Allowed {
  size_t shared = 0;
  bool wide = false;  ///< clusters of more than 8 blocks
};
struct AllowedKernels {
  std::mutex mutex;
  std::unordered_map<const void*, Allowed> by_device[64];
};
AllowedKernels& allowed_kernels() {
  static auto* kernels = new AllowedKernels;
  return *kernels;
}

constexpr size_t kWithoutAsking = 24 << 10;  // of 48 KiB, which a kernel's own arrays share

/// Asks the driver for what the kernel was not allowed yet. The lock is held meanwhile, so that nobody lowers what
/// another thread raised.
cudaError_t allow_kernel(const void* kernel, size_t shared, bool wide) {
  int device = 0;
  if (cudaError_t e = cudaGetDevice(&device); e != cudaSuccess) return e;
  AllowedKernels& all = allowed_kernels();
  std::lock_guard lock(all.mutex);
  Allowed& known = all.by_device[device % 64][kernel];
  if (shared > known.shared) {
    const auto bytes = static_cast<int>(shared);
    if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        e != cudaSuccess)
      return e;
    known.shared = shared;
  }
  if (wide && !known.wide) {
    if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        e != cudaSuccess)
      return e;
    known.wide = true;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t allow_shared(const void* kernel, size_t bytes) {
  return bytes > kWithoutAsking ? allow_kernel(kernel, bytes, false) : cudaSuccess;
}

void allow(const char* op, const void* kernel, const Grid& grid) {
  const bool much = grid.shared > kWithoutAsking, wide = grid.cluster > 8;
  if (much || wide) check(allow_kernel(kernel, much ? grid.shared : 0, wide), op);
}

}  // namespace tenor::cuda
