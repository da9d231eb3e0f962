// What this machine can do at most, measured: the yardstick of benchmarks and of `explain`.
#pragma once

#include <array>

#include "tenor/device.h"

namespace tenor {

/// Memory rates of data of one total size, which its place in the caches decides.
struct MemoryRate {
  double size = 0;        ///< bytes touched again and again
  double read_bytes = 0;  ///< a second, reading alone
  double copy_bytes = 0;  ///< a second, half of them read and half written
};

/// Rates of all of num_threads() threads together.
struct DeviceLimits {
  double copy_bytes = 0;      ///< bytes read plus bytes written a second, copying memory larger than the caches
  double float32_flops = 0;   ///< a second, fused multiply-adds in registers, two FLOPs each
  double bfloat16_flops = 0;  ///< a second: the matrix unit's, or float32_flops where there is none
  std::array<MemoryRate, 5> memory = {};  ///< by rising size, 1 MiB to 256 MiB
};

/// The limits of the CPU at the current thread count. Measured once (about a second), then kept in the process and in
/// $TENOR_CACHE_DIR, $XDG_CACHE_HOME/tenor or ~/.cache/tenor by processor and thread count. `again` measures anew.
/// @throws UnsupportedError for another device.
DeviceLimits device_limits(Device device = kCpu, bool again = false);

}  // namespace tenor
