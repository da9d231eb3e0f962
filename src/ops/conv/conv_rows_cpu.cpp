// The direct strategy by rows: sliding windows over a scratch of widened source rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/conv/conv_rows_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/conv/conv_direct.h"
#include "src/ops/conv/conv_patches-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace conv = tenor::conv;

inline constexpr int kBlock = 4;  // output channels of a register tile

/// Every second element of 2 n in a row: the even ones, the odd ones.
template <class S, class T>
HWY_INLINE void split_in_two(const S* from, T* even, T* odd, int64_t n) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const hn::ScalableTag<T> d;
  const int64_t lanes = lanes_of<T>();
  for (; i + lanes <= n; i += lanes) {
    const auto a = load(d, from + 2 * i), b = load(d, from + 2 * i + lanes);
    hn::StoreU(hn::ConcatEven(d, b, a), d, even + i);
    hn::StoreU(hn::ConcatOdd(d, b, a), d, odd + i);
  }
#endif
  for (; i < n; ++i) even[i] = core::cast<T>(from[2 * i]), odd[i] = core::cast<T>(from[2 * i + 1]);
}

/// The columns of a scratch row of one remainder that lie inside of the image: those of its columns x, x + scale, ...
HWY_INLINE core::WindowRange inside_row(int64_t x, int64_t scale, int64_t size, int64_t count) {
  const int64_t low = std::min(count, x < 0 ? (-x + scale - 1) / scale : 0);
  return {low, std::max(low, std::min(count, x < size ? (size - x + scale - 1) / scale : 0))};
}

/// One source row into a scratch row: [remainder][column], zeros outside of the image. `first` is the column of the
/// source at which the scratch starts.
template <class S, class T>
void widen_row(const S* source, int64_t step, int64_t size, int64_t first, int64_t scale, const conv::RowPlan& plan,
               T* to) {
  const int64_t phases = std::min(scale, plan.width);
  for (int64_t f = 0; f < phases; ++f) {
    const core::WindowRange in = inside_row(first + f, scale, size, plan.phase);
    T* row = to + f * plan.phase;
    std::fill_n(row, in.first, T(0));
    std::fill_n(row + in.last, plan.phase - in.last, T(0));
    if (scale * step == 1) {
      widen_run(source + first + in.first, row + in.first, in.last - in.first);
    } else if (!(scale == 2 && step == 1 && phases == 2)) {
      const S* from = source + (first + f + in.first * scale) * step;
      for (int64_t i = in.first; i < in.last; ++i, from += scale * step) row[i] = core::cast<T>(*from);
    }
  }
  if (!(scale == 2 && step == 1 && phases == 2)) return;
  const core::WindowRange even = inside_row(first, 2, size, plan.phase),
                          odd = inside_row(first + 1, 2, size, plan.phase);
  const int64_t low = std::max(even.first, odd.first), high = std::max(low, std::min(even.last, odd.last));
  split_in_two(source + first + 2 * low, to + low, to + plan.phase + low, high - low);
  for (int64_t f = 0; f < 2; ++f) {  // a column at either end, whose neighbour lies outside
    const core::WindowRange& in = f ? odd : even;
    for (int64_t i = in.first; i < std::min(low, in.last); ++i)
      to[f * plan.phase + i] = core::cast<T>(source[first + f + 2 * i]);
    for (int64_t i = std::max(high, in.first); i < in.last; ++i)
      to[f * plan.phase + i] = core::cast<T>(source[first + f + 2 * i]);
  }
}

/// The source rows of a band, channel after channel. `image`: of the band's image and group.
template <class S, class T>
void widen_band(const conv::Image& image, const int64_t* size, int64_t channels, const conv::Pass& pass,
                const conv::RowPlan& plan, const conv::Band& band, T* scratch) {
  const S* data = reinterpret_cast<const S*>(image.data) + band.image * image.batch;
  const int64_t height = plan.height - (plan.band_rows - band.rows) * pass.scale[1];
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t z = 0; z < plan.depth; ++z)
      for (int64_t y = 0; y < height; ++y) {
        const int64_t d = band.depth * pass.scale[0] + plan.least[0] + z,
                      h = band.row * pass.scale[1] + plan.least[1] + y;
        T* to = scratch + c * plan.channel + (z * plan.height + y) * plan.row;
        if (d < 0 || d >= size[0] || h < 0 || h >= size[1]) {
          std::fill_n(to, plan.row, T(0));
          continue;
        }
        const S* row = data + c * image.channel + d * image.spatial[0] + h * image.spatial[1];
        widen_row(row, image.spatial[2], size[2], band.col * pass.scale[2] + plan.least[2], pass.scale[2], plan, to);
      }
}

