#include "src/cuda/tensor_map.h"

#include <cuda_runtime_api.h>

namespace tenor::cuda {

EncodeTiled encode_tiled() {
  static const EncodeTiled found = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result);
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<EncodeTiled>(entry)
                                                                         : nullptr;
  }();
  return found;
}

bool make_line_map(CUtensorMap* map, const MapTensor& x, const MapBox& box) {
  const EncodeTiled encode = encode_tiled();
  if (!encode) return false;
  cuuint64_t sizes[4], strides[3];
  for (int d = 0; d < 4; ++d) sizes[d] = static_cast<cuuint64_t>(x.size[d]);
  const cuuint64_t line = (sizes[0] * 2 + 15) / 16 * 16;  // the driver checks strides that nothing uses
  for (int d = 0; d < 3; ++d) strides[d] = x.size[d + 1] == 1 ? line : static_cast<cuuint64_t>(x.stride[d]) * 2;
  const cuuint32_t counts[] = {static_cast<cuuint32_t>(box.columns), static_cast<cuuint32_t>(box.lines[0]),
                               static_cast<cuuint32_t>(box.lines[1]), 1},
                   steps[] = {1, 1, 1, 1};
  return encode(map, x.bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
                const_cast<void*>(x.data), sizes, strides, counts, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                box.columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                box.fetch == 256 ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace tenor::cuda
