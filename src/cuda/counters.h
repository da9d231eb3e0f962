// Counters that kernels start from zero, without a launch that zeroes them.
#pragma once

#include "tenor/device.h"

namespace tenor::cuda {

/// An int on the device that is 0 for the next launch on the device's current stream, and that launch's alone: cut from
/// pieces that are zeroed a thousand at a time. Null while the stream is captured, since a graph may run beside itself,
/// and where streams have no numbers: then the caller zeroes memory of its own. The device is current (DeviceGuard).
/// @throws OutOfMemoryError
int* zeroed_counter(Device device);

}  // namespace tenor::cuda
