// The gradients of grid_sample: to the grid, place by place; to the image, a block of channels at a time over all
// places in their order.
#include <memory>

#include "src/core/visit.h"
#include "src/cpu/move.h"
#include "src/ops/grid_sample/grid_sample_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/grid_sample/grid_gradient_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/grid_sample/grid_pairs-inl.h"

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
  using Tile = GridTile<T, Dims, K>;
  using Reader = GridReader<T, Dims, K>;
  static constexpr int kCount = Tile::kCount;
  static constexpr auto kTile = static_cast<size_t>(kGridTile);

 public:
  explicit GridGradient(const GridWork& work)
      : w_(work),
        s_(*work.sampling),
        by_channel_(s_.x.stride(1) == 1 && s_.y.stride(1) == 1),
        vectors_(!by_channel_ && has_short_planes<C>(s_.x) && K > 1),
        dense_(Reader::step_of(s_.y, 2) == 1),
        tile_(s_, vectors_),
        products_(static_cast<size_t>(s_.x.shape(1))),
        dots_(static_cast<size_t>(kCount) * kTile) {}

  void run(int64_t item) {
    const int64_t n = item / w_.tiles, tile = item % w_.tiles, first = tile * kGridTile,
                  end = std::min(first + kGridTile, s_.samples());
    if (vectors_) tile_dots(n, tile);
    if (Tile::kPlaneOfPairs && vectors_) {
      finish_tile();
    } else {
      for (int64_t i = first; i < end; ++i) {
        const auto axes = tile_.reader.read(n, i);
        C dots[kCount] = {};
        if (vectors_)
          for (size_t t = 0; t < static_cast<size_t>(kCount); ++t)
            dots[t] = dots_[t * kTile + static_cast<size_t>(i - first)];
        else if (K > 1)
          place_dots(n, i, axes, dots);
        finish_place(axes, dots, out_ + Dims * (i - first));
      }
    }
    write(n, first, end - first);
  }

 private:
  /// Sums over channels of all places of a tile at once.
  void tile_dots(int64_t n, int64_t tile) {
    tile_.fill(n, tile);
    std::fill(dots_.begin(), dots_.end(), C(0));
    const ComputeTag<T> d;
    const auto count = static_cast<size_t>(tile_.count);
    for (int64_t c = 0; c < s_.x.shape(1); ++c) {
      const T* plane = s_.x.data<T>() + n * s_.x.stride(0) + c * s_.x.stride(1);
      const T* gradient = gradient_of(n, c);
      for (size_t start = 0; start < count; start += kPairPlaces) {
        const size_t some = std::min(kPairPlaces, count - start);
        pairs_.copy(tile_, plane, start, some);
        for_lanes(d, some, [&](size_t k, auto io) HWY_ATTR {
          constexpr bool kWhole = std::is_same_v<decltype(io), WholeVector>;
          add_products(io.load(d, gradient + start + k), plane, start + k, k, kWhole);
        });
      }
    }
  }
  /// dots += a channel's gradient times its taps, of the vector of places from i on; k: its place in the pairs.
  HWY_INLINE void add_products(hn::Vec<ComputeTag<T>> g, const T* plane, size_t i, size_t k, bool whole) {
    const ComputeTag<T> d;
    const hn::RebindToSigned<decltype(d)> di;
    const auto add = [&](size_t t, auto tap) HWY_ATTR {
      C* sum = dots_.data() + t * kTile + i;
      hn::StoreU(hn::MulAdd(g, tap, hn::LoadU(d, sum)), d, sum);
    };
    if (Pairs::kPairs && whole && tile_.paired[i]) {
      auto left = hn::Zero(d), right = left;
      for (int p = 0; p < Pairs::kPairCount; ++p) {
        pairs_.read(p, k, left, right);
        add(2 * static_cast<size_t>(p), left), add(2 * static_cast<size_t>(p) + 1, right);
      }
    } else {
      for (size_t t = 0; t < static_cast<size_t>(kCount); ++t)
        add(t, pick(d, plane, hn::LoadU(di, tile_.index.data() + t * kTile + i)));
    }
  }
  /// The gradient to a channel of the tile's places, side by side.
  const T* gradient_of(int64_t n, int64_t c) {
    const T* from = s_.y.data<T>() + n * s_.y.stride(0) + c * s_.y.stride(1);
    if (dense_) return from + Reader::offset(s_.y, 2, s_.grid, tile_.first);
    T* to = gradient_;
    Reader::each_run(s_.y, 2, s_.grid, tile_.first, tile_.count, [&](int64_t at, int64_t run, int64_t step) {
      for (int64_t i = 0; i < run; ++i) *to++ = from[at + i * step];
    });
    return gradient_;
  }
  /// The gradient to a tile's coordinates, bilinear ones, x first: along x that of the upper taps and that of the lower
  /// by y's weights, and the reverse.
  void finish_tile() {
    const ComputeTag<T> d;
    const auto one = hn::Set(d, C(1));
    const C *dots = dots_.data(), *second = tile_.second.data(), *slope = tile_.slope.data();
    for (size_t i = 0; i < static_cast<size_t>(tile_.count); i += hn::Lanes(d)) {  // tables are whole tiles
      const auto a = hn::LoadU(d, dots + i), b = hn::LoadU(d, dots + kTile + i), c = hn::LoadU(d, dots + 2 * kTile + i),
                 e = hn::LoadU(d, dots + 3 * kTile + i);
      const auto x = hn::LoadU(d, second + i), y = hn::LoadU(d, second + kTile + i);
      const auto by_x = hn::MulAdd(hn::Sub(e, c), y, hn::Mul(hn::Sub(b, a), hn::Sub(one, y)));
      const auto by_y = hn::MulAdd(hn::Sub(e, b), x, hn::Mul(hn::Sub(c, a), hn::Sub(one, x)));
      HWY_ALIGN C out[2][HWY_MAX_BYTES / sizeof(C)];
      hn::Store(hn::Mul(by_x, hn::LoadU(d, slope + i)), d, out[0]);
      hn::Store(hn::Mul(by_y, hn::LoadU(d, slope + kTile + i)), d, out[1]);
      for (size_t l = 0; l < hn::Lanes(d); ++l) out_[2 * (i + l)] = out[0][l], out_[2 * (i + l) + 1] = out[1][l];
    }
  }
  /// Sums over channels of one place.
  void place_dots(int64_t n, int64_t i, const PlaceAxes<C, Dims, K>& axes, C* dots) {
    const T* g = s_.y.data<T>() + n * s_.y.stride(0) + Reader::offset(s_.y, 2, s_.grid, i);
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
  /// The first `count` places of out_ to the grid's places from `first` on.
  void write(int64_t n, int64_t first, int64_t count) const {
    const Tensor& to = *w_.grad_grid;
    const auto put = [&](auto* data) {
      using G = std::remove_pointer_t<decltype(data)>;
      const C* from = out_;
      Reader::each_run(to, 1, s_.grid, first, count, [&](int64_t at, int64_t run, int64_t step) {
        for (int64_t i = 0; i < run; ++i, at += step)
          for (int d = 0; d < Dims; ++d) data[n * to.stride(0) + at + d * to.stride(4)] = core::cast<G>(*from++);
      });
    };
    if (to.dtype() == float32)
      put(to.data<float>());
    else
      put(to.data<T>());
  }

  using Pairs = TapPairs<T, Dims, K>;
  const GridWork& w_;
  const GridSampling& s_;
  bool by_channel_, vectors_, dense_;
  Tile tile_;
  Pairs pairs_;
  std::vector<C> products_, dots_;
  T gradient_[kGridTile];
  C out_[Dims * kGridTile];
};

