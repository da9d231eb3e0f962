// Finding a vendor's library at run time, so that Tenor loads where there is none.
#pragma once

#include <dlfcn.h>

#include <string>
#include <utility>
#include <vector>

namespace tenor::cuda {

/// Where a library may lie.
struct VendorLibrary {
  const char* variable;  ///< of the environment, which may name the file
  std::vector<std::string> names;
  std::vector<std::string> packages;  ///< files of NVIDIA's Python packages, below site-packages
};

/// dlopen: the file that the environment variable names; else one already loaded or on the linker's path; else in
/// NVIDIA's Python packages beside any loaded library's site-packages, or in a CUDA toolkit. Null where there is none;
/// `path` becomes the file.
void* open_vendor_library(const VendorLibrary& library, std::string& path);

/// A function of the library; where it has none, `missing` says so.
template <class F>
void find_function(void* library, const std::string& path, const char* name, F& function, std::string& missing) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (!function && missing.empty()) missing = path + " has no " + name;
}

}  // namespace tenor::cuda
