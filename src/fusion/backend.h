// Who runs fused kernels: one executor a device type.
#pragma once

#include <memory>
#include <string>

#include "src/fusion/program.h"

namespace tenor::fusion {

struct FusionBackend {
  /// Why that program cannot be one kernel here; empty where it can. Asked by the planner.
  std::string (*decline)(const Program&) = nullptr;
  /// Made once for a program and kept. @throws tenor::Error where it cannot be
  std::shared_ptr<const Executable> (*compile)(const Program&, Device) = nullptr;
};

void register_fusion_backend(DeviceType type, FusionBackend backend);
/// Null where nothing was registered: then every step runs on its own.
const FusionBackend* fusion_backend(DeviceType type);

}  // namespace tenor::fusion
