// avg_pool and its gradient.
#include "src/ops/pool/pool_gather.cuh"
#include "src/ops/pool/pool_tuned.h"

namespace tenor::cuda {
namespace {

template <bool Back>
void average(const pool::Problem& p, const PoolDivisor& divisor, const Tensor& source, const Tensor& target) {
  const DeviceGuard guard(source.device());
  const Gather g = gather_of(p, divisor, Back);
  if (Back ? small_avg_pool_backward(p, g, source, target) : small_avg_pool(p, g, source, target)) return;
  core::visit_float(source.dtype(), [&]<class T>() { gather<SumOp<T>, T, Back>({p.op, g, source, target}); });
}

}  // namespace

void avg_pool(const pool::Problem& p, const PoolDivisor& divisor, const Tensor& x, const Tensor& y) {
  average<false>(p, divisor, x, y);
}
void avg_pool_backward(const pool::Problem& p, const PoolDivisor& divisor, const Tensor& grad, const Tensor& dx) {
  average<true>(p, divisor, grad, dx);
}

}  // namespace tenor::cuda
