#include "src/cuda/gemm/sm90_gemm.h"

#include <algorithm>

#include "src/cuda/gemm/sm90_gemm.cuh"

namespace tenor::cuda::gemm {
namespace {

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/// The driver's function, found at run time so that the library loads where there is no driver.
EncodeTiled encode_tiled() {
  static const EncodeTiled found = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result);
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<EncodeTiled>(entry) : nullptr;
  }();
  return found;
}

/// A row-major matrix read or written in boxes of box_rows x 64, swizzled by 128 bytes.
bool make_map(CUtensorMap* map, const void* data, bool bfloat16, int rows, int columns, int64_t stride, int box_rows) {
  const EncodeTiled encode = encode_tiled();
  if (!encode) return false;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(stride) * 2};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(box_rows)}, steps[] = {1, 1};
  return encode(map, bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<void*>(data), sizes, strides,
                box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

int multiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

template <class T>
cudaError_t launch(const GemmProblem& p, cudaStream_t stream) {
  CUtensorMap a, b, c;
  if (!make_map(&a, p.a, p.bfloat16, p.m, p.k, p.stride_a, kTileM) || !make_map(&b, p.b, p.bfloat16, p.n, p.k, p.stride_b, kTileN / kCluster) ||
      !make_map(&c, p.c, p.bfloat16, p.m, p.n, p.stride_c, 64))
    return cudaErrorInvalidValue;
  const GemmShape shape{p.m, p.n, p.k, (p.m + kTileM * kCluster - 1) / (kTileM * kCluster), (p.n + kTileN - 1) / kTileN, p.c, p.stride_c};
  const int clusters = std::min(shape.tiles_m * shape.tiles_n, multiprocessors() / kCluster);
  constexpr size_t kShared = sizeof(GemmShared<T>);
  if (cudaError_t e = cudaFuncSetAttribute(sm90_gemm<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared); e != cudaSuccess) return e;
  sm90_gemm<T><<<clusters * kCluster, kThreads, kShared, stream>>>(a, b, c, shape);
  return cudaGetLastError();
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

std::string sm90_gemm_why_not(const GemmProblem& p) {
  if (p.m < 1 || p.n < 1 || p.k < 1) return "it has an empty dim";
  if (!aligned(p.a) || !aligned(p.b) || !aligned(p.c)) return "an operand does not start at a multiple of 16 bytes";
  if (p.stride_a % 8 || p.stride_b % 8 || p.stride_c % 8) return "a row stride is no multiple of 8 elements";
  return {};
}

cudaError_t sm90_gemm(const GemmProblem& p, cudaStream_t stream) {
  return p.bfloat16 ? launch<__nv_bfloat16>(p, stream) : launch<__half>(p, stream);
}

}  // namespace tenor::cuda::gemm
