#include "src/cuda/capture.h"

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

RelaxedCapture::RelaxedCapture() {
  check(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode");
}
RelaxedCapture::~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }

}  // namespace tenor::cuda
