// The taps of a tile of places, side by side for vectors, and single elements of an image as vectors of the compute
// type.
#if defined(TENOR_OPS_GRID_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_OPS_GRID_TILE_INL_H_
#undef TENOR_OPS_GRID_TILE_INL_H_
#else
#define TENOR_OPS_GRID_TILE_INL_H_
#endif

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

#include "src/cpu/lanes-inl.h"
#include "src/ops/grid_sample/grid_sample_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// The elements at base + index, 0 where the index is negative.
template <class D, class VI, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> pick(D d, const T* base, VI index) {
  const hn::RebindToSigned<D> di;
  const auto inside = hn::Gt(index, hn::Set(di, -1));
  return hn::IfThenElseZero(hn::RebindMask(d, inside), hn::GatherIndex(d, base, hn::Max(index, hn::Zero(di))));
}
/// Of 16-bit floats two neighbours are read, the element and the one before it, so that nothing behind the image is.
template <class D, class VI>
HWY_INLINE auto pick_bits(D, const void* base, VI index) {
  const hn::RebindToSigned<D> di;
  const hn::RebindToUnsigned<D> du;
  const auto zero = hn::Zero(di), one = hn::Set(di, 1);
  const auto start = hn::Max(hn::Sub(index, one), zero);
  const auto both = hn::BitCast(du, hn::GatherOffset(di, static_cast<const int32_t*>(base), hn::ShiftLeft<1>(start)));
  const auto first = hn::RebindMask(du, hn::Eq(index, zero)),
             inside = hn::RebindMask(du, hn::Gt(index, hn::Set(di, -1)));
  const auto bits = hn::IfThenElse(first, hn::And(both, hn::Set(du, 0xFFFFu)), hn::ShiftRight<16>(both));
  return hn::IfThenElseZero(inside, bits);
}
template <class D, class VI>
HWY_INLINE hn::Vec<D> pick(D d, const BFloat16* base, VI index) {
  return hn::BitCast(d, hn::ShiftLeft<16>(pick_bits(d, base, index)));
}
template <class D, class VI>
HWY_INLINE hn::Vec<D> pick(D d, const Float16* base, VI index) {
  const hn::Rebind<uint16_t, D> d16;
  HWY_ALIGN Float16 part[HWY_MAX_BYTES / sizeof(float)];
  hn::StoreU(hn::TruncateTo(d16, pick_bits(d, base, index)), d16, reinterpret_cast<uint16_t*>(part));
  return load(d, static_cast<const Float16*>(part));
}

/// Axes of one place, slowest first; lost: its coordinates reach nothing.
template <class C, int Dims, int K>
struct PlaceAxes {
  core::GridTaps<C, K> axis[Dims];
  bool lost;
};
template <class T, int Dims, int K, class C = core::Compute<T>>
class GridReader {
 public:
  explicit GridReader(const GridSampling& s) : s_(s), axes_(s.axes()), float_(s.grid.dtype() == float32) {}

  /// Where place i of an image lies in a tensor [N, ., D, H, W] or the grid, whose depth is dim `depth`.
  static int64_t offset(const Tensor& x, int depth, const Tensor& grid, int64_t i) {
    const int64_t width = grid.shape(3), height = grid.shape(2), row = i / width;
    return row / height * x.stride(depth) + row % height * x.stride(depth + 1) + i % width * x.stride(depth + 2);
  }
  /// The step from each place of an image to the next, 0 where there is no such.
  static int64_t step_of(const Tensor& x, int depth) {
    int64_t step = 0, reach = 0;
    for (int d = depth + 2; d >= depth; --d) {
      if (x.shape(d) == 1) continue;
      if (step != 0 && x.stride(d) != reach) return 0;
      if (step == 0) step = reach = x.stride(d);
      reach *= x.shape(d);
      if (step == 0) return 0;
    }
    return step == 0 ? 1 : step;
  }
  /// fn(offset, count, step) for runs of places from i on, each a step behind the one before.
  template <class F>
  static void each_run(const Tensor& x, int depth, const Tensor& grid, int64_t i, int64_t count, F fn) {
    if (const int64_t step = step_of(x, depth); step != 0) return fn(offset(x, depth, grid, i), count, step);
    for (const int64_t end = i + count; i < end;) {
      const int64_t run = std::min(end - i, grid.shape(3) - i % grid.shape(3));
      fn(offset(x, depth, grid, i), run, x.stride(depth + 2));
      i += run;
    }
  }
  /// Of depth, height and width.
  const core::GridAxis& axis(int d) const { return axes_[static_cast<size_t>(d)]; }

