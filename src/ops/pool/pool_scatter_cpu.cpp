// max_pool's gradient on the CPU: planes side by side, each plane's outputs in order.
#include <algorithm>
#include <utility>
#include <vector>

#include "src/core/check.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/pool/pool_kernels.h"

namespace tenor::cpu {
namespace {

using pool::PoolGrid;

/// fn(flat index, offset) for every place of a plane.
template <class F>
void for_plane(const PoolGrid& grid, int64_t n, int64_t c, F fn) {
  int64_t flat = 0;
  for (int64_t d = 0; d < grid.size[2]; ++d)
    for (int64_t h = 0; h < grid.size[3]; ++h)
      for (int64_t w = 0; w < grid.size[4]; ++w) fn(flat++, grid.at(n, c, d, h, w));
}

/// The place of output `flat` of a plane as the caller sees the tensor.
Dims place_of(const Tensor& x, const PoolGrid& grid, int64_t plane, int64_t flat) {
  Dims at(static_cast<size_t>(x.ndim()), 0);
  int64_t rest = plane * grid.plane() + flat;
  for (size_t d = at.size(); d-- > 0;) at[d] = rest % x.shape()[d], rest /= x.shape()[d];
  return at;
}

template <class I>
void check_indices(const pool::Problem& p, const Tensor& indices) {
  const PoolGrid& grid = p.other;
  const int64_t inputs = p.image.plane(), planes = grid.planes();
  std::vector<int64_t> bad(static_cast<size_t>(planes), -1);
  const auto wrong = [&](I index) { return std::cmp_less(index, -1) || std::cmp_greater_equal(index, inputs); };
  parallel_for(planes, grain_of(grid.plane() * static_cast<int64_t>(sizeof(I))), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane)
      for_plane(grid, plane / grid.size[1], plane % grid.size[1], [&](int64_t flat, int64_t at) {
        if (wrong(indices.data<I>()[at]) && bad[plane] < 0) bad[plane] = flat;
      });
  });
  for (int64_t plane = 0; plane < planes; ++plane) {
    if (bad[plane] < 0) continue;
    const int64_t w = bad[plane] % grid.size[4], row = bad[plane] / grid.size[4];
    const int64_t at = grid.at(plane / grid.size[1], plane % grid.size[1], row / grid.size[3], row % grid.size[3], w);
    core::fail<IndexError>("{}: indices holds {} at {}, outside of -1 to {}, the places of a plane", p.op,
                           +indices.data<I>()[at], place_of(indices, grid, plane, bad[plane]), inputs - 1);
  }
}

/// Planes [begin, end) of neighbouring channels, whose sums lie together.
template <class T, class I>
class Scatter {
 public:
  using C = core::Compute<T>;
  Scatter(const pool::Problem& p, const Tensor& grad, const Tensor& indices, const Tensor& dx)
      : p_(p), grad_(grad.data<T>()), indices_(indices.data<I>()), dx_(dx.data<T>()) {
    const bool together = p.image.size[1] > 1 && p.image.stride[1] == 1;
    lanes_ = together ? std::min<int64_t>(16, p.image.size[1]) : 1;
    groups_ = (p.image.size[1] + lanes_ - 1) / lanes_;
  }
  int64_t tasks() const { return p_.image.size[0] * groups_; }
  int64_t lanes() const { return lanes_; }

  void run(int64_t begin, int64_t end) const {
    std::vector<C> sums(static_cast<size_t>(p_.image.plane() * lanes_));
    for (int64_t task = begin; task < end; ++task) {
      const int64_t n = task / groups_, c = task % groups_ * lanes_, lanes = std::min(lanes_, p_.image.size[1] - c);
      std::fill(sums.begin(), sums.end(), C(0));
      const auto of = [](const PoolGrid& grid, int64_t lane) { return lane * grid.stride[1]; };
      const PoolGrid& windows = p_.windows;
      for (int64_t d = 0; d < windows.size[2]; ++d)
        for (int64_t h = 0; h < windows.size[3]; ++h)
          for (int64_t w = 0; w < windows.size[4]; ++w) {
            const T* g = grad_ + windows.at(n, c, d, h, w);
            const I* at = indices_ + p_.other.at(n, c, d, h, w);
            for (int64_t l = 0; l < lanes; ++l) {
              const auto place = static_cast<int64_t>(at[of(p_.other, l)]);
              if (place >= 0) sums[place * lanes_ + l] += core::widen(g[of(windows, l)]);
            }
          }
      for_plane(p_.image, n, c, [&](int64_t flat, int64_t at) {
        for (int64_t l = 0; l < lanes; ++l) dx_[at + of(p_.image, l)] = core::cast<T>(sums[flat * lanes_ + l]);
      });
    }
  }

 private:
  const pool::Problem& p_;
  const T* grad_;
  const I* indices_;
  T* dx_;
  int64_t lanes_ = 1, groups_ = 1;
};

}  // namespace

void max_pool_backward(const pool::Problem& p, const Tensor& grad, const Tensor& indices, const Tensor& dx) {
  core::visit_integer(indices.dtype(), [&]<class I>() {
    check_indices<I>(p, indices);
    core::visit_float(grad.dtype(), [&]<class T>() {
      const Scatter<T, I> scatter(p, grad, indices, dx);
      const int64_t bytes = p.image.plane() * scatter.lanes() * static_cast<int64_t>(sizeof(T));
      parallel_for(scatter.tasks(), grain_of(bytes), [&](int64_t begin, int64_t end) { scatter.run(begin, end); });
    });
  });
}

}  // namespace tenor::cpu
