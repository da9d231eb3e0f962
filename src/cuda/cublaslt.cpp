#include "src/cuda/cublaslt.h"

#if __has_include(<cublasLt.h>)

#include "src/cuda/shared_library.h"

namespace tenor::cuda {
namespace {

CublasLt opened() {
  CublasLt lt;
  const OpenedLibrary library = open_library(
      {"TENOR_CUBLASLT", {{"libcublasLt.so.13", "nvidia/cu13/lib"}, {"libcublasLt.so.12", "nvidia/cublas/lib"}}});
  if (!library.handle) {
    lt.missing = "cuBLASLt was not found (libcublasLt.so.13 or .12; TENOR_CUBLASLT may name the file)";
    return lt;
  }
  lt.path = library.path;
  const auto find = [&](const char* name, auto& function) { find_function(library, name, function, lt.missing); };
  find("cublasLtCreate", lt.Create);
  find("cublasLtGetVersion", lt.GetVersion);
  find("cublasLtMatmul", lt.Matmul);
  find("cublasLtMatmulAlgoGetHeuristic", lt.MatmulAlgoGetHeuristic);
  find("cublasLtMatmulDescCreate", lt.MatmulDescCreate);
  find("cublasLtMatmulDescDestroy", lt.MatmulDescDestroy);
  find("cublasLtMatmulDescSetAttribute", lt.MatmulDescSetAttribute);
  find("cublasLtMatrixLayoutCreate", lt.MatrixLayoutCreate);
  find("cublasLtMatrixLayoutDestroy", lt.MatrixLayoutDestroy);
  find("cublasLtMatrixLayoutSetAttribute", lt.MatrixLayoutSetAttribute);
  find("cublasLtMatmulPreferenceCreate", lt.MatmulPreferenceCreate);
  find("cublasLtMatmulPreferenceDestroy", lt.MatmulPreferenceDestroy);
  find("cublasLtMatmulPreferenceSetAttribute", lt.MatmulPreferenceSetAttribute);
  return lt;
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt* lt = new CublasLt(opened());
  return *lt;
}

}  // namespace tenor::cuda

#endif