/// Sums of a block of channels, pixel by pixel with the block's channels side by side; written at the end.
template <class T, int Dims, int K>
class ImageGradient {
  using C = core::Compute<T>;
  using Reader = GridReader<T, Dims, K>;
  static constexpr int kCount = GridTile<T, Dims, K>::kCount;

 public:
  explicit ImageGradient(const GridWork& work)
      : w_(work),
        s_(*work.sampling),
        dense_(as_dense(s_)),
        tile_(dense_),
        short_(has_short_planes<C>(dense_.x)),
        pixels_(s_.x.shape(2) * s_.x.shape(3) * s_.x.shape(4)),
        sums_(new C[static_cast<size_t>(pixels_ * work.channels)]),
        lines_(static_cast<size_t>(kGridTile * work.channels)) {}

  void run(int64_t item) {
    const int64_t n = item / w_.blocks, c0 = item % w_.blocks * w_.channels;
    channels_ = std::min(w_.channels, s_.x.shape(1) - c0);
    std::fill_n(sums_.get(), pixels_ * channels_, C(0));
    for (int64_t tile = 0; tile < w_.tiles; ++tile) {
      if (short_) tile_.fill(n, tile);
      const int64_t first = tile * kGridTile, count = std::min(kGridTile, s_.samples() - first);
      read_lines(n, c0, first, count);
      for (int64_t i = 0; i < count; ++i) short_ ? add_tile_place(i) : add_place(n, first + i, i);
    }
    write(n, c0);
  }

