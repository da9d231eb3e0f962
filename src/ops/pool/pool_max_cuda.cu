// max_pool without places, of floats; and the way to the other kernels.
#include "src/ops/pool/pool_gather.cuh"
#include "src/ops/pool/pool_max_cuda.h"
#include "src/ops/pool/pool_tuned.h"

namespace tenor::cuda {

void max_pool(const pool::Problem& p, const Tensor& x, const Tensor& values, const Tensor& indices) {
  const DeviceGuard guard(x.device());
  const Gather g = gather_of(p, {}, false);
  if (indices.defined()) return max_pool_places(p, g, x, values, indices);
  if (small_max_pool(p, g, x, values)) return;
  if (is_integer(x.dtype())) return max_pool_integers(p, g, x, values);
  core::visit_float(x.dtype(), [&]<class T>() { gather<MaxOp<T>, T, false>({p.op, g, x, values}); });
}

}  // namespace tenor::cuda
