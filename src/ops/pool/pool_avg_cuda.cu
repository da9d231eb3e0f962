// avg_pool and its gradient.
#include "src/ops/pool/pool_gather.cuh"
#include "src/ops/pool/pool_tuned.h"

namespace tenor::cuda {
namespace {

template <bool Back>
void average(const pool::Problem& p, const PoolDivisor& divisor, const Tensor& source, const Tensor& target) {
  const DeviceGuard guard(source.device());
  const auto run = [&](const pool::Problem& piece, const Tensor& from, const Tensor& to) {
    const Gather g = gather_of(piece, divisor, Back);
    if (Back ? small_avg_pool_backward(piece, g, from, to) : small_avg_pool(piece, g, from, to)) return;
    core::visit_float(from.dtype(), [&]<class T>() { gather<SumOp<T>, T, Back>({piece.op, g, from, to}); });
  };
  for_images(p, run, source, target);
}

}  // namespace

void avg_pool(const pool::Problem& p, const PoolDivisor& divisor, const Tensor& x, const Tensor& y) {
  average<false>(p, divisor, x, y);
}
void avg_pool_backward(const pool::Problem& p, const PoolDivisor& divisor, const Tensor& grad, const Tensor& dx) {
  average<true>(p, divisor, grad, dx);
}

}  // namespace tenor::cuda
