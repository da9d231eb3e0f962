// Streams: the order in which a thread's work runs on a CUDA device.
#pragma once

#include <optional>
#include <string>

#include "tenor/device.h"

struct CUstream_st;  // what a cudaStream_t points to

namespace tenor {

/// A CUDA stream; the null handle is the device's default stream. The CPU has one, which is always done.
struct Stream {
  Device device;
  CUstream_st* handle = nullptr;
};

/// The stream that this thread's operators use on that device.
Stream current_stream(Device device);

/// Makes a stream of the caller's the current one of this thread and device while it lives. The caller keeps it alive.
class StreamGuard {
 public:
  explicit StreamGuard(Stream stream);
  /// A cudaStream_t of device `index`.
  explicit StreamGuard(CUstream_st* handle, int index = 0) : StreamGuard(Stream{{DeviceType::kCuda, index}, handle}) {}
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream previous_;
};

/// CUDA devices that this build and machine have; 0 without CUDA. Touches the driver on its first call.
int cuda_device_count();

/// Waits for this thread's current stream of that device, then throws what a kernel on it found wrong, if anything did
/// (an index out of range, say). Nothing to wait for on the CPU. @throws IndexError, ValueError, CudaError, DeviceError
void synchronize(Device device);

/// What kernels of this thread's current stream of that device found wrong so far, without waiting; cleared by the call.
std::optional<std::string> take_error(Device device);

}  // namespace tenor
