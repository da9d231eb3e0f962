// NVRTC, NVIDIA's run-time compiler, opened at run time: of the major version of CUDA that Tenor was built with. The
// functions of its mathematical library are part of the bits; another minor version's may differ from the eager
// kernels' in the last one, and what it compiled is kept apart (runtime_kernel.h).
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tenor::cuda {

/// A file that compiled text may include, by the name that it is included by.
struct EmbeddedHeader {
  const char* name;
  const char* text;
};

/// What text is compiled for and with.
struct CompileTarget {
  int major, minor;  ///< compute capability
};

/// Options of every compilation: C++20, IEEE division and square root, no contraction, no fast math; exactly the code
/// of that device.
std::vector<std::string> compile_options(const CompileTarget& target);

/// Why an NVRTC of that version, from that file, is not taken; empty where it is.
std::string why_not_version(const std::string& path, int major, int minor);

/// Why nothing can be compiled at run time here; empty where it can.
std::string why_no_nvrtc();

/// "13.0": the version of the compiler in use. @throws UnsupportedError where there is none
std::string nvrtc_version();

/// Compiles CUDA C++ to a cubin. `name` stands for the text in the compiler's messages.
/// @throws UnsupportedError where libnvrtc of the major CUDA version that Tenor was built with is not found or does not
/// know the device, CudaError with the compiler's log where the text is wrong
std::string compile_cubin(const std::string& name, const std::string& text, std::span<const EmbeddedHeader> headers,
                          const CompileTarget& target);

}  // namespace tenor::cuda
