// The gradients of grid_sample: to the grid, place by place; to the image, a block of channels at a time over all
// places in their order.
#include <memory>

#include "src/core/visit.h"
#include "src/ops/grid_sample/grid_sample_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/grid_sample/grid_gradient_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/grid_sample/grid_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// The gradient to one place's coordinates, x first, from the sums over channels of gradient times tap.
template <class C, int Dims, int K>
void finish_place(const PlaceAxes<C, Dims, K>& axes, const C* dots, C* out) {
  constexpr int kCount = Dims == 3 ? K * K * K : K * K;
  for (int d = 0; d < Dims; ++d) {
    C sum = 0;
    for (int t = 0; t < kCount; ++t) {
      C slope = 1;
      for (int a = 0, rest = kCount / K, left = t; a < Dims; ++a, left %= rest, rest /= K) {
        const int k = left / rest;
        slope *= a == d ? axes.axis[a].slope[k] : axes.axis[a].weight[k];
        if (rest == 1) break;
      }
      sum += dots[t] * slope;
    }
    out[Dims - 1 - d] = axes.lost ? std::numeric_limits<C>::quiet_NaN() : sum;
  }
}

template <class T, int Dims, int K>
class GridGradient {
  using C = core::Compute<T>;
  static constexpr int kCount = GridTile<T, Dims, K>::kCount;

 public:
  explicit GridGradient(const GridWork& work)
      : w_(work),
        s_(*work.sampling),
        tile_(s_),
        products_(static_cast<size_t>(s_.x.shape(1))),
        by_channel_(s_.x.stride(1) == 1 && s_.y.stride(1) == 1) {
    dots_.resize(static_cast<size_t>(kCount * kGridTile));
  }

  void run(int64_t item) {
    const int64_t n = item / w_.tiles, first = item % w_.tiles * kGridTile,
                  end = std::min(first + kGridTile, s_.samples());
    const bool vectors = !by_channel_ && has_short_planes<C>(s_.x) && K > 1;
    if (vectors) tile_dots(n, item % w_.tiles);
    for (int64_t i = first; i < end; ++i) {
      const auto axes = tile_.reader.read(n, i);
      C dots[kCount] = {}, out[Dims];
      if (vectors)
        for (int t = 0; t < kCount; ++t) dots[t] = dots_[static_cast<size_t>(t * kGridTile + i - first)];
      else if (K > 1)
        place_dots(n, i, axes, dots);
      finish_place(axes, dots, out);
      write(n, i, out);
    }
  }

 private:
  /// Sums over channels of all places of a tile at once.
  void tile_dots(int64_t n, int64_t tile) {
    tile_.fill(n, tile);
    const ComputeTag<T> d;
    const hn::RebindToSigned<decltype(d)> di;
    const size_t lanes = hn::Lanes(d);
    HWY_ALIGN C part[HWY_MAX_BYTES / sizeof(C)];
    for (size_t i = 0; i < static_cast<size_t>(tile_.count); i += lanes) {
      const size_t some = std::min(lanes, static_cast<size_t>(tile_.count) - i);
      int64_t at[HWY_MAX_BYTES / sizeof(C)];
      for (size_t l = 0; l < some; ++l)
        at[l] = n * s_.y.stride(0) + tile_.reader.offset(s_.y, 2, s_.grid, tile_.first + static_cast<int64_t>(i + l));
      for (int t = 0; t < kCount; ++t)
        hn::StoreU(hn::Zero(d), d, dots_.data() + static_cast<size_t>(t * kGridTile) + i);
      for (int64_t c = 0; c < s_.x.shape(1); ++c) {
        const T* g = s_.y.data<T>() + c * s_.y.stride(1);
        for (size_t l = 0; l < lanes; ++l) part[l] = l < some ? static_cast<C>(core::widen(g[at[l]])) : C(0);
        const auto v = hn::Load(d, part);
        const T* plane = s_.x.data<T>() + n * s_.x.stride(0) + c * s_.x.stride(1);
        for (int t = 0; t < kCount; ++t) {
          const size_t place = static_cast<size_t>(t * kGridTile) + i;
          C* sum = dots_.data() + place;
          hn::StoreU(hn::MulAdd(v, pick(d, plane, hn::LoadU(di, tile_.index.data() + place)), hn::LoadU(d, sum)), d,
                     sum);
        }
      }
    }
  }
  /// Sums over channels of one place.
  void place_dots(int64_t n, int64_t i, const PlaceAxes<C, Dims, K>& axes, C* dots) {
    const T* g = s_.y.data<T>() + n * s_.y.stride(0) + tile_.reader.offset(s_.y, 2, s_.grid, i);
    const auto channels = static_cast<size_t>(s_.x.shape(1));
    for (int t = 0; t < kCount; ++t) {
      const PlaceTap<C> tap = tap_of(axes, s_.x, t);
      if (tap.at < 0) continue;
      const T* x = s_.x.data<T>() + n * s_.x.stride(0) + tap.at;
      if (!by_channel_) {
        for (size_t c = 0; c < channels; ++c)
          dots[t] += static_cast<C>(core::widen(g[static_cast<int64_t>(c) * s_.y.stride(1)])) *
                     static_cast<C>(core::widen(x[static_cast<int64_t>(c) * s_.x.stride(1)]));
        continue;
      }
      const ComputeTag<T> d;
      C* products = products_.data();
      for_lanes(d, channels, [&](size_t c, auto io) HWY_ATTR {
        io.store(d, hn::Mul(io.load(d, g + c), io.load(d, x + c)), products + c);
      });
      dots[t] = reduce_row(
          static_cast<const C*>(products), channels, C(0), [](auto, auto v) HWY_ATTR { return v; }, AddOp());
    }
  }
  void write(int64_t n, int64_t i, const C* out) const {
    const Tensor& to = *w_.grad_grid;
    const int64_t at = n * to.stride(0) + tile_.reader.offset(to, 1, s_.grid, i);
    for (int d = 0; d < Dims; ++d) {
      if (to.dtype() == float32)
        to.data<float>()[at + d * to.stride(4)] = static_cast<float>(out[d]);
      else
        to.data<T>()[at + d * to.stride(4)] = core::cast<T>(out[d]);
    }
  }

