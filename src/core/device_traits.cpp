#include "src/core/device_traits.h"

#include <cstdlib>
#include <utility>

#include "src/core/backend.h"
#include "src/core/instruments.h"

#if TENOR_HAS_CUDA
#include "src/cuda/device.h"
#endif

namespace tenor::core {
namespace {

thread_local const DeviceTraits* described = nullptr;

}  // namespace

const DeviceTraits& device_traits(Device device) {
  static const DeviceTraits cpu;
  if (device.type == DeviceType::kCuda) return instruments(device).traits(device);
  return device.type == DeviceType::kMeta && described ? *described : cpu;
}

Instruments& instruments(Device device) {
  backend(device);  // throws where there is no such device
#if TENOR_HAS_CUDA
  return cuda::instruments();
#else
  std::abort();
#endif
}

TraitsGuard::TraitsGuard(DeviceTraits traits)
    : traits_(std::move(traits)), previous_(std::exchange(described, &traits_)) {}
TraitsGuard::~TraitsGuard() { described = previous_; }

}  // namespace tenor::core
