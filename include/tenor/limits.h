// What this machine can do at most, measured: the yardstick of benchmarks and of `explain`.
#pragma once

#include <array>

#include "tenor/device.h"

namespace tenor {

/// Memory rates of data of one total size, which its place in the caches decides.
struct MemoryRate {
  double size = 0;          ///< bytes touched again and again
  double read_bytes = 0;    ///< a second, reading alone
  double copy_bytes = 0;    ///< a second, half of them read and half written
  double turned_bytes = 0;  ///< the same of a copy that transposes a matrix of floats; 0 unknown
};

/// Functions of floats of one width, elements a second, operands in the nearest cache. 0: unknown, and bounds nothing.
struct FunctionRates {
  double exponentials = 0;  ///< e^x as the library's kernels compute it; no other function that needs more is faster
  double divisions = 0;     ///< quotients and square roots
};

/// Conversions of a 16-bit float, elements a second, in the nearest cache. 0: unknown, and bounds nothing.
struct ConversionRates {
  double widened = 0;  ///< to float32 as they are read
  double rounded = 0;  ///< from float32, to nearest even, as they are written
};

/// Rates of all of num_threads() threads together, or of a CUDA device.
struct DeviceLimits {
  double copy_bytes = 0;        ///< bytes read plus bytes written a second, copying memory larger than the caches
  double float32_flops = 0;     ///< a second, fused multiply-adds in registers, two FLOPs each
  double bfloat16_flops = 0;    ///< a second: the matrix unit's, or float32_flops where there is none; on CUDA the
                                ///< largest product's of random numbers, which power bounds
  double float64_flops = 0;     ///< as float32_flops
  double float64_products = 0;  ///< FLOPs a second of the largest float64 product
  FunctionRates float32, float64;
  ConversionRates float16, bfloat16;
  std::array<MemoryRate, 5> memory =
      {};  ///< by rising size, 1 MiB to 256 MiB; on CUDA the same for all: past the L2 cache
};

/// The limits of the CPU at the current thread count, or of a CUDA device. Measured once (a few seconds), then kept in
/// the process and in $TENOR_CACHE_DIR, $XDG_CACHE_HOME/tenor or ~/.cache/tenor, by processor and thread count, or GPU,
/// driver and cuBLASLt. `again` measures anew.
///
/// A busy machine measures too low, never too high: what is kept is the best of several attempts some time apart, until
/// one adds less than 2%. raise_limits() mends what still came out low.
/// @throws DeviceError where there is no such device.
DeviceLimits device_limits(Device device = kCpu, bool again = false);

/// For whoever has seen work beat the limits by more than 5%: measures once more and keeps the greater of each rate. At
/// most three times a process and device. Returns whether a rate rose by more than 1%.
bool raise_limits(Device device = kCpu);

}  // namespace tenor
