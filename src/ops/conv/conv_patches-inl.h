// Gathering pieces of a matrix of patches, widened to the compute type. Included once per instruction set.
#if defined(TENOR_CONV_PATCHES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_CONV_PATCHES_INL_H_
#undef TENOR_CONV_PATCHES_INL_H_
#else
#define TENOR_CONV_PATCHES_INL_H_
#endif

#include <algorithm>

#include "src/core/visit.h"
#include "src/cpu/simd-inl.h"
#include "src/ops/conv/conv_gemm.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

template <class T>
HWY_INLINE int64_t lanes_of() {
  return static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
}

/// Calls fn.operator()<S>() with the storage type, of those that are computed in T.
template <class T, class F>
void with_storage(DType dtype, F&& fn) {
  core::visit_float(dtype, [&]<class S>() {
    if constexpr (std::is_same_v<core::Compute<S>, T>) fn.template operator()<S>();
  });
}
/// Calls fn.operator()<T>() with the compute type.
template <class F>
void with_compute(DType dtype, F&& fn) {
  if (dtype == DType::kFloat64) return fn.template operator()<double>();
  fn.template operator()<float>();
}

/// dst[i] = src[i] for i < n, widened.
template <class S, class T>
HWY_INLINE void widen_run(const S* HWY_RESTRICT src, T* HWY_RESTRICT dst, int64_t n) {
  map_row(src, dst, static_cast<size_t>(n), [](auto, auto v) HWY_ATTR { return v; });
}

/// Where a piece of patches goes: element (pixel i, column k) to data[i * pixel + k * column]; one of the two is 1.
template <class T>
struct PatchTarget {
  T* data;
  int64_t pixel, column;
  HWY_INLINE T* at(int64_t i, int64_t k) const { return data + i * pixel + k * column; }
  HWY_INLINE PatchTarget from(int64_t i, int64_t k) const { return {at(i, k), pixel, column}; }
};

template <class T>
HWY_INLINE void zero_block(PatchTarget<T> to, int64_t pixels, int64_t columns) {
  if (pixels <= 0) return;
  if (to.column == 1) {
    for (int64_t i = 0; i < pixels; ++i) std::fill_n(to.at(i, 0), columns, T(0));
  } else {
    for (int64_t k = 0; k < columns; ++k)
      for (int64_t i = 0; i < pixels; ++i) *to.at(i, k) = T(0);
  }
}

/// n neighbouring elements to to[i * step]; 16-bit ones are widened by vectors on the way.
template <class S, class T>
HWY_INLINE void turn_run(const S* src, T* to, int64_t step, int64_t n) {
  if constexpr (std::is_same_v<S, T>) {
    for (int64_t i = 0; i < n; ++i) to[i * step] = src[i];
  } else {
    constexpr int64_t kRun = 256;
    HWY_ALIGN T wide[kRun];
    for (int64_t first = 0; first < n; first += kRun) {
      const int64_t count = std::min(kRun, n - first);
      widen_run(src + first, wide, count);
      for (int64_t i = 0; i < count; ++i) to[(first + i) * step] = wide[i];
    }
  }
}

/// to[i] = from[2 i] for i < n. Reads from[0] to from[2 n - 2] and nothing else.
template <class S, class T>
HWY_INLINE void widen_every_second(const S* from, T* to, int64_t n) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const hn::ScalableTag<T> d;
  const int64_t lanes = lanes_of<T>();
  for (; i + lanes < n; i += lanes)
    hn::StoreU(hn::ConcatEven(d, load(d, from + 2 * i + lanes), load(d, from + 2 * i)), d, to + i);
  // Of the last ones the element before them is read, not the one behind.
  if (i > 0 && i + lanes == n) {
    from += 2 * i - 1;
    hn::StoreU(hn::ConcatOdd(d, load(d, from + lanes), load(d, from)), d, to + i);
    return;
  }
#endif
  for (; i < n; ++i) to[i] = core::cast<T>(from[2 * i]);
}

/// A block that lies inside of the image: `pixel` and `channel` are the source's strides.
template <class S, class T>
HWY_INLINE void copy_block(const S* src, int64_t pixel, int64_t channel, PatchTarget<T> to, int64_t pixels,
                           int64_t channels) {
  if (pixels <= 0) return;
  if (to.column == 1 && (channel == 1 || channels == 1)) {
    for (int64_t i = 0; i < pixels; ++i) widen_run(src + i * pixel, to.at(i, 0), channels);
  } else if (to.pixel == 1 && (pixel == 1 || pixels == 1)) {
    for (int64_t c = 0; c < channels; ++c) widen_run(src + c * channel, to.at(0, c), pixels);
  } else if (to.pixel == 1 && pixel == 2) {
    for (int64_t c = 0; c < channels; ++c) widen_every_second(src + c * channel, to.at(0, c), pixels);
  } else if (channel == 1) {
    for (int64_t i = 0; i < pixels; ++i) turn_run(src + i * pixel, to.at(i, 0), to.column, channels);
  } else if (pixel == 1) {
    for (int64_t c = 0; c < channels; ++c) turn_run(src + c * channel, to.at(0, c), to.pixel, pixels);
  } else {
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t i = 0; i < pixels; ++i) *to.at(i, c) = core::cast<T>(src[i * pixel + c * channel]);
  }
}

