#include "src/cuda/device.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>

#include "src/core/compute_capability.h"
#include "src/core/text.h"
#include "src/cuda/capability.h"
#include "src/cuda/cublaslt.h"
#include "src/cuda/limits.h"
#include "src/cuda/runtime.h"

namespace tenor::cuda {
namespace {

constexpr int kMostDevices = 64;
using core::kHopper;
constexpr int kPtx = 80;  // where the driver compiled the library's PTX, its code is that of compute_80

core::DeviceTraits ask_driver(Device device) {
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, device.index), "cudaDeviceGetAttribute");
    return value;
  };
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device.index), "cudaGetDeviceProperties");
  core::DeviceTraits traits{DeviceType::kCuda, properties.name};
  traits.capability = 10 * properties.major + properties.minor;
  if (traits.capability >= kHopper && !capability(device).hopper) traits.capability = kPtx;
  traits.memory = static_cast<int64_t>(properties.totalGlobalMem), traits.cache = properties.l2CacheSize;
  traits.multiprocessors = properties.multiProcessorCount;
  traits.index = device.index;
  traits.clock = 1e3 * attribute(cudaDevAttrClockRate);
  return traits;
}

/// What the driver says of a device, asked once.
const core::DeviceTraits& traits_of(Device device) {
  static auto* asked = new std::array<std::once_flag, kMostDevices>;
  static auto* known = new std::array<core::DeviceTraits, kMostDevices>;
  const auto index = static_cast<size_t>(device.index % kMostDevices);
  std::call_once((*asked)[index], [&] { (*known)[index] = ask_driver(device); });
  return (*known)[index];
}

/// What a fill writes so that nothing of an operator's data is left in the L2 cache.
int64_t flush_bytes(Device device) { return std::max<int64_t>(2 * traits_of(device).cache, int64_t{128} << 20); }

class EventTimer final : public core::DeviceTimer {
 public:
  explicit EventTimer(Device device) : device_(device), flush_(Tensor::empty({flush_bytes(device)}, uint8, device)) {}
  ~EventTimer() override {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }

  /// The fill takes longer than the host needs to hand over what is timed, so the device does not wait for it.
  void start() override {
    const DeviceGuard guard(device_);
    check(cudaMemsetAsync(flush_.raw(), 0, static_cast<size_t>(flush_.numel()), stream()), "cudaMemsetAsync");
    mark(2 * count_);
  }
  void stop() override {
    const DeviceGuard guard(device_);
    mark(2 * count_++ + 1);
  }

  std::vector<double> seconds() override {
    const DeviceGuard guard(device_);
    std::vector<double> out;
    if (count_ > 0) check(cudaEventSynchronize(events_[2 * count_ - 1]), "cudaEventSynchronize");
    for (size_t i = 0; i < count_; ++i) {
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, events_[2 * i], events_[2 * i + 1]), "cudaEventElapsedTime");
      out.push_back(1e-3 * milliseconds);
    }
    count_ = 0;
    return out;
  }

 private:
  cudaStream_t stream() const { return current_stream(device_).handle; }
  void mark(size_t index) {
    while (events_.size() <= index) {
      events_.push_back(nullptr);
      check(cudaEventCreate(&events_.back()), "cudaEventCreate");
    }
    check(cudaEventRecord(events_[index], stream()), "cudaEventRecord");
  }

  Device device_;
  Tensor flush_;
  std::vector<cudaEvent_t> events_;  // a start and a stop each
  size_t count_ = 0;                 // of those stopped
};

std::string cublaslt_version() {
#if __has_include(<cublasLt.h>)
  const CublasLt& lt = cublaslt();
  if (!lt.missing.empty()) return "no cuBLASLt";
  const size_t version = lt.GetVersion();
  return core::text("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
#else
  return "no cuBLASLt";
#endif
}

class CudaInstruments final : public core::Instruments {
 public:
  const core::DeviceTraits& traits(Device device) override { return traits_of(device); }
  std::unique_ptr<core::DeviceTimer> timer(Device device) override { return std::make_unique<EventTimer>(device); }
  DeviceLimits measure_limits(Device device) override { return cuda::measure_limits(device); }

  /// "NVIDIA H200, compute capability 9.0, CUDA driver 13.0, cuBLASLt 13.1.0".
  std::string machine_key(Device device) override {
    static const int driver = [] {
      int version = 0;
      check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
      return version;
    }();
    static const std::string library = cublaslt_version();
    const core::DeviceTraits& t = traits_of(device);
    return core::text("{}, compute capability {}.{}, CUDA driver {}.{}, {}", t.name, t.capability / 10,
                      t.capability % 10, driver / 1000, driver % 1000 / 10, library);
  }

  bool capturing(Device device) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(current_stream(device).handle, &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
  }
};

}  // namespace

core::Instruments& instruments() {
  static auto* all = new CudaInstruments;
  return *all;
}

}  // namespace tenor::cuda