  /// The last two coordinates of `count` places from i on.
  void coordinates(int64_t n, int64_t i, size_t count, C* x, C* y) const {
    const int64_t width = s_.grid.shape(3), step = s_.grid.stride(4);
    int64_t w = i % width, at = n * s_.grid.stride(0) + offset(s_.grid, 1, s_.grid, i);
    for (size_t k = 0; k < count; ++k) {
      x[k] = value(at), y[k] = value(at + step);
      at += s_.grid.stride(3);
      if (++w == width && k + 1 < count)
        w = 0, at = n * s_.grid.stride(0) + offset(s_.grid, 1, s_.grid, i + static_cast<int64_t>(k) + 1);
    }
  }
  PlaceAxes<C, Dims, K> read(int64_t n, int64_t i) const {
    PlaceAxes<C, Dims, K> out;
    out.lost = false;
    const int64_t at = n * s_.grid.stride(0) + offset(s_.grid, 1, s_.grid, i);
    for (int d = 0; d < Dims; ++d) {
      const int64_t place = at + (Dims - 1 - d) * s_.grid.stride(4);  // x comes first
      const C g = value(place);
      const core::GridAxis& axis = axes_[static_cast<size_t>(3 - Dims + d)];
      const bool lost = core::is_lost(g, axis.padding);
      out.lost = out.lost || lost;
      out.axis[d] = core::grid_taps<K>(lost ? C(0) : g, axis);
    }
    return out;
  }

 private:
  C value(int64_t at) const {
    return float_ ? static_cast<C>(s_.grid.data<float>()[at]) : core::widen(s_.grid.data<T>()[at]);
  }

  const GridSampling& s_;
  std::array<core::GridAxis, 3> axes_;
  bool float_;
};

/// Tap t of a place: its offset within a plane, or -1 outside, and its weight.
template <class C>
struct PlaceTap {
  int64_t at;
  C weight;
};
template <class C, int Dims, int K>
HWY_INLINE PlaceTap<C> tap_of(const PlaceAxes<C, Dims, K>& p, const Tensor& x, int t) {
  const int kx = t % K, ky = t / K % K, kz = t / (K * K);
  const auto &ax = p.axis[Dims - 1], &ay = p.axis[Dims - 2];
  bool inside = ax.index[kx] >= 0 && ay.index[ky] >= 0 && !p.lost;
  int64_t at = ax.index[kx] * x.stride(4) + ay.index[ky] * x.stride(3);
  C weight = ax.weight[kx] * ay.weight[ky];
  if constexpr (Dims == 3) {
    inside = inside && p.axis[0].index[kz] >= 0;
    at += p.axis[0].index[kz] * x.stride(2);
    weight *= p.axis[0].weight[kz];
  }
  return {inside ? at : -1, p.lost ? std::numeric_limits<C>::quiet_NaN() : weight};
}

/// A tile's taps: Index and C of kCount taps of each place, tap by tap.
template <class T, int Dims, int K, class C = core::Compute<T>>
struct GridTile {
  using Index = hwy::MakeSigned<C>;
  static constexpr int kCount = Dims == 3 ? K * K * K : K * K;
  static constexpr bool kPlaneOfPairs = Dims == 2 && K == 2;

  /// With slopes, where bilinear places' gradients are wanted.
  explicit GridTile(const GridSampling& sampling, bool with_slopes = false)
      : s(sampling),
        reader(sampling),
        index(static_cast<size_t>(kCount * kGridTile)),
        weight(static_cast<size_t>(kCount * kGridTile)),
        paired(static_cast<size_t>(kGridTile)),
        second(with_slopes ? 2 * kGridTile : 0),
        slope(second.size()) {}

  void fill(int64_t image, int64_t tile) {
    n = image;
    first = tile * kGridTile;
    count = std::min(kGridTile, s.samples() - first);
    const size_t lanes = hn::Lanes(ComputeTag<T>());
    for (size_t i = 0; i < static_cast<size_t>(count); i += lanes) {
      const size_t end = std::min(i + lanes, static_cast<size_t>(count));
      if constexpr (kPlaneOfPairs && kFillsVectors) {
        if (end == i + lanes && fill_vector(i)) continue;
      }
      for (size_t place = i; place < end; ++place) fill_place(place);
      if constexpr (K % 2 == 0) mark_pairs(i, end);
    }
  }

 private:
  /// Whether positions are rounded once in vectors, as they are one by one.
  static constexpr bool kFillsVectors = HWY_NATIVE_FMA != 0 && std::is_same_v<C, float>;

  void fill_place(size_t i) {
    const PlaceAxes<C, Dims, K> axes = reader.read(n, first + static_cast<int64_t>(i));
    for (int t = 0; t < kCount; ++t) {
      const PlaceTap<C> tap = tap_of(axes, s.x, t);
      const size_t at = static_cast<size_t>(t * kGridTile) + i;
      index[at] = static_cast<Index>(tap.at);
      weight[at] = tap.weight;
    }
    if constexpr (kPlaneOfPairs) {
      if (slope.empty()) return;
      for (size_t a = 0; a < 2; ++a) {
        const auto& taps = axes.axis[1 - a];
        second[a * kGridTile + i] = taps.weight[1];
        slope[a * kGridTile + i] = axes.lost ? std::numeric_limits<C>::quiet_NaN() : taps.slope[1];
      }
    }
  }
  void mark_pairs(size_t begin, size_t end) {
    bool all = true;
    for (int t = 0; t < kCount; t += 2)
      for (size_t i = begin; i < end; ++i) {
        const size_t at = static_cast<size_t>(t * kGridTile) + i;
        all = all && index[at] >= 0 && index[at + kGridTile] == index[at] + 1;
      }
    paired[begin] = all ? 1 : 0;
  }

