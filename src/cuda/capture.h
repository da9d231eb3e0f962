// What a stream's capture in a graph asks of the code around the kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "tenor/device.h"

namespace tenor::cuda {

/// The capture that a stream takes part in; 0 for none.
unsigned long long capture_of(cudaStream_t stream);

/// @throws UnsupportedError "`what`, so it cannot be captured in a graph" while the stream is captured
void check_not_captured(cudaStream_t stream, const char* what);

/// fn() with a stream of its own captured as the device's current one; the graph is thrown away, so that nothing runs.
/// What fn allocates must be gone when it returns.
void capture_in_vain(Device device, const std::function<void()>& fn);

/// While it lives, this thread may make calls that a capture forbids otherwise: for what is made once and outlives
/// every graph (pinned memory, a library's handle), and may be needed first by an operator that is captured.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace tenor::cuda
