// cuBLASLt, opened at run time.
#pragma once

#include <string>

#if __has_include(<cublasLt.h>)

#include <cublasLt.h>

namespace tenor::cuda {

/// The functions that Tenor calls, or why there are none.
struct CublasLt {
  std::string missing;  ///< empty: every function is there
  std::string path;     ///< the file they come from

  decltype(&cublasLtCreate) Create = nullptr;
  decltype(&cublasLtGetVersion) GetVersion = nullptr;
  decltype(&cublasLtMatmul) Matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) MatmulDescCreate = nullptr;
  decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) MatrixLayoutSetAttribute = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute = nullptr;
};

/// libcublasLt.so.13 or .12, which the environment variable TENOR_CUBLASLT may name (shared_library.h says where else it
/// is looked for). Looked for once, on the first call.
const CublasLt& cublaslt();

}  // namespace tenor::cuda

#endif
