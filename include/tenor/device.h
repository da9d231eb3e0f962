// Devices: where a tensor's memory is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tenor {

enum class DeviceType : uint8_t {
  kCpu,
  kCuda,
  kMeta,  ///< shapes without memory: what `explain` traces with
};

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  friend bool operator==(Device, Device) = default;
};

inline constexpr Device kCpu{DeviceType::kCpu, 0};

/// "cpu", "cuda:0", "meta".
std::string to_string(Device device);
/// The device of that name ("cpu", "cuda", "cuda:1", "meta"). @throws ValueError for an unknown one.
Device device_from_name(std::string_view name);

/// Threads that CPU operators use: OMP_NUM_THREADS, or all cores, until set.
int num_threads();
/// Sets the thread count of CPU operators, process-wide. @throws ValueError below 1.
void set_num_threads(int count);

}  // namespace tenor
