// Who runs fused kernels: one executor a device type.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "src/fusion/planner.h"

namespace tenor::fusion {

struct FusionBackend {
  /// Why that program cannot be one kernel here; empty where it can. Asked by the planner.
  Decline decline = nullptr;
  /// Why nothing can be compiled at all, such as a missing compiler; empty where it can.
  std::string (*unavailable)() = nullptr;
  /// Made once for a program and kept. @throws tenor::Error where it cannot be
  std::shared_ptr<const Executable> (*compile)(const Program&, Device) = nullptr;
};

void register_fusion_backend(DeviceType type, FusionBackend backend);
/// Null where nothing was registered: then every step runs on its own.
const FusionBackend* fusion_backend(DeviceType type);
/// The compiled kernels on disk.
struct KernelCache {
  std::string folder, refused;  ///< `refused`: why it is not used; empty where it is
  int64_t files = 0, bytes = 0;
};
/// Nothing in a build that compiles none.
std::optional<KernelCache> kernel_cache();
/// What the planner asks of such a device; null where nothing was registered.
Decline decline_of(DeviceType type);

}  // namespace tenor::fusion
