// The implicit GEMM along pixels: a panel is as many neighbouring pixels as a register tile is wide. Where it lies in
// one row and no tap of it leaves the image, its patches are read in place; else they are gathered, widened, with zeros
// on padding.
//
// An output is one chain of FMAs over the taps and, within one, the channels, whatever the panel.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/conv/conv_panels_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/register_tile-inl.h"
#include "src/ops/conv/conv_patches-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace conv = tenor::conv;

template <class T>
HWY_INLINE int64_t panel_width() {
  return kVectors * lanes_of<T>();
}

/// The patches of a panel: column (tap, channel) begins at data + taps[tap] + channel * plane.
template <class S>
struct Panel {
  const S* data;
  const int64_t* taps;
  int64_t tap_count, channels, plane, ahead;  ///< ahead: how many elements behind it the next panel begins
};

/// sums [Rows, panel] = a [column][kRows] x the panel.
template <int Rows, class S, class T>
HWY_NOINLINE void multiply_panel(const T* HWY_RESTRICT a, const Panel<S>& panel, T* HWY_RESTRICT sums) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> acc[Rows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Zero(d);
  const int64_t channels = panel.channels, plane = panel.plane, ahead = panel.ahead;
  for (int64_t t = 0; t < panel.tap_count; ++t) {
    const S* HWY_RESTRICT row = panel.data + panel.taps[t];
    for (int64_t c = 0; c < channels; ++c, row += plane, a += kRows) {
      hn::Vec<decltype(d)> column[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) column[v] = in_register(load(d, row + v * lanes));
      hwy::Prefetch(row + ahead);
      hwy::Prefetch(row + ahead + lanes);
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
        const auto x = hn::Set(d, a[r]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(x, column[v], acc[r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) hn::Store(acc[r][v], d, sums + (r * kVectors + v) * lanes);
}

/// By the smallest kernel that holds them.
template <class S, class T>
void multiply_outputs(int64_t rows, const T* a, const Panel<S>& panel, T* sums) {
  if (rows == 1) return multiply_panel<1>(a, panel, sums);
  if (rows == 2) return multiply_panel<2>(a, panel, sums);
  if (rows <= 4) return multiply_panel<4>(a, panel, sums);
  if (kRows > 8 && rows <= 8) return multiply_panel<8>(a, panel, sums);
  return multiply_panel<kRows>(a, panel, sums);
}

/// Outputs [first, first + count) of a group's filter as [block of kRows][column][kRows], zeros past the last output.
template <class S, class T>
void pack_blocks(const conv::TapProblem& p, const conv::Pass& pass, const S* weight, int64_t count, T* to) {
  for (int64_t o = 0; o < count; o += kRows, weight += kRows * p.weight_out)
    for (const conv::Tap& tap : pass.taps)
      for (int64_t c = 0; c < p.in; ++c, to += kRows) {
        const S* from = weight + c * p.weight_in + tap.weight;
        const int64_t rows = std::min(kRows, count - o);
        for (int64_t r = 0; r < rows; ++r) to[r] = core::cast<T>(from[r * p.weight_out]);
        for (int64_t r = rows; r < kRows; ++r) to[r] = T(0);
      }
}

/// What the panels of a tile have in common.
template <class S, class T>
class PixelTile {
 public:
  PixelTile(const conv::ForwardTile& tile, void* workspace)
      : t_(tile), p_(*tile.problem), pass_(*tile.pass), patches_(conv::patches_of(p_, pass_, tile.group)) {
    sums_ = static_cast<T*>(workspace);
    panels_ = sums_ + kRows * panel_width<T>() + panel_width<T>();
    for (const conv::Tap& tap : pass_.taps) {
      int64_t at = 0;
      for (int s = 0; s < conv::kSpatial; ++s) at += tap.offset[s] * p_.source.spatial[s];
      offsets_.push_back(at);
    }
    for (int s = 0; s < conv::kSpatial; ++s)
      for (const conv::Tap& tap : pass_.taps) {
        least_[s] = std::min(least_[s], tap.offset[s]);
        most_[s] = std::max(most_[s], tap.offset[s]);
      }
  }

  bool run() {
    const int64_t width = panel_width<T>(), cols = patches_.cols();
    for (int64_t pixel = 0; pixel < t_.rows; pixel += width) add_panel(pixel);
    const T* weight = static_cast<const T*>(t_.weight) + t_.col * cols;
    for (int64_t o = 0; o < t_.cols; o += kRows, weight += kRows * cols) {
      const int64_t rows = std::min(kRows, t_.cols - o);
      for (int64_t pixel = 0; pixel < t_.rows; pixel += width) {
        if (const S* in_place = found_[static_cast<size_t>(pixel / width)])
          multiply_outputs(rows, weight,
                           Panel<S>{in_place, offsets_.data(), static_cast<int64_t>(offsets_.size()), p_.in,
                                    p_.source.channel, o == 0 ? width : 0},
                           sums_);
        else
          multiply_outputs(rows, weight, Panel<T>{panels_ + pixel * cols, &kHere, 1, cols, width, 0}, sums_);
        store(o, rows, pixel);
      }
    }
    return !hn::AllTrue(d_, hn::Eq(odd_, odd_));
  }

 private:
  static constexpr int64_t kHere = 0;

  /// Where the panel of pixels from `pixel` on is read in place; else it is gathered, and null.
  void add_panel(int64_t pixel) {
    const int64_t width = panel_width<T>(), cols = patches_.cols(), pixels = std::min(width, t_.rows - pixel);
    const S* place = nullptr;
    for_each_run(pass_, t_.row + pixel, pixels, [&](const PixelRun& run, int64_t) {
      if (run.count == width) place = in_place(run);
    });
    if (!place) {
      T* to = panels_ + pixel * cols;
      if (pixels < width) std::fill_n(to, width * cols, T(0));
      gather_patches(patches_, t_.row + pixel, pixels, 0, cols, PatchTarget<T>{to, 1, width});
    }
    found_.push_back(place);
  }
  const S* in_place(const PixelRun& run) const {
    if (offsets_.empty() || p_.source.spatial[2] * pass_.scale[2] != 1) return nullptr;
    int64_t at = run.image * p_.source.batch;
    for (int s = 0; s < conv::kSpatial; ++s) {
      const int64_t first = run.at[s] * pass_.scale[s], last = first + (s == 2 ? run.count - 1 : 0);
      if (first + least_[s] < 0 || last + most_[s] >= p_.source_size[s]) return nullptr;
      at += first * p_.source.spatial[s];
    }
    return reinterpret_cast<const S*>(patches_.image.data) + at;
  }

  /// The sums of outputs [o, o + rows) of the tile's panel of pixels from `pixel` on.
  void store(int64_t o, int64_t rows, int64_t pixel) {
    const int64_t width = panel_width<T>();
    const S* bias = reinterpret_cast<const S*>(p_.bias);
    T added[kRows] = {};
    const int64_t channel = t_.group * p_.out + t_.col + o;
    for (int64_t r = 0; r < rows && bias; ++r) added[r] = core::cast<T>(bias[(channel + r) * p_.bias_stride]);
    S* data = reinterpret_cast<S*>(p_.target.data) + channel * p_.target.channel;
    for_each_run(pass_, t_.row + pixel, std::min(width, t_.rows - pixel), [&](const PixelRun& run, int64_t w) HWY_ATTR {
      S* to = data + place_of(run, pass_, p_.target);
      for (int64_t r = 0; r < rows; ++r, to += p_.target.channel)
        store_run(d_, sums_ + r * width + w, run.count, added[r], to, pass_.step[2] * p_.target.spatial[2], odd_);
    });
  }

  static constexpr hn::ScalableTag<T> d_{};
  const conv::ForwardTile& t_;
  const conv::TapProblem& p_;
  const conv::Pass& pass_;
  conv::Patches patches_;
  T *sums_, *panels_;
  std::vector<int64_t> offsets_;
  int64_t least_[conv::kSpatial] = {INT64_MAX, INT64_MAX, INT64_MAX},
          most_[conv::kSpatial] = {INT64_MIN, INT64_MIN, INT64_MIN};
  std::vector<const S*> found_;
  hn::Vec<hn::ScalableTag<T> > odd_ = hn::Zero(hn::ScalableTag<T>());  ///< NaN once a sum was not a finite number
};

void pack_filter_rows(const conv::TapProblem& p, const conv::Pass& pass, int64_t group, int64_t first, int64_t count,
                      void* to) {
  const int64_t cols = static_cast<int64_t>(pass.taps.size()) * p.in;
  with_compute(p.dtype, [&]<class T>() {
    with_storage<T>(p.dtype, [&]<class S>() {
      const S* weight = reinterpret_cast<const S*>(p.weight) + group * p.weight_group + first * p.weight_out;
      pack_blocks(p, pass, weight, count, static_cast<T*>(to) + first * cols);
    });
  });
}

bool pixel_tile_of(const conv::ForwardTile& t, void* workspace) {
  bool odd = false;
  with_compute(t.problem->dtype, [&]<class T>() {
    with_storage<T>(t.problem->dtype, [&]<class S>() { odd = PixelTile<S, T>(t, workspace).run(); });
  });
  return odd;
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
HWY_EXPORT(pack_filter_rows);
HWY_EXPORT(pixel_tile_of);

void conv_pack_filter_rows(const conv::TapProblem& p, const conv::Pass& pass, int64_t group, int64_t first,
                           int64_t count, void* to) {
  HWY_DYNAMIC_DISPATCH(pack_filter_rows)(p, pass, group, first, count, to);
}
bool conv_pixel_tile(const conv::ForwardTile& tile, void* workspace) {
  return HWY_DYNAMIC_DISPATCH(pixel_tile_of)(tile, workspace);
}

}  // namespace tenor::cpu
#endif
