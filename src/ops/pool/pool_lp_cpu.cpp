// lp_pool and its gradient on the CPU: sums of sizes and of squares a row at a time, anything else an element at a
// time.
#include <algorithm>
#include <vector>

#include "src/core/step.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/pool/pool_cpu.h"
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

constexpr int64_t kPowerBytes = 50;  // of traffic that take as long as a power

/// What one target costs.
int64_t work_of(const pool::PoolSpace& space) {
  int64_t work = kPowerBytes;
  for (const pool::PoolDim& dim : space.dim) work = core::count_product(work, std::min(dim.kernel, dim.input));
  return work;
}

/// Norms of order 1 and 2 of elements narrower than float64, whose squares float64 holds: no element is looked at
/// twice. A task is a row of targets, of one plane or of neighbouring channels.
template <class T>
class SumRows {
 public:
  SumRows(const Gather& g, bool squares, const Tensor& x, const Tensor& y) : g_(g), squares_(squares), x_(x), y_(y) {
    const int64_t channels = g.source.size[1];
    lanes_ = channels > 1 && g.source.stride[1] == 1 ? std::min<int64_t>(channels, 64) : 1;
    groups_ = (channels + lanes_ - 1) / lanes_;
    rows_ = g.target.size[0] * groups_ * g.target.size[2] * g.target.size[3];
  }
  int64_t rows() const { return rows_; }
  int64_t lanes() const { return lanes_; }

  void run(int64_t begin, int64_t end) const {
    const PoolGrid& target = g_.target;
    const int64_t tile = std::max<int64_t>(kSums / lanes_, 1);
    std::vector<double> sums(static_cast<size_t>(std::min(tile, target.size[4]) * lanes_));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t h = row % target.size[3], depth = row / target.size[3], d = depth % target.size[2],
                    group = depth / target.size[2], n = group / groups_, c = group % groups_ * lanes_,
                    lanes = std::min(lanes_, target.size[1] - c);
      for (int64_t first = 0; first < target.size[4]; first += tile) {
        const int64_t count = std::min(tile, target.size[4] - first);
        std::fill(sums.begin(), sums.end(), 0.0);
        for_box(g_.space.dim[0].inputs(d), g_.space.dim[1].inputs(h), {0, 1, 1}, [&](int64_t sd, int64_t sh, int64_t) {
          add(x_.data<T>() + g_.source.at(n, c, sd, sh, 0), first, count, lanes, sums.data());
        });
        give(sums.data(), target.at(n, c, d, h, first), count, lanes);
      }
    }
  }

 private:
  static constexpr int64_t kSums = 1024;

  /// A row of inputs, tap by tap.
  void add(const T* row, int64_t first, int64_t count, int64_t lanes, double* sums) const {
    const pool::PoolDim& along = g_.space.dim[2];
    const int64_t step = g_.source.stride[4], hop = along.stride * step;
    for (int64_t tap = 0; tap < along.kernel; ++tap) {
      const int64_t at = along.start(first) + tap, room = (along.input - at + along.stride - 1) / along.stride,
                    n = std::min(count, room);
      if (n <= 0) break;
      const T* from = row + at * step;
      if (lanes == 1)
        add_each(from, hop, n, sums);
      else
        add_channel_sizes(x_.dtype(), from, hop, n, lanes, squares_, sums);
    }
  }
  void add_each(const T* from, int64_t step, int64_t n, double* sums) const {
    if (squares_)
      for (int64_t i = 0; i < n; ++i) {
        const double v = core::widen(from[i * step]);
        sums[i] += v * v;
      }
    else
      for (int64_t i = 0; i < n; ++i) sums[i] += std::fabs(static_cast<double>(core::widen(from[i * step])));
  }

  void give(const double* sums, int64_t at, int64_t count, int64_t lanes) const {
    const PoolGrid& target = g_.target;
    const auto item = static_cast<int64_t>(item_size(y_.dtype()));
    char* to = static_cast<char*>(y_.raw()) + at * item;
    if (lanes > 1 && target.stride[1] == 1) {
      for (int64_t t = 0; t < count; ++t)
        give_norms(sums + t * lanes, lanes, squares_, y_.dtype(), to + t * target.stride[4] * item);
    } else if (lanes == 1 && target.stride[4] == 1) {
      give_norms(sums, count, squares_, y_.dtype(), to);
    } else {
      for (int64_t t = 0; t < count; ++t)
        for (int64_t l = 0; l < lanes; ++l)
          give_norms(sums + t * lanes + l, 1, squares_, y_.dtype(),
                     to + (t * target.stride[4] + l * target.stride[1]) * item);
    }
  }

  const Gather& g_;
  bool squares_;
  const Tensor &x_, &y_;
  int64_t lanes_, groups_, rows_;
};

}  // namespace

void lp_pool(const pool::Problem& p, double norm_type, const Tensor& x, const Tensor& y, const Tensor& places) {
  const Gather g = pool::gather_of(p.space, p.image, p.windows, {}, false);
  const auto& dim = g.space.dim;
  core::visit_float(x.dtype(), [&]<class T>() {
    using C = core::Compute<T>;
    const pool::Power<C> power(norm_type);
    using Kind = typename pool::Power<C>::Kind;
    if constexpr (!std::is_same_v<C, double>) {
      if (!places.defined() && (power.kind == Kind::kOne || power.kind == Kind::kTwo)) {
        const SumRows<T> sums(g, power.kind == Kind::kTwo, x, y);
        const int64_t bytes = core::count_product(work_of(p.space) / kPowerBytes * g.target.size[4] * sums.lanes(), 4);
        return parallel_for(sums.rows(), grain_of(bytes), [&](int64_t begin, int64_t end) { sums.run(begin, end); });
      }
    }
    const T* from = x.data<T>();
    for_targets(g.target, work_of(p.space), [&](int64_t n, int64_t c, int64_t d, int64_t h, int64_t w) {
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
    for_targets(g.target, work_of(p.space), [&](int64_t n, int64_t c, int64_t d, int64_t h, int64_t w) {
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
