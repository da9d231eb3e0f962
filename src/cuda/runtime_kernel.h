// Kernels compiled while the program runs: from memory, from disk (kernel_files.h), or by NVRTC.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "src/cuda/kernel_files.h"
#include "src/cuda/nvrtc.h"
#include "tenor/device.h"

namespace tenor::cuda {

/// Where a kernel came from and what it takes of a multiprocessor.
struct KernelFacts {
  int registers = 0;    ///< of a thread
  int local_bytes = 0;  ///< of a thread: what did not fit its registers, and arrays with run-time indices
  bool from_disk = false;
  double seconds = 0;  ///< to compile, or to find on disk and load
};

class RuntimeKernel {
 public:
  RuntimeKernel(void* function, const KernelFacts& facts) : function_(function), facts_(facts) {}
  RuntimeKernel(const RuntimeKernel& same, const KernelFacts& facts) : RuntimeKernel(same.function_, facts) {}

  /// Launches on the device's current stream. `parameters` points to the kernel's one parameter, which is copied.
  /// @throws CudaError naming the operator
  void launch(const char* op, int64_t blocks, int threads, Device device, void* parameters) const;
  const KernelFacts& facts() const { return facts_; }

 private:
  void* function_;  // CUfunction of the device's primary context; lives as long as the process
  KernelFacts facts_;
};

/// The kernel `entry` of that text on that device, made by the first caller and then remembered; others that ask for it
/// meanwhile wait. May be called while a stream is captured.
/// @throws UnsupportedError where there is no compiler, CudaError with its log where the text is wrong
std::shared_ptr<const RuntimeKernel> runtime_kernel(const std::string& text, const char* entry,
                                                    std::span<const EmbeddedHeader> headers, Device device);

/// The kernels on disk: $TENOR_CACHE_DIR/kernels and so on (core/cache_folder.h).
const KernelFiles& kernel_files();

}  // namespace tenor::cuda
