// NVIDIA's libraries that are opened at run time, wherever they were installed.
#pragma once

#include <string>
#include <vector>

namespace tenor::cuda {

/// A library by its file names, the newest first, and where NVIDIA's Python packages keep each below site-packages.
struct LibraryNames {
  const char* variable;  ///< an environment variable that may name the file, and then decides alone
  struct Name {
    std::string file, package;
  };
  std::vector<Name> names;
};

struct OpenedLibrary {
  void* handle = nullptr;  ///< null: not found
  std::string path;        ///< the file it came from
};

/// Opens the file that the environment variable names; else one already loaded or on the linker's path; else in
/// NVIDIA's Python packages beside any loaded library's site-packages, or in a CUDA toolkit.
OpenedLibrary open_library(const LibraryNames& library);

/// The function of that name; where there is none and `missing` is empty, says so there.
void* find_symbol(const OpenedLibrary& library, const char* name, std::string& missing);

template <class F>
void find_function(const OpenedLibrary& library, const char* name, F& function, std::string& missing) {
  function = reinterpret_cast<F>(find_symbol(library, name, missing));
}

}  // namespace tenor::cuda
