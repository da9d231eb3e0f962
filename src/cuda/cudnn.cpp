#include "src/cuda/cudnn.h"

#if __has_include(<cudnn.h>)

#include "src/cuda/shared_library.h"

namespace tenor::cuda {
namespace {

Cudnn opened() {
  Cudnn c;
  const OpenedLibrary library = open_library({"TENOR_CUDNN", {{"libcudnn.so.9", "nvidia/cudnn/lib"}}});
  if (!library.handle) {
    c.missing = "cuDNN was not found (libcudnn.so.9; TENOR_CUDNN may name the file)";
    return c;
  }
  c.path = library.path;
  const auto find = [&](const char* name, auto& function) { find_function(library, name, function, c.missing); };
  find("cudnnGetVersion", c.GetVersion);
  find("cudnnGetErrorString", c.GetErrorString);
  find("cudnnCreate", c.Create);
  find("cudnnSetStream", c.SetStream);
  find("cudnnBackendCreateDescriptor", c.BackendCreateDescriptor);
  find("cudnnBackendDestroyDescriptor", c.BackendDestroyDescriptor);
  find("cudnnBackendSetAttribute", c.BackendSetAttribute);
  find("cudnnBackendGetAttribute", c.BackendGetAttribute);
  find("cudnnBackendFinalize", c.BackendFinalize);
  find("cudnnBackendExecute", c.BackendExecute);
  return c;
}

}  // namespace

const Cudnn& cudnn() {
  static const Cudnn* c = new Cudnn(opened());
  return *c;
}

}  // namespace tenor::cuda

#endif
