#include "src/cuda/runtime.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "src/core/text.h"
#include "src/cuda/capture.h"
#include "src/cuda/content_kind.h"
#include "src/cuda/copy.h"
#include "src/cuda/fill.h"
#include "src/cuda/memory.h"

namespace tenor::cuda {
namespace {

struct ContentOp {
  std::string name;
  ContentKind kind;
  const char* text;
};
struct ContentOps {
  std::mutex mutex;
  std::vector<ContentOp> ops;
};
ContentOps& content_ops() {
  static auto* ops = new ContentOps;
  return *ops;
}

struct ContentErrors {
  std::mutex mutex;
  std::map<std::pair<int, CUstream_st*>, ContentError*> flags;
};
ContentErrors& content_errors() {
  static auto* errors = new ContentErrors;
  return *errors;
}

/// What a flag says, once read.
struct Finding {
  ContentKind kind;
  std::string text;
};

std::optional<Finding> take_finding(Stream stream) {
  std::lock_guard lock(content_errors().mutex);
  const auto found = content_errors().flags.find({stream.device.index, stream.handle});
  if (found == content_errors().flags.end() || !static_cast<volatile ContentError*>(found->second)->raised) return {};
  const ContentError error = *found->second;
  found->second->raised = 0;
  std::lock_guard names(content_ops().mutex);
  const ContentOp& op = content_ops().ops[static_cast<size_t>(error.op)];
  return Finding{op.kind, op.name + core::text(op.text, error.value, error.position)};
}

[[noreturn]] void raise(const Finding& finding) {
  switch (finding.kind) {
    case ContentKind::kValue:
      throw ValueError(finding.text);
    case ContentKind::kShape:
      throw ShapeError(finding.text);
    default:
      throw IndexError(finding.text);
  }
}

class CudaBackend final : public core::Backend {
 public:
  int device_count() override {
    static const int count = [] {
      int found = 0;
      return cudaGetDeviceCount(&found) == cudaSuccess ? found : 0;  // no driver, no device: not an error
    }();
    return count;
  }

  std::shared_ptr<void> allocate(size_t bytes, Device device) override { return cuda::allocate(bytes, device); }

  void copy_bytes(void* dst, Device to, const void* src, Device from, size_t bytes) override {
    if (bytes == 0) return;
    const Device device = to.type == DeviceType::kCuda ? to : from;
    const DeviceGuard guard(device);
    const cudaStream_t stream = current_stream(device).handle;
    if (to.type == DeviceType::kCpu) check_not_captured(stream, "copy: the host waits for what it reads");
    if (from.type == DeviceType::kCpu)
      check_not_captured(stream, "copy: a replay would find other contents in host memory");
    check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    if (to.type == DeviceType::kCpu) synchronize(current_stream(device));
  }

  void copy_into(const Tensor& src, const Tensor& dst) override { copy_strided(src, dst); }
  void fill(const Tensor& dst, const void* element) override { cuda::fill(dst, element); }

  void check_may_wait(const char* op, Device device) override {
    const std::string what = std::string(op) + ": the size of the result depends on data";
    check_not_captured(current_stream(device).handle, what.c_str());
  }

  void synchronize(Stream stream) override {
    const DeviceGuard guard(stream.device);
    check_not_captured(stream.handle, "synchronize: a captured stream has nothing to wait for");
    check(cudaStreamSynchronize(stream.handle), "cudaStreamSynchronize");
    if (const auto finding = take_finding(stream)) raise(*finding);
  }

  std::optional<std::string> take_error(Stream stream) override {
    if (auto finding = take_finding(stream)) return std::move(finding->text);
    return {};
  }
};

}  // namespace

core::Backend& backend() {
  static auto* instance = new CudaBackend;
  return *instance;
}

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // the next call starts clean
  if (status == cudaErrorMemoryAllocation) core::fail<OutOfMemoryError>("{}: out of device memory", what);
  core::fail<CudaError>("{}: {}", what, cudaGetErrorString(status));
}

DeviceGuard::DeviceGuard(Device device) : index_(device.index) {
  check(cudaGetDevice(&previous_), "cudaGetDevice");
  if (previous_ != index_) check(cudaSetDevice(index_), "cudaSetDevice");
}
DeviceGuard::~DeviceGuard() {
  if (previous_ != index_) cudaSetDevice(previous_);
}

int multiprocessors(Device device) {
  static auto* counts = new DeviceCount;
  return counts->of(device, [&] {
    int count = 0;
    check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device.index), "cudaDeviceGetAttribute");
    return count;
  });
}

ContentError* content_error(Stream stream) {
  std::lock_guard lock(content_errors().mutex);
  ContentError*& flag = content_errors().flags[{stream.device.index, stream.handle}];
  if (!flag) {
    const DeviceGuard guard(stream.device);
    void* memory = nullptr;
    const RelaxedCapture relaxed;
    check(cudaHostAlloc(&memory, sizeof(ContentError), cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc");
    flag = new (memory) ContentError{};
  }
  return flag;
}

int content_op(const char* op, const char* argument) { return content_op(op, argument, ContentKind::kIndex); }

int content_op(const char* op, const char* argument, ContentKind kind, const char* text) {
  std::lock_guard lock(content_ops().mutex);
  content_ops().ops.push_back({std::string(op) + ": " + argument, kind, text});
  return static_cast<int>(content_ops().ops.size()) - 1;
}

int named_content_op(const char* op, const char* argument, ContentKind kind) {
  static std::mutex mutex;
  static auto* ids = new std::map<std::pair<const char*, const char*>, int>;
  std::lock_guard lock(mutex);
  const auto [found, is_new] = ids->try_emplace({op, argument}, 0);
  if (is_new) found->second = content_op(op, argument, kind);
  return found->second;
}

}  // namespace tenor::cuda