template <class T>
void row_filter(const conv::TapProblem& p, const conv::Pass& pass, int64_t group, T* to) {
  with_storage<T>(p.dtype, [&]<class S>() {
    const S* weight = reinterpret_cast<const S*>(p.weight) + group * p.weight_group;
    for (int64_t o = 0; o < p.out; o += kBlock)
      for (int64_t c = 0; c < p.in; ++c)
        for (const conv::Tap& tap : pass.taps)
          for (int64_t i = 0; i < kBlock; ++i)
            *to++ = o + i < p.out ? core::cast<T>(weight[(o + i) * p.weight_out + c * p.weight_in + tap.weight]) : T(0);
  });
}

/// sums [Outs][pitch] = Vectors vectors of an output row: from `row` of the scratch on, over all channels and taps.
template <int Outs, int Vectors, class T>
HWY_INLINE void slide(const conv::RowPlan& plan, int64_t channels, const T* HWY_RESTRICT row,
                      const T* HWY_RESTRICT filter, T* HWY_RESTRICT sums, int64_t pitch) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = lanes_of<T>();
  hn::Vec<decltype(d)> acc[Outs][Vectors];
  for (int o = 0; o < Outs; ++o)
    for (int v = 0; v < Vectors; ++v) acc[o][v] = hn::Zero(d);
  const int64_t* taps = plan.taps.data();
  const size_t count = plan.taps.size();
  for (int64_t c = 0; c < channels; ++c, row += plan.channel)
    for (size_t t = 0; t < count; ++t, filter += kBlock) {
      hn::Vec<decltype(d)> x[Vectors];
      for (int v = 0; v < Vectors; ++v) x[v] = hn::LoadU(d, row + taps[t] + v * lanes);
      for (int o = 0; o < Outs; ++o) {
        const auto w = hn::Set(d, filter[o]);
        for (int v = 0; v < Vectors; ++v) acc[o][v] = hn::MulAdd(w, x[v], acc[o][v]);
      }
    }
  for (int o = 0; o < Outs; ++o)
    for (int v = 0; v < Vectors; ++v) hn::StoreU(acc[o][v], d, sums + o * pitch + v * lanes);
}

template <int Outs, class T>
void slide_row(const conv::RowPlan& plan, int64_t channels, const T* row, const T* filter, T* sums, int64_t pitch,
               int64_t cols) {
  const int64_t lanes = lanes_of<T>();
  for (int64_t x = 0; x < cols;) {
    const int64_t left = (cols - x + lanes - 1) / lanes;
    if (left >= 3)
      slide<Outs, 4>(plan, channels, row + x, filter, sums + x, pitch), x += 4 * lanes;
    else if (left == 2)
      slide<Outs, 2>(plan, channels, row + x, filter, sums + x, pitch), x += 2 * lanes;
    else
      slide<Outs, 1>(plan, channels, row + x, filter, sums + x, pitch), x += lanes;
  }
}

// Rows of one channel that are computed at once, so that a source row is read once for all of them.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int kDown = 4, kDownVectors = 4;
#else
inline constexpr int kDown = 4, kDownVectors = 2;
#endif

/// sums [kDown][pitch] = kDownVectors vectors of as many output rows of one channel. `next`: from one row of taps to
/// the one that is added after it; of output rows, whose order is that of their taps, too. Same bits as slide.
template <int Height, int Step, class T>
HWY_INLINE void slide_down(const conv::RowPlan& plan, const T* HWY_RESTRICT row, int64_t next,
                           const T* HWY_RESTRICT filter, T* HWY_RESTRICT sums, int64_t pitch) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = lanes_of<T>(), width = plan.grid_width;
  hn::Vec<decltype(d)> acc[kDown][kDownVectors];
  for (auto& of_row : acc)
    for (auto& a : of_row) a = hn::Zero(d);
#pragma GCC unroll 16
  for (int i = 0; i < (kDown - 1) * Step + Height; ++i)
    for (int64_t x = 0; x < width; ++x) {
      hn::Vec<decltype(d)> source[kDownVectors];
      for (int v = 0; v < kDownVectors; ++v) source[v] = hn::LoadU(d, row + i * next + plan.taps[x] + v * lanes);
#pragma GCC unroll 4
      for (int r = 0; r < kDown; ++r) {
        const int y = i - r * Step;
        if (y < 0 || y >= Height) continue;
        const auto w = hn::Set(d, filter[(y * width + x) * kBlock]);
        for (int v = 0; v < kDownVectors; ++v) acc[r][v] = hn::MulAdd(w, source[v], acc[r][v]);
      }
    }
  for (int r = 0; r < kDown; ++r)
    for (int v = 0; v < kDownVectors; ++v) hn::StoreU(acc[r][v], d, sums + r * pitch + v * lanes);
}

