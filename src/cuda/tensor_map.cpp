#include "src/cuda/tensor_map.h"

#include <cuda_runtime_api.h>

#include <algorithm>

namespace tenor::cuda {

namespace {

using EncodeIm2col = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                  const cuuint64_t*, const int*, const int*, cuuint32_t, cuuint32_t, const cuuint32_t*,
                                  CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                  CUtensorMapFloatOOBfill);

void* driver_entry(const char* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &result);
  return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? entry : nullptr;
}

}  // namespace

EncodeTiled encode_tiled() {
  static const auto found = reinterpret_cast<EncodeTiled>(driver_entry("cuTensorMapEncodeTiled"));
  return found;
}

bool make_line_map(CUtensorMap* map, const MapTensor& x, const MapBox& box) {
  const EncodeTiled encode = encode_tiled();
  if (!encode) return false;
  cuuint64_t sizes[4], strides[3];
  for (int d = 0; d < 4; ++d) sizes[d] = static_cast<cuuint64_t>(x.size[d]);
  const cuuint64_t item = x.float32 ? 4 : 2;
  const cuuint64_t line = (sizes[0] * item + 15) / 16 * 16;  // the driver checks strides that nothing uses
  for (int d = 0; d < 3; ++d) strides[d] = x.size[d + 1] == 1 ? line : static_cast<cuuint64_t>(x.stride[d]) * item;
  const cuuint32_t counts[] = {static_cast<cuuint32_t>(box.columns), static_cast<cuuint32_t>(box.lines[0]),
                               static_cast<cuuint32_t>(box.lines[1]), 1},
                   steps[] = {1, 1, 1, 1};
  const CUtensorMapDataType type = x.float32    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                   : x.bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const CUtensorMapSwizzle swizzle = !box.swizzled       ? CU_TENSOR_MAP_SWIZZLE_NONE
                                     : box.columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B
                                                         : CU_TENSOR_MAP_SWIZZLE_64B;
  return encode(map, type, 4, const_cast<void*>(x.data), sizes, strides, counts, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle, box.fetch == 256 ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool make_image_map(CUtensorMap* map, const MapImage& x) {
  static const auto encode = reinterpret_cast<EncodeIm2col>(driver_entry("cuTensorMapEncodeIm2col"));
  if (!encode) return false;
  const int corner = x.dims == 2 ? 128 : 16;  // of a signed corner's range
  cuuint64_t sizes[5] = {static_cast<cuuint64_t>(x.channels)}, strides[4];
  cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  for (int d = 0; d < x.dims; ++d) {
    if (std::min(x.lower[d], x.upper[d]) < -corner || std::max(x.lower[d], x.upper[d]) >= corner) return false;
    if (x.step[d] < 1 || x.step[d] > 8) return false;
    sizes[d + 1] = static_cast<cuuint64_t>(x.size[d]);
    strides[d] = static_cast<cuuint64_t>(x.stride[d]) * 2;
    steps[d + 1] = static_cast<cuuint32_t>(x.step[d]);
  }
  sizes[x.dims + 1] = static_cast<cuuint64_t>(x.batch);
  strides[x.dims] = static_cast<cuuint64_t>(x.batch_stride) * 2;
  return encode(map, x.bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, x.dims + 2,
                const_cast<void*>(x.data), sizes, strides, x.lower, x.upper, 64, x.pixels, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace tenor::cuda
