// max_pool's gradient on the CPU: planes side by side, each plane's outputs in order.
#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "src/core/check.h"
#include "src/core/visit.h"
#include "src/cpu/move.h"
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

/// Whether an index lies outside of -1 to inputs - 1; in the order of memory, without a branch an element.
template <class I>
bool any_bad(const PoolGrid& grid, const I* indices, int64_t inputs) {
  int inner = 4;
  for (int d = 0; d < 4; ++d)
    if (grid.size[d] > 1 && (grid.size[inner] == 1 || grid.stride[d] < grid.stride[inner])) inner = d;
  const int64_t length = grid.size[inner], step = grid.stride[inner], rows = grid.planes() * grid.plane() / length;
  std::atomic<bool> bad = false;
  parallel_for(rows, grain_of(length * static_cast<int64_t>(sizeof(I))), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t rest = row, at = 0;
      for (int d = 4; d >= 0; --d) {
        if (d == inner) continue;
        at += rest % grid.size[d] * grid.stride[d];
        rest /= grid.size[d];
      }
      bool wrong = false;
      const auto look = [&](int64_t i) {
        const I index = indices[at + i];
        wrong |= std::cmp_less(index, -1) | std::cmp_greater_equal(index, inputs);
      };
      if (step == 1)
        for (int64_t i = 0; i < length; ++i) look(i);
      else
        for (int64_t i = 0; i < length; ++i) look(i * step);
      if (wrong) bad.store(true, std::memory_order_relaxed);
    }
  });
  return bad;
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
  if (!any_bad(grid, indices.data<I>(), inputs)) return;
  std::vector<int64_t> bad(static_cast<size_t>(planes), -1);
  const auto wrong = [&](I index) { return std::cmp_less(index, -1) || std::cmp_greater_equal(index, inputs); };
  for (int64_t plane = 0; plane < planes; ++plane)
    for_plane(grid, plane / grid.size[1], plane % grid.size[1], [&](int64_t flat, int64_t at) {
      if (wrong(indices.data<I>()[at]) && bad[plane] < 0) bad[plane] = flat;
    });
  for (int64_t plane = 0; plane < planes; ++plane) {
    if (bad[plane] < 0) continue;
    const int64_t w = bad[plane] % grid.size[4], row = bad[plane] / grid.size[4];
    const int64_t at = grid.at(plane / grid.size[1], plane % grid.size[1], row / grid.size[3], row % grid.size[3], w);
    core::fail<IndexError>("{}: indices holds {} at {}, outside of -1 to {}, the places of a plane", p.op,
                           +indices.data<I>()[at], place_of(indices, grid, plane, bad[plane]), inputs - 1);
  }
}

/// Planes of neighbouring channels, whose sums lie together: in dx itself where it is of the type that sums are taken
/// in and its places lie evenly, else in memory of their own.
template <class T, class I>
class Scatter {
 public:
  using C = core::Compute<T>;
  Scatter(const pool::Problem& p, const Tensor& grad, const Tensor& indices, const Tensor& dx)
      : p_(p),
        grad_(grad.data<T>()),
        indices_(indices.data<I>()),
        dx_(dx.data<T>()),
        convert_(compute_dtype(dx.dtype()), dx.dtype()) {
    constexpr int64_t kHeld = 256 << 10;  // bytes of sums
    const PoolGrid& image = p.image;
    const int64_t channels = image.size[1];
    const auto follows = [&](int d, int64_t stride) { return image.size[d] == 1 || image.stride[d] == stride; };
    step_ = image.size[4] > 1 ? image.stride[4] : image.size[3] > 1 ? image.stride[3] : image.stride[2];
    even_ = follows(3, image.size[4] * step_) && follows(2, image.size[3] * image.size[4] * step_);
    direct_ = std::is_same_v<T, C> && even_;
    int64_t room = direct_ ? 64 : std::clamp<int64_t>(kHeld / (image.plane() * sizeof(C)), 16, 64);
    // Planes of which that is too much are summed up in a ring of rows, of channels that fill a cache line.
    band_ = std::min(image.size[3], image.size[3] / p.windows.size[3] + 2 + 2 * kNear);
    bands_ = !direct_ && even_ && image.size[2] == 1 && channels > 1 && image.stride[1] == 1 && room < 64 &&
             band_ < image.size[3];
    if (bands_) room = std::clamp<int64_t>(kHeld / (band_ * image.size[4] * sizeof(C)), 32, 64);
    lanes_ = channels > 1 && image.stride[1] == 1 ? std::min(room, channels) : 1;
    groups_ = (channels + lanes_ - 1) / lanes_;
  }
  int64_t tasks() const { return p_.image.size[0] * groups_; }
  int64_t lanes() const { return lanes_; }
  /// Whether run() met an index outside of the plane, which it left out.
  bool bad() const { return bad_; }

