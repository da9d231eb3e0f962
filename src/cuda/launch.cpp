#include "src/cuda/launch.h"

#include <mutex>
#include <unordered_map>

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

}  // namespace

void allow(const char* op, const void* kernel, const Grid& grid) {
  constexpr size_t kWithoutAsking = 24 << 10;  // of 48 KiB, which a kernel's own arrays share
  const bool much = grid.shared > kWithoutAsking, wide = grid.cluster > 8;
  if (!much && !wide) return;
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  AllowedKernels& all = allowed_kernels();
  std::lock_guard lock(all.mutex);  // held while the driver is asked, so that nobody lowers what another thread raised
  Allowed& known = all.by_device[device % 64][kernel];
  if (much && grid.shared > known.shared) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(grid.shared)), op);
    known.shared = grid.shared;
  }
  if (wide && !known.wide) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), op);
    known.wide = true;
  }
}

}  // namespace tenor::cuda
