#include "src/cuda/gemm/sm90_gemm_map.h"
#include "src/cuda/tensor_map.h"

namespace tenor::cuda::gemm {

bool make_map(CUtensorMap* map, const MapSource& x, bool bfloat16, int box_rows, int box_columns, int fetch) {
  MapTensor tensor{x.data, bfloat16, {x.columns, x.rows, 1, 1}, {x.stride, 0, 0}};
  for (int d = 0; d < 2; ++d)
    if (x.batch_stride[d] != 0)  // else shared: its coordinate stays 0
      tensor.size[2 + d] = x.batch[d], tensor.stride[1 + d] = x.batch_stride[d];
  return make_line_map(map, tensor, {{box_rows, 1}, box_columns, fetch});
}

}  // namespace tenor::cuda::gemm
