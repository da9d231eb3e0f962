// The CUDA runtime behind the core: checked calls, the current device and stream, and the flag that kernels raise.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>

#include "src/core/backend.h"

namespace tenor::cuda {

core::Backend& backend();

/// @throws OutOfMemoryError or CudaError naming `what` unless the call succeeded.
void check(cudaError_t status, const char* what);

/// Makes a device current on this thread while it lives.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
  int index_ = 0;
};

/// The stream that work on x's device goes to.
inline cudaStream_t stream_of(const Tensor& x) { return current_stream(x.device()).handle; }

/// Multiprocessors of the device, remembered.
int multiprocessors(Device device);

/// A count above 0 that each device has of its own: find() says it, once a device (or by several threads at once).
class DeviceCount {
 public:
  template <class Find>
  int of(Device device, Find&& find) {
    std::atomic<int>& known = counts_[device.index % kDevices];
    int count = known.load(std::memory_order_relaxed);
    if (count == 0) known.store(count = find(), std::memory_order_relaxed);
    return count;
  }

 private:
  static constexpr int kDevices = 64;
  std::atomic<int> counts_[kDevices] = {};
};

/// What a kernel found wrong with the contents of its arguments: the first entry wins. Lives in pinned host memory, one a
/// stream, so that the host reads it without a copy once the stream is done.
struct ContentError {
  int raised;         ///< 0: nothing wrong; 1: written
  int op;             ///< an id from content_op()
  int64_t position;   ///< of the bad entry in its array
  int64_t value;
};

/// The flag of that stream, in memory that both sides see.
ContentError* content_error(Stream stream);
/// The id of an operator and argument for ContentError::op, given once at load time.
int content_op(const char* op, const char* argument);

}  // namespace tenor::cuda
