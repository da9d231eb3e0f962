#include <mutex>

#include "src/cuda/capability.h"
#include "src/cuda/ptx/target.cuh"
#include "src/cuda/runtime.h"

namespace tenor::cuda {
namespace {

constexpr int kOld = 32, kWithClusters = 64, kHopper = 96;

/// Its launch bound says which of the library's codes the driver has loaded: a device may run another than its name
/// suggests (CUDA_FORCE_PTX_JIT, a later architecture).
__global__ void __launch_bounds__(ptx::kIsHopper ? kHopper : ptx::kHasClusters ? kWithClusters : kOld) probe_kernel() {}

Capability ask(Device device) {
  const DeviceGuard guard(device);
  cudaFuncAttributes probe{};
  check(cudaFuncGetAttributes(&probe, probe_kernel), "device");
  int shared = 0;
  check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index),
        "cudaDeviceGetAttribute");
  return {probe.maxThreadsPerBlock >= kWithClusters, probe.maxThreadsPerBlock == kHopper, static_cast<size_t>(shared)};
}

}  // namespace

Capability capability(Device device) {
  constexpr int kDevices = 64;
  static auto* asked = new std::once_flag[kDevices];
  static auto* known = new Capability[kDevices];
  std::call_once(asked[device.index % kDevices], [&] { known[device.index % kDevices] = ask(device); });
  return known[device.index % kDevices];
}

}  // namespace tenor::cuda
