#include "src/cuda/cudnn_graph.h"

#if __has_include(<cudnn.h>)

namespace tenor::cuda {

void check_cudnn(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw CudnnError(status, std::string(what) + ": " + cudnn().GetErrorString(status));
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made = nullptr;
  check_cudnn(cudnn().BackendCreateDescriptor(type, &made), "cudnnBackendCreateDescriptor");
  held_ = std::shared_ptr<void>(made, [](void* descriptor) { cudnn().BackendDestroyDescriptor(descriptor); });
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                          const void* values) {
  check_cudnn(cudnn().BackendSetAttribute(get(), name, type, count, values), "cudnnBackendSetAttribute");
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
  cudnnBackendDescriptor_t other = value.get();
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
}

void CudnnDescriptor::finalize() { check_cudnn(cudnn().BackendFinalize(get()), "cudnnBackendFinalize"); }

void CudnnDescriptor::get_attribute(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
                                    int64_t* count, void* values) const {
  check_cudnn(cudnn().BackendGetAttribute(get(), name, type, most, count, values), "cudnnBackendGetAttribute");
}

int64_t CudnnDescriptor::value(cudnnBackendAttributeName_t name) const {
  const std::vector<int64_t> one = values<int64_t>(name, CUDNN_TYPE_INT64, 1);
  return one.empty() ? 0 : one[0];
}

std::vector<CudnnDescriptor> CudnnDescriptor::descriptors(cudnnBackendAttributeName_t name,
                                                          cudnnBackendDescriptorType_t type) const {
  int64_t count = 0;
  get_attribute(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr);
  std::vector<CudnnDescriptor> out;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) raw.push_back(out.emplace_back(type).get());
  if (count > 0) get_attribute(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, raw.data());
  out.resize(static_cast<size_t>(count) < out.size() ? static_cast<size_t>(count) : out.size());
  return out;
}

}  // namespace tenor::cuda

#endif
