// max_pool of integers, without places.
#include "src/ops/pool/pool_gather.cuh"
#include "src/ops/pool/pool_max_cuda.h"

namespace tenor::cuda {

void max_pool_integers(const pool::Problem& p, const Gather& g, const Tensor& x, const Tensor& values) {
  core::visit_integer(x.dtype(), [&]<class T>() { gather<MaxOp<T>, T, false>({p.op, g, x, values}); });
}

}  // namespace tenor::cuda
