// Counters that kernels start from zero, without a launch that zeroes them.
#pragma once

#include <memory>

#include "tenor/device.h"

namespace tenor::cuda {

/// An int on the device that is 0 for the next launch on the device's current stream, and that launch's alone: cut from
/// pieces that are zeroed a thousand at a time. Null while the stream is captured, since a graph may run beside itself,
/// and where streams have no numbers: then the caller zeroes memory of its own. The device is current (DeviceGuard).
/// @throws OutOfMemoryError
int* zeroed_counter(Device device);

/// Such a counter, or where there is none memory of its own, which a command of the stream zeroes: kept until the
/// launch has been handed over. @throws OutOfMemoryError, CudaError naming `op`
class ZeroedCounter {
 public:
  ZeroedCounter(Device device, const char* op);
  int* get() const { return at_; }

 private:
  std::shared_ptr<void> own_;
  int* at_;
};

}  // namespace tenor::cuda