/// kDown rows of one channel from `row` on. Whether there is a kernel for the plan.
template <int Step, class T>
bool slide_rows(const conv::RowPlan& plan, const T* row, const T* filter, T* sums, int64_t pitch, int64_t cols) {
  const bool up = plan.grid_next < 0;  // from the last row to the first
  if (up) row += (kDown - 1) * plan.row_step, sums += (kDown - 1) * pitch, pitch = -pitch;
  const auto each = [&]<int Height>() HWY_ATTR {
    for (int64_t x = 0; x < cols; x += kDownVectors * lanes_of<T>())
      slide_down<Height, Step>(plan, row + x, plan.grid_next, filter, sums + x, pitch);
    return true;
  };
  if (plan.grid_height == 3) return each.template operator()<3>();
  if (plan.grid_height == 5) return each.template operator()<5>();
  if (plan.grid_height == 7) return each.template operator()<7>();
  return false;
}
template <class T>
bool slide_rows(const conv::RowPlan& plan, const T* row, const T* filter, T* sums, int64_t pitch, int64_t cols) {
  if (plan.row_step == std::abs(plan.grid_next)) return slide_rows<1>(plan, row, filter, sums, pitch, cols);
  if (plan.row_step == 2 * plan.grid_next) return slide_rows<2>(plan, row, filter, sums, pitch, cols);
  return false;
}

template <class S, class T>
bool row_band(const conv::TapProblem& p, const conv::Pass& pass, const conv::RowPlan& plan, const conv::Band& band,
              const T* filter, T* scratch) {
  widen_band<S>(conv::patches_of(p, pass, band.group).image, p.source_size, p.in, pass, plan, band, scratch);
  T* sums = scratch + plan.channel * p.in;
  const int64_t pitch = conv::round_up(plan.band_width, 4 * lanes_of<T>());
  const S* bias = reinterpret_cast<const S*>(p.bias);
  S* target = reinterpret_cast<S*>(p.target.data) + band.image * p.target.batch;
  const hn::ScalableTag<T> d;
  auto odd = hn::Zero(d);  // NaN once a sum was not a finite number
  const auto put = [&](int64_t o, int64_t r, const T* from) HWY_ATTR {
    const int64_t q[] = {band.depth, band.row + r, band.col}, channel = band.group * p.out + o;
    int64_t at = channel * p.target.channel;
    for (int s = 0; s < conv::kSpatial; ++s) at += (q[s] * pass.step[s] + pass.base[s]) * p.target.spatial[s];
    store_run(d, from, band.cols, bias ? core::cast<T>(bias[channel * p.bias_stride]) : T(0), target + at,
              pass.step[2] * p.target.spatial[2], odd);
  };
  for (int64_t o = 0; o < p.out; o += kBlock, filter += kBlock * p.in * static_cast<int64_t>(plan.taps.size())) {
    const int64_t outs = std::min<int64_t>(kBlock, p.out - o);
    for (int64_t r = 0; r < band.rows; ++r) {
      const T* row = scratch + r * plan.row_step;
      if (p.in == 1 && outs == 1 && r + kDown <= band.rows && slide_rows(plan, row, filter, sums, pitch, band.cols)) {
        for (int64_t i = 0; i < kDown; ++i) put(o, r + i, sums + i * pitch);
        r += kDown - 1;
        continue;
      }
      if (outs == 1)
        slide_row<1>(plan, p.in, row, filter, sums, pitch, band.cols);
      else if (outs == 2)
        slide_row<2>(plan, p.in, row, filter, sums, pitch, band.cols);
      else
        slide_row<kBlock>(plan, p.in, row, filter, sums, pitch, band.cols);
      for (int64_t i = 0; i < outs; ++i) put(o + i, r, sums + i * pitch);
    }
  }
  return !hn::AllTrue(d, hn::Eq(odd, odd));
}

/// sums[t] += sum over a band's rows of grads times the source that tap first + t reads, for t < Taps.
template <int Taps, class T>
HWY_INLINE void correlate(const conv::RowPlan& plan, const conv::Band& band, const T* rows, const T* grads,
                          int64_t pitch, int64_t first, T* sums) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = lanes_of<T>(), whole = band.cols / lanes * lanes;
  hn::Vec<decltype(d)> acc[Taps];
  for (auto& a : acc) a = hn::Zero(d);
  const auto valid = hn::FirstN(d, static_cast<size_t>(band.cols - whole));
  for (int64_t r = 0; r < band.rows; ++r, rows += plan.row_step, grads += pitch) {
    for (int64_t x = 0; x < whole; x += lanes) {
      const auto g = hn::LoadU(d, grads + x);
      for (int t = 0; t < Taps; ++t) acc[t] = hn::MulAdd(g, hn::LoadU(d, rows + plan.taps[first + t] + x), acc[t]);
    }
    if (whole == band.cols) continue;
    const auto g = hn::IfThenElseZero(valid, hn::LoadU(d, grads + whole));
    for (int t = 0; t < Taps; ++t)
      acc[t] = hn::MulAdd(g, hn::IfThenElseZero(valid, hn::LoadU(d, rows + plan.taps[first + t] + whole)), acc[t]);
  }
  for (int t = 0; t < Taps; ++t) sums[first + t] += hn::GetLane(combine_halves(d, acc[t], AddOp()));
}