  void run(int64_t begin, int64_t end) const {
    const size_t band = static_cast<size_t>(band_ * p_.image.size[4] * lanes_);
    const size_t held = direct_ ? 0 : bands_ ? band : static_cast<size_t>(p_.image.plane() * lanes_);
    std::vector<C> sums(held);
    std::vector<T> rounded(even_ ? held : 0);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t n = task / groups_, c = task % groups_ * lanes_, lanes = std::min(lanes_, p_.image.size[1] - c);
      if constexpr (std::is_same_v<T, C>) {
        if (direct_) {
          C* to = dx_ + p_.image.at(n, c, 0, 0, 0);
          clear(to, lanes);
          add(n, c, lanes, to, step_);
          continue;
        }
      }
      if (bands_) {
        sums.resize(band);
        if (add_bands(n, c, lanes, sums, rounded)) continue;
        sums.resize(static_cast<size_t>(p_.image.plane() * lanes_)), rounded.resize(sums.size());
      }
      std::fill(sums.begin(), sums.end(), C(0));
      add(n, c, lanes, sums.data(), lanes_);
      give(n, c, lanes, sums, rounded);
    }
  }

 private:
  void clear(C* to, int64_t lanes) const {
    if (step_ == lanes) {
      std::fill_n(to, p_.image.plane() * lanes, C(0));
    } else {
      for (int64_t i = 0; i < p_.image.plane(); ++i) std::fill_n(to + i * step_, lanes, C(0));
    }
  }

  /// The outputs of planes c .. c + lanes - 1, place by place of theirs; place i of lane l is to[i * step + l].
  void add(int64_t n, int64_t c, int64_t lanes, C* to, int64_t step) const {
    const PoolGrid &windows = p_.windows, &places = p_.other;
    const int64_t inputs = p_.image.plane();
    const int64_t g_step = windows.stride[1], at_step = places.stride[1];
    const bool dense = step == 1 && windows.stride[4] == 1 && places.stride[4] == 1;
    bool wrong = false;
    for (int64_t d = 0; d < windows.size[2]; ++d)
      for (int64_t h = 0; h < windows.size[3]; ++h) {
        const T* g = grad_ + windows.at(n, c, d, h, 0);
        const I* at = indices_ + places.at(n, c, d, h, 0);
        if (lanes == 1 && dense)
          wrong |= add_row(g, at, windows.size[4], inputs, to);
        else
          for (int64_t w = 0; w < windows.size[4]; ++w, g += windows.stride[4], at += places.stride[4])
            for (int64_t l = 0; l < lanes; ++l) {
              const auto place = static_cast<int64_t>(at[l * at_step]);
              if (static_cast<uint64_t>(place) < static_cast<uint64_t>(inputs))
                to[place * step + l] += core::widen(g[l * g_step]);
              else
                wrong |= place != -1 || std::is_unsigned_v<I>;
            }
      }
    if (wrong) bad_.store(true, std::memory_order_relaxed);
  }

  /// The same of one dense row. Whether an index is neither a place nor -1.
  static bool add_row(const T* g, const I* at, int64_t n, int64_t inputs, C* to) {
    bool wrong = false;
    for (int64_t i = 0; i < n; ++i) {
      const auto place = static_cast<int64_t>(at[i]);
      if (static_cast<uint64_t>(place) < static_cast<uint64_t>(inputs))
        to[place] += core::widen(g[i]);
      else
        wrong |= place != -1 || std::is_unsigned_v<I>;
    }
    return wrong;
  }

  /// The same and to dx, by a ring of rows of the image, where every output's place lies about where the sizes let
  /// expect it, as those of windows do. False where one does not.
  bool add_bands(int64_t n, int64_t c, int64_t lanes, std::vector<C>& sums, std::vector<T>& rounded) const {
    const PoolGrid &image = p_.image, &windows = p_.windows, &places = p_.other;
    const int64_t rows = image.size[3];
    std::fill(sums.begin(), sums.end(), C(0));
    int64_t first = 0;  // the ring holds rows [first, first + band_), row r in place r % band_
    const auto give_to = [&](int64_t end) {
      while (first < end) {
        const int64_t at = first % band_, count = std::min(band_ - at, end - first), width = image.size[4] * lanes_;
        give_rows(n, c, lanes, first, count, sums.data() + at * width, rounded);
        std::fill_n(sums.data() + at * width, count * width, C(0));
        first += count;
      }
    };
    for (int64_t h = 0; h < windows.size[3]; ++h) {
      give_to(std::max<int64_t>(h * rows / windows.size[3] - kNear, 0));
      if (!add_near(grad_ + windows.at(n, c, 0, h, 0), indices_ + places.at(n, c, 0, h, 0), lanes, first, sums.data()))
        return false;
    }
    give_to(rows);
    return true;
  }
  /// A row of outputs to the ring that begins with row `first`; false where a place is not in it.
  bool add_near(const T* g, const I* at, int64_t lanes, int64_t first, C* sums) const {
    const PoolGrid &windows = p_.windows, &places = p_.other;
    const int64_t width = p_.image.size[4], start = first * width, held = band_ * width, head = first % band_ * width;
    const auto room = static_cast<uint64_t>(std::min(held, p_.image.plane() - start));
    const int64_t g_step = windows.stride[1], at_step = places.stride[1], hop = lanes_;
    bool far = false;
    for (int64_t w = 0; w < windows.size[4]; ++w, g += windows.stride[4], at += places.stride[4])
      for (int64_t l = 0; l < lanes; ++l) {
        const auto place = static_cast<int64_t>(at[l * at_step]);
        if (static_cast<uint64_t>(place - start) < room) {
          const int64_t in = place - start + head;
          sums[(in < held ? in : in - held) * hop + l] += core::widen(g[l * g_step]);
        } else {
          far |= place != -1 || std::is_unsigned_v<I>;
        }
      }
    return !far;
  }
  void give_rows(int64_t n, int64_t c, int64_t lanes, int64_t first, int64_t count, const C* sums,
                 std::vector<T>& rounded) const {
    const int64_t pixels = count * p_.image.size[4];
    T* to = dx_ + p_.image.at(n, c, 0, first, 0);
    if (lanes == lanes_ && step_ == lanes) return convert_(sums, to, static_cast<size_t>(pixels * lanes));
    convert_(sums, rounded.data(), static_cast<size_t>(pixels * lanes_));
    for (int64_t i = 0; i < pixels; ++i) std::copy_n(rounded.data() + i * lanes_, lanes, to + i * step_);
  }

  /// Sums to dx.
  void give(int64_t n, int64_t c, int64_t lanes, const std::vector<C>& sums, std::vector<T>& rounded) const {
    const PoolGrid& image = p_.image;
    if (even_) {
      T* to = dx_ + image.at(n, c, 0, 0, 0);
      if (lanes == lanes_ && step_ == lanes) return convert_(sums.data(), to, sums.size());
      convert_(sums.data(), rounded.data(), sums.size());
      for (int64_t i = 0; i < image.plane(); ++i) std::copy_n(rounded.data() + i * lanes_, lanes, to + i * step_);
      return;
    }
    for_plane(image, n, c, [&](int64_t flat, int64_t at) {
      for (int64_t l = 0; l < lanes; ++l) dx_[at + l * image.stride[1]] = core::cast<T>(sums[flat * lanes_ + l]);
    });
  }

  const pool::Problem& p_;
  const T* grad_;
  const I* indices_;
  T* dx_;
  Converter convert_;
  int64_t lanes_ = 1, groups_ = 1;
  int64_t step_ = 1;  ///< from place to place of dx, where they lie evenly
  bool even_ = false, direct_ = false;
  static constexpr int64_t kNear = 2;  ///< rows around those that an output is expected on
  bool bands_ = false;
  int64_t band_ = 0;  ///< rows
  mutable std::atomic<bool> bad_ = false;
};

}  // namespace

void max_pool_backward(const pool::Problem& p, const Tensor& grad, const Tensor& indices, const Tensor& dx,
                       bool is_new) {
  core::visit_integer(indices.dtype(), [&]<class I>() {
    if (!is_new) check_indices<I>(p, indices);
    core::visit_float(grad.dtype(), [&]<class T>() {
      const Scatter<T, I> scatter(p, grad, indices, dx);
      const int64_t bytes = p.image.plane() * scatter.lanes() * static_cast<int64_t>(sizeof(T));
      parallel_for(scatter.tasks(), grain_of(bytes), [&](int64_t begin, int64_t end) { scatter.run(begin, end); });
      if (scatter.bad()) check_indices<I>(p, indices);
    });
  });
}

}  // namespace tenor::cpu
