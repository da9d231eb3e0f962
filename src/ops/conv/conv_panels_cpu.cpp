// The implicit GEMM along pixels: a panel is as many neighbouring pixels as a register tile is wide. Where it lies in
// one row and no tap of it leaves the image, its patches are read in place; else they are gathered, widened, with zeros
// on padding.
//
// An output is one chain of FMAs over the taps and, within one, the channels, whatever the panel.
#include "src/cpu/move.h"

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

/// Where sums go: rows of whole panels plus bias, rounded; or, without, to `sums` as they are.
template <class S, class T>
struct Outputs {
  S* const* rows;  ///< null: to sums
  const T* bias;
  int64_t count;
  T* sums;
};

/// a [column][kRows] x the panel. `odd` turns NaN where one that goes to its row is not a finite number.
template <int Rows, class From, class S, class T>
HWY_NOINLINE void multiply_panel(const T* HWY_RESTRICT a, const Panel<From>& panel, const Outputs<S, T>& to,
                                 hn::Vec<hn::ScalableTag<T> > (&odd)[kVectors]) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> acc[Rows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Zero(d);
  const int64_t channels = panel.channels, plane = panel.plane, ahead = panel.ahead;
  for (int64_t t = 0; t < panel.tap_count; ++t) {
    const From* HWY_RESTRICT row = panel.data + panel.taps[t];
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
  if (!to.rows) {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) hn::Store(acc[r][v], d, to.sums + (r * kVectors + v) * lanes);
    return;
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
    if (r >= to.count) break;
    const auto add = hn::Set(d, to.bias[r]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      odd[v] = hn::MulAdd(acc[r][v], hn::Zero(d), odd[v]);
      store(d, hn::Add(acc[r][v], add), to.rows[r] + v * lanes);
    }
  }
}

/// By the smallest kernel that holds them.
template <class From, class S, class T>
void multiply_outputs(const T* a, const Panel<From>& panel, const Outputs<S, T>& to,
                      hn::Vec<hn::ScalableTag<T> > (&odd)[kVectors]) {
  if (to.count == 1) return multiply_panel<1>(a, panel, to, odd);
  if (to.count == 2) return multiply_panel<2>(a, panel, to, odd);
  if (to.count <= 4) return multiply_panel<4>(a, panel, to, odd);
  if (kRows > 8 && to.count <= 8) return multiply_panel<8>(a, panel, to, odd);
  return multiply_panel<kRows>(a, panel, to, odd);
}

/// Outputs [first, first + count) of a group's filter as [block of kRows][column][kRows], zeros past the last output;
/// of joint passes each is an output of its own (ForwardTile).
template <class S, class T>
void pack_blocks(const conv::TapProblem& p, std::span<const conv::Pass> joint, const S* weight, int64_t first,
                 int64_t count, T* to) {
  const auto passes = static_cast<int64_t>(joint.size());
  const bool rows_of_channels = std::is_same_v<S, T> && p.weight_in == 1 && passes == 1 && joint[0].taps.size() == 1;
  for (int64_t o = 0; o < count; o += kRows) {
    if (rows_of_channels && count - o >= kRows) {
      const S* from = weight + (first + o) * p.weight_out + joint[0].taps[0].weight;
      transpose_plane(sizeof(S), from, p.weight_out, to, kRows, p.in, kRows);
      to += kRows * p.in;
      continue;
    }
    for (size_t t = 0; t < joint[0].taps.size(); ++t) {
      const int64_t rows = std::min(kRows, count - o);
      const S* from[kRows];
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t out = first + o + r;
        from[r] = weight + out / passes * p.weight_out + joint[static_cast<size_t>(out % passes)].taps[t].weight;
      }
      for (int64_t c = 0; c < p.in; ++c, to += kRows) {
        for (int64_t r = 0; r < rows; ++r) to[r] = core::cast<T>(from[r][c * p.weight_in]);
        for (int64_t r = rows; r < kRows; ++r) to[r] = T(0);
      }
    }
  }
}

/// Two runs of n sums plus bias, an element of one and of the other in turn.
template <class D, class T, class S>
HWY_INLINE void store_in_turn(D d, const T* a, const T* b, int64_t n, T bias, S* to, hn::Vec<D>& odd) {
  int64_t i = 0;
  if constexpr (std::is_same_v<S, T>) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto add = hn::Set(d, bias);
    for (; i + lanes <= n; i += lanes) {
      const auto x = hn::LoadU(d, a + i), y = hn::LoadU(d, b + i);
      odd = hn::MulAdd(x, hn::Zero(d), hn::MulAdd(y, hn::Zero(d), odd));
      hn::StoreInterleaved2(hn::Add(x, add), hn::Add(y, add), d, to + 2 * i);
    }
  }
  store_run(d, a + i, n - i, bias, to + 2 * i, 2, odd);
  store_run(d, b + i, n - i, bias, to + 2 * i + 1, 2, odd);
}

