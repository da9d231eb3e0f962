#include "src/fusion/backend.h"

#include <array>
#include <optional>

#include "src/fusion/cpu_kernel.h"

namespace tenor::fusion {
namespace {

std::array<std::optional<FusionBackend>, 4>& backends() {
  static std::array<std::optional<FusionBackend>, 4> all{
      FusionBackend{cpu_declines, [](const Program& program, Device) { return make_cpu_kernel(program); }}};
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

}  // namespace tenor::fusion
