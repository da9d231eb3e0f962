#include "src/cuda/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <set>

namespace tenor::cuda {
namespace {

/// The site-packages folders that libraries of this process were loaded from: Tenor's own, or another package's.
std::set<std::string> package_folders() {
  std::set<std::string> folders;
  dl_iterate_phdr(
      [](dl_phdr_info* image, size_t, void* to) {
        const std::string path = image->dlpi_name ? image->dlpi_name : "";
        for (const char* folder : {"/site-packages/", "/dist-packages/"})
          if (const size_t at = path.rfind(folder); at != std::string::npos)
            static_cast<std::set<std::string>*>(to)->insert(path.substr(0, at + std::string(folder).size()));
        return 0;
      },
      &folders);
  return folders;
}

/// Files to try, the linker's own search first.
std::vector<std::string> places(const LibraryNames& library) {
  if (const char* named = std::getenv(library.variable)) return {named};
  std::vector<std::string> out;
  for (const auto& name : library.names) out.push_back(name.file);
  for (const std::string& folder : package_folders())
    for (const auto& name : library.names) out.push_back(folder + name.package + "/" + name.file);
  for (const auto& name : library.names)
    for (const char* folder : {"/usr/local/cuda/lib64/", "/usr/local/cuda/targets/x86_64-linux/lib/"})
      out.push_back(folder + name.file);
  return out;
}

}  // namespace

OpenedLibrary open_library(const LibraryNames& library) {
  for (const std::string& place : places(library))
    if (void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return {handle, place};
  return {};
}

void* find_symbol(const OpenedLibrary& library, const char* name, std::string& missing) {
  void* symbol = dlsym(library.handle, name);
  if (!symbol && missing.empty()) missing = library.path + " has no " + name;
  return symbol;
}

}  // namespace tenor::cuda
