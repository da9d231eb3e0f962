#include "src/fusion/backend.h"

#include <array>
#include <optional>

#include "src/core/backend.h"
#include "src/cuda/fusion/executor.h"
#include "src/cuda/runtime_kernel.h"
#include "src/fusion/cpu_kernel.h"

namespace tenor::fusion {
namespace {

std::array<std::optional<FusionBackend>, 4>& backends() {
  static std::array<std::optional<FusionBackend>, 4> all = [] {
    std::array<std::optional<FusionBackend>, 4> own;
    own[static_cast<size_t>(DeviceType::kCpu)] =
        FusionBackend{cpu_declines, [] { return std::string(); },
                      [](const Program& program, Device) { return make_cpu_kernel(program); }};
    if constexpr (core::kHasCuda)
      own[static_cast<size_t>(DeviceType::kCuda)] =
          FusionBackend{cuda::cuda_declines, cuda::why_no_nvrtc, cuda::compile_fused};
    return own;
  }();
  return all;
}

}  // namespace

void register_fusion_backend(DeviceType type, FusionBackend backend) {
  backends().at(static_cast<size_t>(type)) = backend;
}

const FusionBackend* fusion_backend(DeviceType type) {
  const auto& found = backends().at(static_cast<size_t>(type));
  return found ? &*found : nullptr;
}

std::optional<KernelCache> kernel_cache() {
  if constexpr (core::kHasCuda) {
    const cuda::KernelFiles& files = cuda::kernel_files();
    const cuda::KernelFiles::Size size = files.size();
    return KernelCache{files.folder().string(), files.refused(), size.files, size.bytes};
  }
  return {};
}

Decline decline_of(DeviceType type) {
  const FusionBackend* backend = fusion_backend(type);
  return backend ? backend->decline : nullptr;
}

}  // namespace tenor::fusion
