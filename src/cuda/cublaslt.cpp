#include "src/cuda/cublaslt.h"

#if __has_include(<cublasLt.h>)

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <set>
#include <vector>

namespace tenor::cuda {
namespace {

constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

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
std::vector<std::string> places() {
  if (const char* named = std::getenv("TENOR_CUBLASLT")) return {named};
  std::vector<std::string> out(std::begin(kNames), std::end(kNames));
  for (const std::string& folder : package_folders()) {
    out.push_back(folder + "nvidia/cu13/lib/" + kNames[0]);
    out.push_back(folder + "nvidia/cublas/lib/" + kNames[1]);
  }
  for (const char* name : kNames)
    for (const char* folder : {"/usr/local/cuda/lib64/", "/usr/local/cuda/targets/x86_64-linux/lib/"})
      out.push_back(std::string(folder) + name);
  return out;
}

template <class F>
void find(CublasLt& lt, void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (!function && lt.missing.empty()) lt.missing = lt.path + " has no " + name;
}

CublasLt opened() {
  CublasLt lt;
  void* library = nullptr;
  for (const std::string& place : places()) {
    library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    lt.path = place;
    if (library) break;
  }
  if (!library) {
    lt.missing = "cuBLASLt was not found (libcublasLt.so.13 or .12; TENOR_CUBLASLT may name the file)";
    return lt;
  }
  find(lt, library, "cublasLtCreate", lt.Create);
  find(lt, library, "cublasLtGetVersion", lt.GetVersion);
  find(lt, library, "cublasLtMatmul", lt.Matmul);
  find(lt, library, "cublasLtMatmulAlgoGetHeuristic", lt.MatmulAlgoGetHeuristic);
  find(lt, library, "cublasLtMatmulDescCreate", lt.MatmulDescCreate);
  find(lt, library, "cublasLtMatmulDescDestroy", lt.MatmulDescDestroy);
  find(lt, library, "cublasLtMatmulDescSetAttribute", lt.MatmulDescSetAttribute);
  find(lt, library, "cublasLtMatrixLayoutCreate", lt.MatrixLayoutCreate);
  find(lt, library, "cublasLtMatrixLayoutDestroy", lt.MatrixLayoutDestroy);
  find(lt, library, "cublasLtMatrixLayoutSetAttribute", lt.MatrixLayoutSetAttribute);
  find(lt, library, "cublasLtMatmulPreferenceCreate", lt.MatmulPreferenceCreate);
  find(lt, library, "cublasLtMatmulPreferenceDestroy", lt.MatmulPreferenceDestroy);
  find(lt, library, "cublasLtMatmulPreferenceSetAttribute", lt.MatmulPreferenceSetAttribute);
  return lt;
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt* lt = new CublasLt(opened());
  return *lt;
}

}  // namespace tenor::cuda

#endif
