// cuDNN's graph interface, opened at run time.
#pragma once

#include <string>

#if __has_include(<cudnn.h>)

#include <cudnn.h>

namespace tenor::cuda {

/// The functions that Tenor calls, or why there are none.
struct Cudnn {
  std::string missing;  ///< empty: every function is there
  std::string path;     ///< the file they come from

  decltype(&cudnnGetVersion) GetVersion = nullptr;
  decltype(&cudnnGetErrorString) GetErrorString = nullptr;
  decltype(&cudnnCreate) Create = nullptr;
  decltype(&cudnnSetStream) SetStream = nullptr;
  decltype(&cudnnBackendCreateDescriptor) BackendCreateDescriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) BackendDestroyDescriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) BackendSetAttribute = nullptr;
  decltype(&cudnnBackendGetAttribute) BackendGetAttribute = nullptr;
  decltype(&cudnnBackendFinalize) BackendFinalize = nullptr;
  decltype(&cudnnBackendExecute) BackendExecute = nullptr;
};

/// libcudnn.so.9, which the environment variable TENOR_CUDNN may name (shared_library.h says where else it is looked for).
/// Looked for once, on the first call.
const Cudnn& cudnn();

}  // namespace tenor::cuda

#endif
