#include "src/cuda/vendor_library.h"

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
std::vector<std::string> places_of(const VendorLibrary& library) {
  if (const char* named = std::getenv(library.variable)) return {named};
  std::vector<std::string> out = library.names;
  for (const std::string& folder : package_folders())
    for (const std::string& file : library.packages) out.push_back(folder + file);
  for (const std::string& name : library.names)
    for (const char* folder : {"/usr/local/cuda/lib64/", "/usr/local/cuda/targets/x86_64-linux/lib/"})
      out.push_back(folder + name);
  return out;
}

}  // namespace

void* open_vendor_library(const VendorLibrary& library, std::string& path) {
  for (const std::string& place : places_of(library)) {
    path = place;
    if (void* opened = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return opened;
  }
  return nullptr;
}

}  // namespace tenor::cuda
