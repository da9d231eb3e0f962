#include "src/cuda/gemm/sm90_gemm_map.h"
#include "src/cuda/tensor_map.h"

namespace tenor::cuda::gemm {
bool make_map(CUtensorMap* map, const MapSource& x, bool bfloat16, int box_rows, int box_columns, int fetch) {
  const EncodeTiled encode = encode_tiled();
  if (!encode) return false;
  // The strides of dims of size 1 carry no meaning, but the driver checks them.
  const cuuint64_t line = (static_cast<cuuint64_t>(x.columns) * 2 + 15) / 16 * 16;
  cuuint64_t sizes[4] = {static_cast<cuuint64_t>(x.columns), static_cast<cuuint64_t>(x.rows), 1, 1};
  cuuint64_t strides[3] = {x.rows == 1 ? line : static_cast<cuuint64_t>(x.stride) * 2, line, line};
  for (int d = 0; d < 2; ++d) {
    if (x.batch[d] == 1 || x.batch_stride[d] == 0) continue;  // shared: its coordinate stays 0
    sizes[2 + d] = static_cast<cuuint64_t>(x.batch[d]), strides[1 + d] = static_cast<cuuint64_t>(x.batch_stride[d]) * 2;
  }
  const cuuint32_t box[] = {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows), 1, 1},
                   steps[] = {1, 1, 1, 1};
  return encode(map, bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
                const_cast<void*>(x.data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                box_columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                fetch == 256 ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace tenor::cuda::gemm
