// What candidates ask of a device: of the one that holds a tensor, or of one that a traced shape stands for.
#pragma once

#include <cstdint>
#include <string>

#include "tenor/device.h"

namespace tenor::core {

struct DeviceTraits {
  DeviceType type = DeviceType::kCpu;
  std::string name = {};  ///< "NVIDIA H200"; empty for the CPU
  int capability = 0;     ///< CUDA compute capability, 90 for 9.0, of the library's code that runs there
  int64_t memory = 0;     ///< bytes; 0 where nobody asked
  int64_t cache = 0;      ///< bytes of L2
  int multiprocessors = 0;
  double clock = 0;  ///< of the multiprocessors at most, Hz
  int index = -1;    ///< of this machine's CUDA device; -1 for the CPU and for a device that is not here
};

/// Of a CUDA device what its driver says, asked once; of the meta device what the innermost TraitsGuard says, the CPU
/// where there is none. @throws DeviceError when this machine has no such device
const DeviceTraits& device_traits(Device device);

/// The device type whose candidates compute on tensors of that device: of the meta device the described one's.
inline DeviceType runs_on(Device device) {
  return device.type == DeviceType::kMeta ? device_traits(device).type : device.type;
}

/// The CUDA device at hand that traced shapes stand for, the meta device where there is none; every other device
/// itself.
inline Device stands_for(Device device) {
  if (device.type != DeviceType::kMeta) return device;
  const int index = device_traits(device).index;
  return index < 0 ? device : Device{DeviceType::kCuda, index};
}

/// While it lives, traced shapes of this thread stand for that device.
class TraitsGuard {
 public:
  explicit TraitsGuard(DeviceTraits traits);
  ~TraitsGuard();
  TraitsGuard(const TraitsGuard&) = delete;
  TraitsGuard& operator=(const TraitsGuard&) = delete;

 private:
  DeviceTraits traits_;
  const DeviceTraits* previous_;
};

}  // namespace tenor::core
