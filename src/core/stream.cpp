#include "tenor/stream.h"

#include <vector>

#include "src/core/backend.h"
#include "src/core/text.h"
#include "src/core/untraceable.h"

#if TENOR_HAS_CUDA
#include "src/cuda/runtime.h"
#endif

namespace tenor {
namespace {

thread_local std::vector<CUstream_st*> current_handles;  // by device index

CUstream_st*& current_handle(Device device) {
  const auto index = static_cast<size_t>(device.index);
  if (index >= current_handles.size()) current_handles.resize(index + 1, nullptr);
  return current_handles[index];
}

}  // namespace

Stream current_stream(Device device) {
  return {device, device.type == DeviceType::kCuda ? current_handle(device) : nullptr};
}

StreamGuard::StreamGuard(Stream stream) : previous_(current_stream(stream.device)) {
  if (stream.device.type == DeviceType::kCuda) current_handle(stream.device) = stream.handle;
}
StreamGuard::~StreamGuard() {
  if (previous_.device.type == DeviceType::kCuda) current_handle(previous_.device) = previous_.handle;
}

core::Backend& core::backend(Device device) {
#if TENOR_HAS_CUDA
  if (device.type == DeviceType::kCuda) {
    const int count = cuda_device_count();
    if (device.index >= count)
      fail<DeviceError>("device: there is no {}, this machine has {} CUDA devices", device, count);
    return cuda::backend();
  }
#endif
  if (device.type == DeviceType::kMeta)
    fail_untraceable<DeviceError>("device: a tensor on the meta device has a shape, but no data");
  fail<DeviceError>("device: this build of Tenor does not serve {}", device);
}

int cuda_device_count() {
#if TENOR_HAS_CUDA
  return cuda::backend().device_count();
#else
  return 0;
#endif
}

void synchronize(Device device) {
  if (device.type == DeviceType::kCuda) core::backend(device).synchronize(current_stream(device));
}

std::optional<std::string> take_error(Device device) {
  if (device.type != DeviceType::kCuda) return {};
  return core::backend(device).take_error(current_stream(device));
}

}  // namespace tenor