/// What the panels of a tile have in common.
template <class S, class T>
class PixelTile {
 public:
  PixelTile(const conv::ForwardTile& tile, void* workspace)
      : t_(tile), p_(*tile.problem), pass_(tile.joint[0]), patches_(conv::patches_of(p_, pass_, tile.group)) {
    for (auto& v : odd_) v = hn::Zero(d_);
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
      Outputs<S, T> to{};
      to.count = std::min(kRows, t_.cols - o);
      name_outputs(o, to.count);
      // The last outputs ask for the next tile's pixels; where they are the only ones, for the next panel's.
      const int64_t ahead = o + kRows < t_.cols ? 0 : o > 0 ? t_.rows : width;
      for (int64_t pixel = 0; pixel < t_.rows; pixel += width) {
        const Found& found = found_[static_cast<size_t>(pixel / width)];
        to.sums = sums_, to.bias = bias_, to.rows = found.target >= 0 ? rows_ : nullptr;
        if (to.rows)
          for (int64_t r = 0; r < to.count; ++r) rows_[r] = outputs_[r] + found.target;
        if (found.place)
          multiply_outputs(weight,
                           Panel<S>{found.place, offsets_.data(), static_cast<int64_t>(offsets_.size()), p_.in,
                                    p_.source.channel, ahead},
                           to, odd_);
        else
          multiply_outputs(weight, Panel<T>{panels_ + pixel * cols, &kHere, 1, cols, width, 0}, to, odd_);
        if (!to.rows) store(to.count, pixel);
      }
    }
    bool odd = false;
    for (const auto& v : odd_) odd |= !hn::AllTrue(d_, hn::Eq(v, v));
    return odd;
  }

 private:
  static constexpr int64_t kHere = 0;

  /// Where a panel's patches are read in place, else they were gathered; and where its pixels are written, in elements
  /// of an output, where they are a run of neighbours.
  struct Found {
    const S* place = nullptr;
    int64_t target = -1;
  };

  void add_panel(int64_t pixel) {
    const int64_t width = panel_width<T>(), cols = patches_.cols(), pixels = std::min(width, t_.rows - pixel);
    Found found;
    for_each_run(pass_, t_.row + pixel, pixels, [&](const PixelRun& run, int64_t) {
      if (run.count != width) return;
      found.place = in_place(run);
      if (pass_.step[2] * p_.target.spatial[2] == 1) found.target = offset_of(run);
    });
    if (!found.place) {
      T* to = panels_ + pixel * cols;
      if (pixels < width) std::fill_n(to, width * cols, T(0));
      gather_patches(patches_, t_.row + pixel, pixels, 0, cols, PatchTarget<T>{to, 1, width});
    }
    found_.push_back(found);
  }

  /// From the first pixel of an output to the run's.
  int64_t offset_of(const PixelRun& run) const {
    return place_of(run, pass_, p_.target) - place_of({}, pass_, p_.target);
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

  /// Notes where the first pixels of outputs [o, o + rows) of the tile lie, and what is added to them.
  void name_outputs(int64_t o, int64_t rows) {
    const auto passes = static_cast<int64_t>(t_.joint.size());
    const S* bias = reinterpret_cast<const S*>(p_.bias);
    for (int64_t r = 0; r < rows; ++r) {
      channels_[r] = t_.group * p_.out + (t_.col + o + r) / passes;
      bias_[r] = bias ? core::cast<T>(bias[channels_[r] * p_.bias_stride]) : T(0);
      outputs_[r] = reinterpret_cast<S*>(p_.target.data) + channels_[r] * p_.target.channel +
                    place_of({}, t_.joint[static_cast<size_t>((t_.col + o + r) % passes)], p_.target);
    }
  }

  /// The sums of those outputs of the panel of pixels from `pixel` on.
  void store(int64_t rows, int64_t pixel) {
    const int64_t width = panel_width<T>(), step = pass_.step[2] * p_.target.spatial[2];
    for_each_run(pass_, t_.row + pixel, std::min(width, t_.rows - pixel), [&](const PixelRun& run, int64_t w) HWY_ATTR {
      const int64_t at = offset_of(run);
      const T* sums = sums_ + w;
      for (int64_t r = 0; r < rows; ++r, sums += width) {
        const bool pair = step == 2 && r + 1 < rows && channels_[r + 1] == channels_[r];
        if (pair && outputs_[r + 1] == outputs_[r] + 1) {
          store_in_turn(d_, sums, sums + width, run.count, bias_[r], outputs_[r] + at, odd_[0]);
          ++r, sums += width;
        } else {
          store_run(d_, sums, run.count, bias_[r], outputs_[r] + at, step, odd_[0]);
        }
      }
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
  std::vector<Found> found_;
  int64_t channels_[kRows];
  T bias_[kRows];
  S *outputs_[kRows], *rows_[kRows];
  hn::Vec<hn::ScalableTag<T> > odd_[kVectors];  ///< NaN once a sum was not a finite number
};

void pack_filter_rows(const conv::TapProblem& p, std::span<const conv::Pass> joint, int64_t group, int64_t first,
                      int64_t count, void* to) {
  const int64_t cols = static_cast<int64_t>(joint[0].taps.size()) * p.in;
  with_compute(p.dtype, [&]<class T>() {
    with_storage<T>(p.dtype, [&]<class S>() {
      const S* weight = reinterpret_cast<const S*>(p.weight) + group * p.weight_group;
      pack_blocks(p, joint, weight, first, count, static_cast<T*>(to) + first * cols);
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

void conv_pack_filter_rows(const conv::TapProblem& p, std::span<const conv::Pass> joint, int64_t group, int64_t first,
                           int64_t count, void* to) {
  HWY_DYNAMIC_DISPATCH(pack_filter_rows)(p, joint, group, first, count, to);
}
bool conv_pixel_tile(const conv::ForwardTile& tile, void* workspace) {
  return HWY_DYNAMIC_DISPATCH(pixel_tile_of)(tile, workspace);
}

}  // namespace tenor::cpu
#endif