  const GridWork& w_;
  const GridSampling& s_;
  GridTile<T, Dims, K> tile_;
  std::vector<C> products_, dots_;
  bool by_channel_;
};

/// Sums of a block of channels, pixel by pixel with the block's channels side by side; written at the end.
template <class T, int Dims, int K>
class ImageGradient {
  using C = core::Compute<T>;
  static constexpr int kCount = GridTile<T, Dims, K>::kCount;

 public:
  explicit ImageGradient(const GridWork& work)
      : w_(work),
        s_(*work.sampling),
        reader_(s_),
        pixels_(s_.x.shape(2) * s_.x.shape(3) * s_.x.shape(4)),
        sums_(new C[static_cast<size_t>(pixels_ * work.channels)]),
        line_(static_cast<size_t>(work.channels)) {
    // Taps as offsets of a dense image of single elements.
    image_ = s_.x.with_layout(s_.x.shape(), {0, 0, s_.x.shape(3) * s_.x.shape(4), s_.x.shape(4), 1}, 0);
  }

  void run(int64_t item) {
    const int64_t n = item / w_.blocks, c0 = item % w_.blocks * w_.channels,
                  channels = std::min(w_.channels, s_.x.shape(1) - c0);
    std::fill_n(sums_.get(), pixels_ * channels, C(0));
    for (int64_t i = 0; i < s_.samples(); ++i) add_place(n, i, c0, channels);
    for (int64_t pixel = 0; pixel < pixels_; ++pixel) write(n, pixel, c0, channels);
  }

 private:
  void add_place(int64_t n, int64_t i, int64_t c0, int64_t channels) {
    const auto axes = reader_.read(n, i);
    if (axes.lost) return;
    const T* g = s_.y.data<T>() + n * s_.y.stride(0) + c0 * s_.y.stride(1) + reader_.offset(s_.y, 2, s_.grid, i);
    for (int64_t c = 0; c < channels; ++c)
      line_[static_cast<size_t>(c)] = static_cast<C>(core::widen(g[c * s_.y.stride(1)]));
    const hn::ScalableTag<C> d;
    const C* line = line_.data();
    for (int t = 0; t < kCount; ++t) {
      const PlaceTap<C> tap = tap_of(axes, image_, t);
      if (tap.at < 0) continue;
      C* sum = sums_.get() + tap.at * channels;
      const auto weight = hn::Set(d, tap.weight);
      for_lanes(d, static_cast<size_t>(channels), [&](size_t c, auto io) HWY_ATTR {
        io.store(d, hn::MulAdd(weight, io.load(d, line + c), io.load(d, static_cast<const C*>(sum) + c)), sum + c);
      });
    }
  }
  void write(int64_t n, int64_t pixel, int64_t c0, int64_t channels) const {
    const Tensor& to = *w_.grad_x;
    const int64_t w = pixel % to.shape(4), row = pixel / to.shape(4), h = row % to.shape(3), d = row / to.shape(3);
    T* x = to.data<T>() + n * to.stride(0) + c0 * to.stride(1) + d * to.stride(2) + h * to.stride(3) + w * to.stride(4);
    for (int64_t c = 0; c < channels; ++c)
      x[c * to.stride(1)] = core::cast<T>(sums_[static_cast<size_t>(pixel * channels + c)]);
  }

  const GridWork& w_;
  const GridSampling& s_;
  GridReader<T, Dims, K> reader_;
  int64_t pixels_;
  std::unique_ptr<C[]> sums_;
  std::vector<C> line_;
  Tensor image_;
};

template <template <class, int, int> class Kernel>
void run_items(const GridWork& work, int64_t begin, int64_t end) {
  core::visit_float(work.sampling->x.dtype(), [&]<class T>() {
    visit_sampling(*work.sampling, [&]<int Dims, int K>() {
      Kernel<T, Dims, K> kernel(work);
      for (int64_t i = begin; i < end; ++i) kernel.run(i);
    });
  });
}
void grid_gradient_simd(const GridWork& work, int64_t begin, int64_t end) { run_items<GridGradient>(work, begin, end); }
void image_gradient_simd(const GridWork& work, int64_t begin, int64_t end) {
  run_items<ImageGradient>(work, begin, end);
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(grid_gradient_simd);
HWY_EXPORT(image_gradient_simd);
void grid_gradient_tiles(const GridWork& work, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(grid_gradient_simd)(work, begin, end);
}
void image_gradient_blocks(const GridWork& work, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(image_gradient_simd)(work, begin, end);
}

}  // namespace tenor::cpu
#endif  // HWY_ONCE
