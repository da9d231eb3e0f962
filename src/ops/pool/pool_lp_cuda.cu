// lp_pool and its gradient: a thread an element.
#include "src/core/visit.h"
#include "src/ops/pool/pool_lp.h"
#include "src/ops/pool/pool_plan.h"

namespace tenor::cuda {
namespace {

template <class T, class Out>
__global__ void __launch_bounds__(256)
    lp_windows(const T* __restrict__ x, Out* __restrict__ y, int64_t* __restrict__ places, Gather g, TargetOrder order,
               pool::Power<core::Compute<T>> power) {
  using C = core::Compute<T>;
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < order.count; i += gridDim.x * 256ll) {
    int64_t at[5];
    target_place(order, g.target, i, at);
    const auto sources = [&](auto fn) {
      for_sources<false>(g, at, [&](int64_t d, int64_t h, int64_t w, int64_t offset) {
        fn(convert<C>(x[offset]), g.source.flat(d, h, w));
      });
    };
    int64_t place;
    const C norm = pool::window_norm<C>(power, sources, place);
    const int64_t to = g.target.at(at[0], at[1], at[2], at[3], at[4]);
    y[to] = convert<Out>(norm);
    if (places) places[to] = place;
  }
}

struct LpBackward {
  Gather g;           ///< back: inputs read windows
  PoolGrid norms, x;  ///< of the windows' norms and places, and of x
  TargetOrder order;
};

template <class T>
__global__ void __launch_bounds__(256)
    lp_inputs(const T* __restrict__ grad, const T* __restrict__ x, const core::Compute<T>* __restrict__ norms,
              const int64_t* __restrict__ places, T* __restrict__ dx, LpBackward p,
              pool::Power<core::Compute<T>> power) {
  using C = core::Compute<T>;
  const Gather& g = p.g;
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < p.order.count; i += gridDim.x * 256ll) {
    int64_t at[5];
    target_place(p.order, g.target, i, at);
    const C value = convert<C>(x[p.x.at(at[0], at[1], at[2], at[3], at[4])]);
    const int64_t own = g.target.flat(at[2], at[3], at[4]);
    C sum = 0;
    for_sources<true>(g, at, [&](int64_t d, int64_t h, int64_t w, int64_t offset) {
      const int64_t window = p.norms.at(at[0], at[1], d, h, w);
      if (places && places[window] != own) return;
      sum += convert<C>(grad[offset]) * pool::norm_slope<C>(power, value, norms[window]);
    });
    dx[g.target.at(at[0], at[1], at[2], at[3], at[4])] = convert<T>(sum);
  }
}

PoolGrid dense(const PoolGrid& grid) {
  PoolGrid out = grid;
  int64_t step = 1;
  for (int d = 5; d-- > 0; step *= grid.size[d]) out.stride[d] = step;
  return out;
}

}  // namespace

void lp_pool(const pool::Problem& p, double norm_type, const Tensor& x, const Tensor& y, const Tensor& places) {
  const DeviceGuard guard(x.device());
  const Gather g = gather_of(p, {}, false);
  const TargetOrder order = order_of(g.target);
  const Grid grid{dim3(blocks_for(order.count, 256, x.device())), dim3(256)};
  core::visit_float(x.dtype(), [&]<class T>() {
    using C = core::Compute<T>;
    int64_t* at = places.defined() ? places.data<int64_t>() : nullptr;
    const pool::Power<C> power(norm_type);
    if (y.dtype() == x.dtype())
      launch(p.op, lp_windows<T, T>, grid, x.device(), x.data<T>(), y.data<T>(), at, g, order, power);
    else if constexpr (!std::is_same_v<T, C>)
      launch(p.op, lp_windows<T, C>, grid, x.device(), x.data<T>(), y.data<C>(), at, g, order, power);
  });
}

void lp_pool_backward(const pool::Problem& p, double norm_type, const Tensor& grad, const Tensor& x,
                      const Tensor& norms, const Tensor& places, const Tensor& dx) {
  const DeviceGuard guard(x.device());
  const Gather g = gather_of(p, {}, true);
  const LpBackward plan{g, dense(p.windows), p.other, order_of(g.target)};
  const Grid grid{dim3(blocks_for(plan.order.count, 256, x.device())), dim3(256)};
  core::visit_float(x.dtype(), [&]<class T>() {
    using C = core::Compute<T>;
    launch(p.op, lp_inputs<T>, grid, x.device(), grad.data<T>(), x.data<T>(), norms.data<C>(),
           places.defined() ? places.data<int64_t>() : nullptr, dx.data<T>(), plan, pool::Power<C>(norm_type));
  });
}

}  // namespace tenor::cuda
