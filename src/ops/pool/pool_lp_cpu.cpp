// lp_pool and its gradient on the CPU, an element at a time.
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/pool/pool_kernels.h"
#include "src/ops/pool/pool_lp.h"

namespace tenor::cpu {
namespace {

using pool::Gather;
using pool::PoolGrid;
using pool::WindowRange;

/// fn(n, c, d, h, w) for every target, rows over all cores; `work` is what one target costs, in bytes of traffic.
template <class F>
void for_targets(const PoolGrid& target, int64_t work, F fn) {
  const int64_t rows = target.planes() * target.size[2] * target.size[3];
  parallel_for(rows, grain_of(target.size[4] * work), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t h = row % target.size[3], depth = row / target.size[3], d = depth % target.size[2],
                    plane = depth / target.size[2], c = plane % target.size[1], n = plane / target.size[1];
      for (int64_t w = 0; w < target.size[4]; ++w) fn(n, c, d, h, w);
    }
  });
}

template <class F>
void for_box(const WindowRange& dr, const WindowRange& hr, const WindowRange& wr, F fn) {
  for (int64_t d = dr.first; d < dr.last; d += dr.step)
    for (int64_t h = hr.first; h < hr.last; h += hr.step)
      for (int64_t w = wr.first; w < wr.last; w += wr.step) fn(d, h, w);
}

int64_t taps_of(const pool::PoolSpace& space) {
  return space.dim[0].kernel * space.dim[1].kernel * space.dim[2].kernel;
}

constexpr int64_t kPowerBytes = 50;  // of traffic that take as long as a power

}  // namespace

void lp_pool(const pool::Problem& p, double norm_type, const Tensor& x, const Tensor& y, const Tensor& places) {
  const Gather g = pool::gather_of(p.space, p.image, p.windows, {}, false);
  const auto& dim = g.space.dim;
  core::visit_float(x.dtype(), [&]<class T>() {
    using C = core::Compute<T>;
    const pool::Power<C> power(norm_type);
    const T* from = x.data<T>();
    for_targets(g.target, taps_of(p.space) * kPowerBytes, [&](int64_t n, int64_t c, int64_t d, int64_t h, int64_t w) {
      const WindowRange dr = dim[0].inputs(d), hr = dim[1].inputs(h), wr = dim[2].inputs(w);
      int64_t place;
      const C norm = pool::window_norm<C>(
          power,
          [&](auto fn) {
            for_box(dr, hr, wr, [&](int64_t sd, int64_t sh, int64_t sw) {
              fn(core::cast<C>(from[g.source.at(n, c, sd, sh, sw)]), g.source.flat(sd, sh, sw));
            });
          },
          place);
      const int64_t to = g.target.at(n, c, d, h, w);
      if (y.dtype() == x.dtype())
        y.data<T>()[to] = core::cast<T>(norm);
      else
        y.data<C>()[to] = norm;
      if (places.defined()) places.data<int64_t>()[to] = place;
    });
  });
}

void lp_pool_backward(const pool::Problem& p, double norm_type, const Tensor& grad, const Tensor& x,
                      const Tensor& norms, const Tensor& places, const Tensor& dx) {
  const Gather g = pool::gather_of(p.space, p.image, p.windows, {}, true);
  const auto& dim = g.space.dim;
  core::visit_float(x.dtype(), [&]<class T>() {
    using C = core::Compute<T>;
    const pool::Power<C> power(norm_type);
    for_targets(g.target, taps_of(p.space) * kPowerBytes, [&](int64_t n, int64_t c, int64_t d, int64_t h, int64_t w) {
      const C value = core::cast<C>(x.data<T>()[p.other.at(n, c, d, h, w)]);
      const int64_t own = g.target.flat(d, h, w), plane = (n * g.source.size[1] + c) * g.source.plane();
      C sum = 0;
      for_box(dim[0].readers(d), dim[1].readers(h), dim[2].readers(w), [&](int64_t sd, int64_t sh, int64_t sw) {
        const int64_t window = plane + g.source.flat(sd, sh, sw);
        if (places.defined() && places.data<int64_t>()[window] != own) return;
        sum += core::cast<C>(grad.data<T>()[g.source.at(n, c, sd, sh, sw)]) *
               pool::norm_slope<C>(power, value, norms.data<C>()[window]);
      });
      dx.data<T>()[g.target.at(n, c, d, h, w)] = core::cast<T>(sum);
    });
  });
}

}  // namespace tenor::cpu
