// avg_pool by small windows.
#include "src/ops/pool/pool_small.cuh"

namespace tenor::cuda {

bool small_avg_pool(const pool::Problem& p, const Gather& g, const Tensor& x, const Tensor& y) {
  return small_windows<SumOp>(p, g, x, y);
}

}  // namespace tenor::cuda