template <class S, class T>
void row_gradient(const conv::RowGradient& g, T* scratch) {
  const conv::ConvProblem& p = *g.problem;
  const conv::RowPlan& plan = *g.plan;
  const int64_t channels = p.group_channels(), taps = p.taps(), pitch = conv::round_up(plan.band_width, lanes_of<T>());
  const int64_t grad_rows = plan.band_rows * pitch;
  T *grads = scratch + plan.channel * channels, *sums = static_cast<T*>(g.sums);
  conv::Image input = p.input;
  input.data += g.group * channels * p.input.channel * static_cast<int64_t>(sizeof(S));
  const int64_t size[] = {p.window[0].input, p.window[1].input, p.window[2].input};
  std::fill_n(sums, g.outs * channels * taps, T(0));
  const auto add_band = [&](const conv::Band& band) HWY_ATTR {
    widen_band<S>(input, size, channels, *g.pass, plan, band, scratch);
    for (int64_t o = 0; o < g.outs; ++o)
      for (int64_t r = 0; r < band.rows; ++r) {
        const S* from = reinterpret_cast<const S*>(p.output.data) + band.image * p.output.batch +
                        (g.group * p.group_outputs() + g.out + o) * p.output.channel +
                        band.depth * p.output.spatial[0] + (band.row + r) * p.output.spatial[1] +
                        band.col * p.output.spatial[2];
        PatchTarget<T> to{grads + o * grad_rows + r * pitch, 1, pitch};
        copy_block(from, p.output.spatial[2], 0, to, band.cols, 1);
        std::fill_n(to.data + band.cols, pitch - band.cols, T(0));
      }
    for (int64_t o = 0; o < g.outs; ++o)
      for (int64_t c = 0; c < channels; ++c) {
        T* to = sums + (o * channels + c) * taps;
        const T *rows = scratch + c * plan.channel, *from = grads + o * grad_rows;
        int64_t t = 0;
        for (; t + 4 <= taps; t += 4) correlate<4>(plan, band, rows, from, pitch, t, to);
        for (; t < taps; ++t) correlate<1>(plan, band, rows, from, pitch, t, to);
      }
  };
  for (int64_t n = 0; n < p.batch; ++n)
    for (int64_t b = 0; b < plan.bands(*g.pass); ++b) add_band(conv::band_of(plan, *g.pass, n, g.group, b));
}

int64_t lanes_for(DType compute) { return compute == DType::kFloat64 ? lanes_of<double>() : lanes_of<float>(); }

void row_filter_of(const conv::TapProblem& p, const conv::Pass& pass, int64_t group, void* to) {
  with_compute(p.dtype, [&]<class T>() { row_filter(p, pass, group, static_cast<T*>(to)); });
}
bool row_band_of(const conv::TapProblem& p, const conv::Pass& pass, const conv::RowPlan& plan, const conv::Band& band,
                 const void* filter, void* scratch) {
  bool odd = false;
  with_compute(p.dtype, [&]<class T>() {
    with_storage<T>(p.dtype, [&]<class S>() {
      odd = row_band<S>(p, pass, plan, band, static_cast<const T*>(filter), static_cast<T*>(scratch));
    });
  });
  return odd;
}
void row_gradient_of(const conv::RowGradient& g, void* scratch) {
  with_compute(g.problem->dtype, [&]<class T>() {
    with_storage<T>(g.problem->dtype, [&]<class S>() { row_gradient<S>(g, static_cast<T*>(scratch)); });
  });
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
HWY_EXPORT(lanes_for);
HWY_EXPORT(row_filter_of);
HWY_EXPORT(row_band_of);
HWY_EXPORT(row_gradient_of);

int64_t conv_lanes(DType compute) { return HWY_DYNAMIC_DISPATCH(lanes_for)(compute); }
void conv_row_filter(const conv::TapProblem& p, const conv::Pass& pass, int64_t group, void* to) {
  HWY_DYNAMIC_DISPATCH(row_filter_of)(p, pass, group, to);
}
bool conv_row_band(const conv::TapProblem& p, const conv::Pass& pass, const conv::RowPlan& plan, const conv::Band& band,
                   const void* filter, void* scratch) {
  return HWY_DYNAMIC_DISPATCH(row_band_of)(p, pass, plan, band, filter, scratch);
}
void conv_row_gradient(const conv::RowGradient& g, void* scratch) { HWY_DYNAMIC_DISPATCH(row_gradient_of)(g, scratch); }

}  // namespace tenor::cpu
#endif
