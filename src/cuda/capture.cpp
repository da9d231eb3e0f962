#include "src/cuda/capture.h"

#include <exception>
#include <memory>

#include "src/core/text.h"
#include "src/cuda/runtime.h"
#include "tenor/error.h"

namespace tenor::cuda {

unsigned long long capture_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  if (cudaStreamGetCaptureInfo(stream, &status, &id) == cudaSuccess)
    return status == cudaStreamCaptureStatusNone ? 0 : id;
  cudaGetLastError();  // of the default stream while another is captured: it takes no part
  return 0;
}

void check_not_captured(cudaStream_t stream, const char* what) {
  if (capture_of(stream) != 0) core::fail<UnsupportedError>("{}, so it cannot be captured in a graph", what);
}

void capture_in_vain(Device device, const std::function<void()>& fn) {
  const DeviceGuard guard(device);
  const RelaxedCapture relaxed;
  cudaStream_t made = nullptr;
  check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  const std::unique_ptr<CUstream_st, cudaError_t (*)(cudaStream_t)> stream(made, cudaStreamDestroy);
  const StreamGuard current(Stream{device, made});
  check(cudaStreamBeginCapture(made, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  std::exception_ptr error;
  try {
    fn();
  } catch (...) {
    error = std::current_exception();
  }
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(made, &graph);
  if (graph) cudaGraphDestroy(graph);
  if (ended != cudaSuccess) cudaGetLastError();
  if (error) std::rethrow_exception(error);
  check(ended, "cudaStreamEndCapture");
}

RelaxedCapture::RelaxedCapture() {
  check(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode");
}
RelaxedCapture::~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }

}  // namespace tenor::cuda