  static constexpr int64_t kMostSize = int64_t{1} << 30;  // of a dim, for its places to be Index
  /// A vector of bilinear places from i on, unless one is NaN or reflected.
  bool fill_vector(size_t i) {
    const ComputeTag<T> d;
    const hn::RebindToSigned<decltype(d)> di;
    if (reader.axis(2).padding == core::GridPadding::kReflection || s.x.shape(3) > kMostSize ||
        s.x.shape(4) > kMostSize)
      return false;
    HWY_ALIGN C place[2][HWY_MAX_BYTES / sizeof(C)];
    reader.coordinates(n, first + static_cast<int64_t>(i), hn::Lanes(d), place[0], place[1]);
    using V = hn::Vec<decltype(d)>;
    using VI = hn::Vec<decltype(di)>;
    V part[2][2];
    VI at[2][2];
    const auto none = hn::Set(di, -1);
    for (size_t a = 0; a < 2; ++a) {
      const core::GridAxis& axis = reader.axis(2 - static_cast<int>(a));
      const C half = static_cast<C>(axis.align_corners ? axis.size - 1 : axis.size) / 2,
              last = static_cast<C>(axis.size - 1);
      auto u =
          hn::MulAdd(hn::Load(d, place[a]), hn::Set(d, half), hn::Set(d, axis.align_corners ? half : half - C(0.5)));
      if (!hn::AllFalse(d, hn::IsNaN(u))) return false;
      const bool zeros = axis.padding == core::GridPadding::kZeros;
      if (!slope.empty()) {
        const auto moves = hn::And(hn::Gt(u, hn::Zero(d)), hn::Lt(u, hn::Set(d, last)));
        const auto rise = hn::Set(d, half);
        hn::StoreU(zeros ? rise : hn::IfThenElseZero(moves, rise), d, slope.data() + a * kGridTile + i);
      }
      u = hn::Min(hn::Max(u, hn::Set(d, zeros ? C(-8) : C(0))), hn::Set(d, zeros ? last + 9 : last));
      const auto whole = hn::Floor(u);
      part[a][1] = hn::Sub(u, whole);
      part[a][0] = hn::Sub(hn::Set(d, C(1)), part[a][1]);
      if (!slope.empty()) hn::StoreU(part[a][1], d, second.data() + a * kGridTile + i);
      const auto size = hn::Set(di, static_cast<Index>(axis.size));
      auto j = hn::ConvertTo(di, whole);
      for (auto& index_of : at[a]) {
        index_of = hn::IfThenElse(hn::And(hn::Gt(j, none), hn::Lt(j, size)), j, none);
        j = hn::Add(j, hn::Set(di, 1));
      }
    }
    bool all = s.x.stride(4) == 1;
    const auto wide = hn::Set(di, static_cast<Index>(s.x.stride(4))),
               high = hn::Set(di, static_cast<Index>(s.x.stride(3)));
    for (int t = 0; t < kCount; ++t) {
      const auto x = at[0][t % 2], y = at[1][t / 2];
      const auto inside = hn::And(hn::Gt(x, none), hn::Gt(y, none));
      const size_t to = static_cast<size_t>(t * kGridTile) + i;
      hn::StoreU(hn::IfThenElse(inside, hn::Add(hn::Mul(x, wide), hn::Mul(y, high)), none), di, index.data() + to);
      hn::StoreU(hn::Mul(part[0][t % 2], part[1][t / 2]), d, weight.data() + to);
      all = all && hn::AllTrue(di, inside);
    }
    paired[i] = all ? 1 : 0;
    return true;
  }

 public:
  const GridSampling& s;
  GridReader<T, Dims, K> reader;
  int64_t n = 0, first = 0, count = 0;
  std::vector<Index> index;
  std::vector<C> weight;
  std::vector<uint8_t>
      paired;  ///< at a vector's first place: taps 2 t and 2 t + 1 of all of it are inside, side by side
  std::vector<C> second, slope;  ///< of bilinear places, x then y: the second tap's weight, and its change
};

/// Whether offsets within a plane fit the index type of vectors of C, twice: 16-bit elements are addressed in bytes,
/// and read in pairs, which a plane of one element has not.
template <class C>
bool has_short_planes(const Tensor& x) {
  int64_t reach = 1;
  for (int d = 2; d < 5; ++d) reach += (x.shape(d) - 1) * x.stride(d);
  if (item_size(x.dtype()) == 2 && reach < 2) return false;
  return sizeof(C) == 8 || reach < int64_t{1} << 30;
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TENOR_OPS_GRID_TILE_INL_H_
