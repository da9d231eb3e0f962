// Who runs fused kernels: one executor a device type.
#pragma once

#include <memory>
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
/// What the planner asks of such a device; null where nothing was registered.
Decline decline_of(DeviceType type);

}  // namespace tenor::fusion
