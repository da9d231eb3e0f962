// grid_sample: a tile of places, its taps worked out once, then channel by channel; or all channels of a place at once
// where they lie side by side.
#include "src/core/visit.h"
#include "src/ops/grid_sample/grid_sample_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/grid_sample/grid_sample_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/grid_sample/grid_pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// A vector of places from i on: one gather a tap.
template <class T, int Dims, int K, class D, class C = core::Compute<T>>
HWY_INLINE hn::Vec<D> gathered(D d, const GridTile<T, Dims, K>& tile, const T* plane, size_t i) {
  const hn::RebindToSigned<D> di;
  auto sum = hn::Zero(d);
  for (int t = 0; t < tile.kCount; ++t) {  // the tables are whole tiles: vectors may pass the last place
    const size_t at = static_cast<size_t>(t * kGridTile) + i;
    sum = hn::MulAdd(hn::LoadU(d, tile.weight.data() + at), pick(d, plane, hn::LoadU(di, tile.index.data() + at)), sum);
  }
  return sum;
}

/// One channel of a tile, to `to` side by side.
template <class T, int Dims, int K>
class ChannelSampler {
  using D = ComputeTag<T>;
  using Pairs = TapPairs<T, Dims, K>;

 public:
  HWY_INLINE void run(const GridTile<T, Dims, K>& tile, const T* plane, T* to) {
    const D d;
    for (size_t start = 0, count = static_cast<size_t>(tile.count); start < count; start += kPairPlaces) {
      const size_t some = std::min(kPairPlaces, count - start);
      pairs_.copy(tile, plane, start, some);
      for_lanes(d, some, [&](size_t k, auto io) HWY_ATTR {
        const size_t i = start + k;
        if constexpr (Pairs::kPairs && std::is_same_v<decltype(io), WholeVector>) {
          if (tile.paired[i]) return io.store(d, paired(tile, i, k), to + i);
        }
        io.store(d, gathered(d, tile, plane, i), to + i);
      });
    }
  }

 private:
  HWY_INLINE hn::Vec<D> paired(const GridTile<T, Dims, K>& tile, size_t i, size_t k) const {
    const D d;
    auto sum = hn::Zero(d), left = sum, right = sum;
    for (int p = 0; p < Pairs::kPairCount; ++p) {
      const auto* weight = tile.weight.data() + static_cast<size_t>(2 * p * kGridTile) + i;
      pairs_.read(p, k, left, right);
      sum = hn::MulAdd(hn::LoadU(d, weight), left, sum);
      sum = hn::MulAdd(hn::LoadU(d, weight + kGridTile), right, sum);
    }
    return sum;
  }

  Pairs pairs_;
};

/// Planes whose offsets do not fit the vectors' indices.
template <class T, int Dims, int K, class C = core::Compute<T>>
void sample_channel_wide(const GridTile<T, Dims, K>& tile, const T* plane, T* to) {
  for (int64_t i = 0; i < tile.count; ++i) {
    const auto axes = tile.reader.read(tile.n, tile.first + i);
    C sum = 0;
    for (int t = 0; t < tile.kCount; ++t) {
      const PlaceTap<C> tap = tap_of(axes, tile.s.x, t);
      sum += tap.weight * (tap.at >= 0 ? static_cast<C>(core::widen(plane[tap.at])) : C(0));
    }
    to[i] = core::cast<T>(sum);
  }
}

template <class T, int Dims, int K>
class TileSampler {
  using C = core::Compute<T>;

 public:
  explicit TileSampler(const GridWork& work)
      : w_(work), s_(*work.sampling), tile_(s_), short_(has_short_planes<C>(s_.x)) {
    const Tensor& y = s_.y;
    dense_ = GridReader<T, Dims, K>::step_of(y, 2) == 1;
    by_channel_ =
        s_.x.shape(1) >= 4 && s_.x.stride(1) == 1 && y.stride(1) == 1 && !(s_.x.stride(4) == 1 && s_.x.shape(4) > 1);
  }

  void run(int64_t item) {
    const int64_t block = item % w_.blocks, tile = item / w_.blocks % w_.tiles, n = item / w_.blocks / w_.tiles;
    const int64_t c0 = block * w_.channels, c1 = std::min(c0 + w_.channels, s_.x.shape(1));
    if (by_channel_) return places(n, tile, c0, c1);
    if (short_)
      tile_.fill(n, tile);
    else
      tile_.n = n, tile_.first = tile * kGridTile, tile_.count = std::min(kGridTile, s_.samples() - tile_.first);
    for (int64_t c = c0; c < c1; ++c) {
      const T* plane = s_.x.data<T>() + n * s_.x.stride(0) + c * s_.x.stride(1);
      T* to = s_.y.data<T>() + n * s_.y.stride(0) + c * s_.y.stride(1);
      T* line = dense_ ? to + tile_.first : line_;
      if (short_)
        channel_.run(tile_, plane, line);
      else
        sample_channel_wide<T, Dims, K>(tile_, plane, line);
      if (dense_) continue;
      const T* from = line;
      tile_.reader.each_run(s_.y, 2, s_.grid, tile_.first, tile_.count, [&](int64_t at, int64_t run, int64_t step) {
        for (int64_t i = 0; i < run; ++i) to[at + i * step] = *from++;
      });
    }
  }

 private:
  void places(int64_t n, int64_t tile, int64_t c0, int64_t c1) const {
    const int64_t first = tile * kGridTile, end = std::min(first + kGridTile, s_.samples());
    const T* x = s_.x.data<T>() + n * s_.x.stride(0) + c0;
    T* y = s_.y.data<T>() + n * s_.y.stride(0) + c0;
    const ComputeTag<T> d;
    for (int64_t i = first; i < end; ++i) {
      const auto axes = tile_.reader.read(n, i);
      PlaceTap<C> taps[GridTile<T, Dims, K>::kCount];
      int count = 0;
      for (int t = 0; t < tile_.kCount; ++t) {
        taps[count] = tap_of(axes, s_.x, t);
        if (taps[count].at >= 0) ++count;
      }
      T* to = y + tile_.reader.offset(s_.y, 2, s_.grid, i);
      const auto none = hn::Set(d, axes.lost ? std::numeric_limits<C>::quiet_NaN() : C(0));
      for_lanes(d, static_cast<size_t>(c1 - c0), [&](size_t c, auto io) HWY_ATTR {
        auto sum = none;
        for (int t = 0; t < count; ++t)
          sum = hn::MulAdd(hn::Set(d, taps[t].weight), io.load(d, x + taps[t].at + c), sum);
        io.store(d, sum, to + c);
      });
    }
  }

  const GridWork& w_;
  const GridSampling& s_;
  GridTile<T, Dims, K> tile_;
  ChannelSampler<T, Dims, K> channel_;
  bool short_, dense_, by_channel_;
  T line_[kGridTile];
};

void sample_tiles_simd(const GridWork& work, int64_t begin, int64_t end) {
  core::visit_float(work.sampling->x.dtype(), [&]<class T>() {
    visit_sampling(*work.sampling, [&]<int Dims, int K>() {
      TileSampler<T, Dims, K> sampler(work);
      for (int64_t i = begin; i < end; ++i) sampler.run(i);
    });
  });
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(sample_tiles_simd);
void sample_tiles(const GridWork& work, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(sample_tiles_simd)(work, begin, end);
}

}  // namespace tenor::cpu
#endif  // HWY_ONCE
