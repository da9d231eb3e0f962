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
  PlaceAxes<C, Dims, K> read(int64_t n, int64_t i) const {
    PlaceAxes<C, Dims, K> out;
    out.lost = false;
    const int64_t at = n * s_.grid.stride(0) + offset(s_.grid, 1, s_.grid, i);
    for (int d = 0; d < Dims; ++d) {
      const int64_t place = at + (Dims - 1 - d) * s_.grid.stride(4);  // x comes first
      const C g = float_ ? static_cast<C>(s_.grid.data<float>()[place]) : core::widen(s_.grid.data<T>()[place]);
      const core::GridAxis& axis = axes_[static_cast<size_t>(3 - Dims + d)];
      const bool lost = core::is_lost(g, axis.padding);
      out.lost = out.lost || lost;
      out.axis[d] = core::grid_taps<K>(lost ? C(0) : g, axis);
    }
    return out;
  }

 private:
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

  explicit GridTile(const GridSampling& sampling)
      : s(sampling),
        reader(sampling),
        index(static_cast<size_t>(kCount * kGridTile)),
        weight(static_cast<size_t>(kCount * kGridTile)) {}

  void fill(int64_t image, int64_t tile) {
    n = image;
    first = tile * kGridTile;
    count = std::min(kGridTile, s.samples() - first);
    for (int64_t i = 0; i < count; ++i) {
      const PlaceAxes<C, Dims, K> axes = reader.read(n, first + i);
      for (int t = 0; t < kCount; ++t) {
        const PlaceTap<C> tap = tap_of(axes, s.x, t);
        const auto at = static_cast<size_t>(t * kGridTile + i);
        index[at] = static_cast<Index>(tap.at);
        weight[at] = tap.weight;
      }
    }
  }

  const GridSampling& s;
  GridReader<T, Dims, K> reader;
  int64_t n = 0, first = 0, count = 0;
  std::vector<Index> index;
  std::vector<C> weight;
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
