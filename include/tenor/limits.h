// What this machine can do at most, measured: the yardstick of benchmarks and of `explain`.
#pragma once

#include "tenor/device.h"

namespace tenor {

/// Rates of all of num_threads() threads together.
struct DeviceLimits {
  double copy_bytes = 0;      ///< bytes read plus bytes written a second, copying memory larger than the caches
  double float32_flops = 0;   ///< a second, fused multiply-adds in registers, two FLOPs each
  double bfloat16_flops = 0;  ///< a second: the matrix unit's, or float32_flops where there is none
};

/// The limits of the CPU at the current thread count. Measured once (about a second), then kept in the process and in
/// $TENOR_CACHE_DIR, $XDG_CACHE_HOME/tenor or ~/.cache/tenor by processor and thread count. `again` measures anew.
/// @throws UnsupportedError for another device.
DeviceLimits device_limits(Device device = kCpu, bool again = false);

}  // namespace tenor