/// Pixels of one row of a pass: output (n, d, h, w + i) for i < count.
struct PixelRun {
  int64_t at[conv::kSpatial], image, count;
};

/// Calls fn(run, i) for the runs that make up rows [first, first + count) of the patches; i counts from `first`.
template <class F>
HWY_INLINE void for_each_run(const conv::Pass& pass, int64_t first, int64_t count, F&& fn) {
  for (int64_t i = 0; i < count;) {
    int64_t rest = first + i;
    PixelRun run;
    run.at[2] = rest % pass.size[2], rest /= pass.size[2];
    run.at[1] = rest % pass.size[1], rest /= pass.size[1];
    run.at[0] = rest % pass.size[0], run.image = rest / pass.size[0];
    run.count = std::min(pass.size[2] - run.at[2], count - i);
    fn(run, i);
    i += run.count;
  }
}

/// Where the first pixel of a run lies in the target, in elements.
HWY_INLINE int64_t place_of(const PixelRun& run, const conv::Pass& pass, const conv::Image& target) {
  int64_t at = run.image * target.batch;
  for (int s = 0; s < conv::kSpatial; ++s) at += (run.at[s] * pass.step[s] + pass.base[s]) * target.spatial[s];
  return at;
}

/// One tap of a run, channels [channel, channel + channels).
template <class S, class T>
HWY_INLINE void gather_tap(const conv::Patches& p, const S* data, const PixelRun& run, const conv::Tap& tap,
                           int64_t channel, int64_t channels, PatchTarget<T> to) {
  const conv::Pass& pass = *p.pass;
  int64_t at[conv::kSpatial];
  for (int d = 0; d < conv::kSpatial; ++d) at[d] = run.at[d] * pass.scale[d] + tap.offset[d];
  if (at[0] < 0 || at[0] >= p.size[0] || at[1] < 0 || at[1] >= p.size[1]) return zero_block(to, run.count, channels);
  const int64_t scale = pass.scale[2];
  const int64_t first = at[2] < 0 ? std::min(run.count, (-at[2] + scale - 1) / scale) : 0;
  const int64_t last =
      at[2] < p.size[2] ? std::max(first, std::min(run.count, (p.size[2] - at[2] + scale - 1) / scale)) : first;
  zero_block(to, first, channels);
  const conv::Image& image = p.image;
  const int64_t offset = run.image * image.batch + channel * image.channel + at[0] * image.spatial[0] +
                         at[1] * image.spatial[1] + (at[2] + first * scale) * image.spatial[2];
  copy_block(data + offset, scale * image.spatial[2], image.channel, to.from(first, 0), last - first, channels);
  zero_block(to.from(last, 0), run.count - last, channels);
}

/// Rows [row, row + rows) and columns [col, col + cols) of the patches.
template <class T>
void gather_patches(const conv::Patches& p, int64_t row, int64_t rows, int64_t col, int64_t cols, PatchTarget<T> to) {
  const auto gather = [&]<class S>() HWY_ATTR {
    const S* data = reinterpret_cast<const S*>(p.image.data);
    for_each_run(*p.pass, row, rows, [&](const PixelRun& run, int64_t i) HWY_ATTR {
      for (int64_t k = 0; k < cols;) {
        const int64_t channel = (col + k) % p.channels, channels = std::min(p.channels - channel, cols - k);
        gather_tap(p, data, run, p.pass->taps[static_cast<size_t>((col + k) / p.channels)], channel, channels,
                   to.from(i, k));
        k += channels;
      }
    });
  };
  if constexpr (std::is_same_v<T, double>) {
    gather.template operator()<double>();
  } else if (p.dtype == DType::kFloat32) {
    gather.template operator()<float>();
  } else if (p.dtype == DType::kBFloat16) {
    gather.template operator()<BFloat16>();
  } else {
    gather.template operator()<Float16>();
  }
}

/// n sums plus bias, rounded, `step` apart. `odd` turns NaN where one is not a finite number. Reads whole vectors of
/// sums.
template <class D, class T, class S>
HWY_INLINE void store_run(D d, const T* sums, int64_t n, T bias, S* to, int64_t step, hn::Vec<D>& odd) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (step != 1) {
    T met = 0;
    for (int64_t i = 0; i < n; ++i) {
      met += sums[i] * T(0);
      to[i * step] = core::cast<S>(sums[i] + bias);
    }
    odd = hn::Add(odd, hn::Set(d, met));
    return;
  }
  const auto add = hn::Set(d, bias);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto sum = hn::LoadU(d, sums + i);
    odd = hn::MulAdd(sum, hn::Zero(d), odd);
    store(d, hn::Add(sum, add), to + i);
  }
  if (i == n) return;
  const auto left = static_cast<size_t>(n - i);
  const auto sum = hn::IfThenElseZero(hn::FirstN(d, left), hn::LoadU(d, sums + i));
  odd = hn::MulAdd(sum, hn::Zero(d), odd);
  store_n(d, hn::Add(sum, add), to + i, left);
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TENOR_CONV_PATCHES_INL_H_