 private:
  /// The sampling of a dense image of single elements: taps are pixels.
  static GridSampling as_dense(const GridSampling& s) {
    GridSampling dense = s;
    dense.x = s.x.with_layout(s.x.shape(), {0, 0, s.x.shape(3) * s.x.shape(4), s.x.shape(4), 1}, 0);
    return dense;
  }

  /// The gradient at places from `first` on, each place's channels side by side.
  void read_lines(int64_t n, int64_t c0, int64_t first, int64_t count) {
    const T* from = s_.y.data<T>() + n * s_.y.stride(0) + c0 * s_.y.stride(1);
    T* to = lines_.data();
    Reader::each_run(s_.y, 2, s_.grid, first, count, [&](int64_t at, int64_t run, int64_t step) {
      const int64_t sizes[] = {run, channels_}, strides[] = {step, s_.y.stride(1)};
      gather_box(sizeof(T), from + at, Box{2, sizes, strides}, to);
      to += run * channels_;
    });
  }

  HWY_INLINE void add(const T* line, int64_t pixel, C weight) {
    const hn::ScalableTag<C> d;
    C* sum = sums_.get() + pixel * channels_;
    const auto times = hn::Set(d, weight);
    for_lanes(d, static_cast<size_t>(channels_), [&](size_t c, auto io) HWY_ATTR {
      io.store(d, hn::MulAdd(times, io.load(d, line + c), io.load(d, static_cast<const C*>(sum) + c)), sum + c);
    });
  }
  HWY_INLINE void add_tile_place(int64_t i) {
    const T* line = lines_.data() + i * channels_;
    for (int64_t t = 0; t < kCount; ++t) {
      const auto at = static_cast<size_t>(t * kGridTile + i);
      if (tile_.index[at] >= 0) add(line, tile_.index[at], tile_.weight[at]);
    }
  }
  /// Of an image whose pixels the tile's indices do not hold.
  void add_place(int64_t n, int64_t place, int64_t i) {
    const auto axes = tile_.reader.read(n, place);
    for (int t = 0; t < kCount; ++t) {
      const PlaceTap<C> tap = tap_of(axes, dense_.x, t);
      if (tap.at >= 0) add(lines_.data() + i * channels_, tap.at, tap.weight);
    }
  }

  void write(int64_t n, int64_t c0) {
    const Tensor& to = *w_.grad_x;
    const int64_t step = to.stride(4), plane = Reader::step_of(to, 2) == step ? pixels_ : to.shape(4);
    for (int64_t pixel = 0; pixel < pixels_;) {
      const int64_t w = pixel % to.shape(4), row = pixel / to.shape(4), h = row % to.shape(3), d = row / to.shape(3);
      const int64_t run = std::min(kGridTile, plane == pixels_ ? pixels_ - pixel : to.shape(4) - w);
      T* x = to.data<T>() + n * to.stride(0) + c0 * to.stride(1) + d * to.stride(2) + h * to.stride(3) + w * step;
      const T* from = rounded(sums_.get() + pixel * channels_, run * channels_);
      if (step == 1 && channels_ > 1) {
        transpose_plane(sizeof(T), from, channels_, x, to.stride(1), channels_, run);
      } else {
        const int64_t sizes[] = {run, channels_}, strides[] = {step, to.stride(1)};
        scatter_box(sizeof(T), from, x, Box{2, sizes, strides});
      }
      pixel += run;
    }
  }
  /// n sums as elements: themselves, or over the lines, which are read.
  const T* rounded(const C* sums, int64_t n) {
    if constexpr (std::is_same_v<C, T>) {
      return sums;
    } else {
      const hn::ScalableTag<C> d;
      T* to = lines_.data();
      for_lanes(d, static_cast<size_t>(n),
                [&](size_t i, auto io) HWY_ATTR { io.store(d, io.load(d, sums + i), to + i); });
      return to;
    }
  }

  const GridWork& w_;
  const GridSampling& s_;
  GridSampling dense_;
  GridTile<T, Dims, K> tile_;
  bool short_;
  int64_t pixels_, channels_ = 0;
  std::unique_ptr<C[]> sums_;
  std::vector<T> lines_;
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
