// What a device other than the CPU does for the core: memory, copies, waiting. src/cuda implements it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tenor/stream.h"
#include "tenor/tensor.h"

namespace tenor::core {

#if TENOR_HAS_CUDA
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif
/// Where an operator forks: `if constexpr (kHasCuda) { if (on_cuda(x)) return launch_it(...); }`. In a build without CUDA the
/// discarded branch names no kernel, so nothing is missing when linking.
inline bool on_cuda(const Tensor& x) { return x.device().type == DeviceType::kCuda; }

class Backend {
 public:
  virtual ~Backend() = default;
  virtual int device_count() = 0;
  /// Memory for work on the current stream. @throws OutOfMemoryError
  virtual std::shared_ptr<void> allocate(size_t bytes, Device device) = 0;
  /// Between the host and a device, or within one, ordered on the device's current stream; a copy to the host has arrived
  /// on return. Dense bytes.
  virtual void copy_bytes(void* dst, Device to, const void* src, Device from, size_t bytes) = 0;
  /// copy_into between two tensors of one device, ordered on its current stream.
  virtual void copy_into(const Tensor& src, const Tensor& dst) = 0;
  /// dst = one element, which lies in host memory and has dst's dtype.
  virtual void fill(const Tensor& dst, const void* element) = 0;
  /// @throws UnsupportedError naming op while the device's current stream is captured: the operator has to wait for it.
  virtual void check_may_wait(const char* op, Device device) = 0;
  virtual void synchronize(Stream stream) = 0;
  virtual std::optional<std::string> take_error(Stream stream) = 0;
};

/// The backend of a CUDA device. @throws DeviceError when this build has none, or the machine no such device.
Backend& backend(Device device);

}  // namespace tenor::core
