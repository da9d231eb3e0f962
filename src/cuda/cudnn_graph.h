// cuDNN's backend descriptors: made, filled in and finalised, with errors as one exception.
#pragma once

#include "src/cuda/cudnn.h"

#if __has_include(<cudnn.h>)

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace tenor::cuda {

/// A call of cuDNN's that failed: what it says.
struct CudnnError : std::runtime_error {
  CudnnError(cudnnStatus_t status_, const std::string& text) : std::runtime_error(text), status(status_) {}

  /// Whether cuDNN does not do what was described (NOT_SUPPORTED, BAD_PARAM and their kinds), nor will the next time;
  /// else the call failed.
  bool declines() const { return category() == 2 || category() == 3; }
  /// Whether there was no memory, of the host or the device.
  bool out_of_memory() const { return status == kNoHostMemory || status == kNoDeviceMemory; }

  cudnnStatus_t status;

 private:
  static constexpr int kNoHostMemory = 4003, kNoDeviceMemory = 4004;  // of cuDNN 9; older headers lack the names
  int category() const { return static_cast<int>(status) / 1000; }
};

/// @throws CudnnError
void check_cudnn(cudnnStatus_t status, const char* what);

/// One descriptor, destroyed with its last copy.
class CudnnDescriptor {
 public:
  CudnnDescriptor() = default;
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);

  cudnnBackendDescriptor_t get() const { return held_.get(); }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* values);
  void set(cudnnBackendAttributeName_t name, int64_t value) { set(name, CUDNN_TYPE_INT64, 1, &value); }
  void set(cudnnBackendAttributeName_t name, const std::vector<int64_t>& values) {
    set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
  }
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value) { set(name, CUDNN_TYPE_DATA_TYPE, 1, &value); }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);
  void finalize();
  /// Values of an attribute, at most `most`.
  template <class T>
  std::vector<T> values(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most) const {
    std::vector<T> out(static_cast<size_t>(most));
    int64_t count = 0;
    get_attribute(name, type, most, &count, out.data());
    out.resize(static_cast<size_t>(count < most ? count : most));
    return out;
  }
  int64_t value(cudnnBackendAttributeName_t name) const;
  /// Descriptors of an attribute, each of that type.
  std::vector<CudnnDescriptor> descriptors(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) const;

 private:
  void get_attribute(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most, int64_t* count,
                     void* values) const;
  std::shared_ptr<void> held_;
};

}  // namespace tenor::cuda

#endif
