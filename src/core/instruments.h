// What measuring on a device needs beside running there: who it is, how long work takes, what it can do at most.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/core/device_traits.h"
#include "tenor/limits.h"

namespace tenor::core {

/// Times pieces of work on a device's current stream. The device notes when it reaches a mark; nothing waits before
/// seconds() does, so what is timed runs as it would without.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;
  /// What is called from here on is timed, its data out of the L2 cache.
  virtual void start() = 0;
  virtual void stop() = 0;
  /// Of each start and stop so far, in order; forgets them. Waits for the stream.
  virtual std::vector<double> seconds() = 0;
};

class Instruments {
 public:
  virtual ~Instruments() = default;
  virtual const DeviceTraits& traits(Device device) = 0;
  virtual std::unique_ptr<DeviceTimer> timer(Device device) = 0;
  /// One attempt at device_limits().
  virtual DeviceLimits measure_limits(Device device) = 0;
  /// Device, driver and libraries on one line: what measurements on it depend on.
  virtual std::string machine_key(Device device) = 0;
  /// Whether the device's current stream is being captured in a graph, so that nothing may wait for it.
  virtual bool capturing(Device device) = 0;
};

/// Of a CUDA device; src/cuda implements it. @throws DeviceError when this build has none, or the machine no such
/// device.
Instruments& instruments(Device device);

}  // namespace tenor::core
