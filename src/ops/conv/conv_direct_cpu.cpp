// The direct kernels: sliding windows by rows from a scratch, and by channels in place.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/conv/conv_direct_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/conv/conv_direct.h"
#include "src/ops/conv/conv_patches-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace conv = tenor::conv;

inline constexpr int kBlock = 4;  // output channels of a register tile

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

// ---- by rows
// ----------------------------------------------------------------------------------------------------------

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

/// n sums plus bias, rounded, `step` apart.
template <class T, class S>
void store_run(const T* sums, int64_t n, T bias, S* to, int64_t step) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = lanes_of<T>();
  if (step != 1) {
    for (int64_t i = 0; i < n; ++i) to[i * step] = core::cast<S>(sums[i] + bias);
    return;
  }
  const auto add = hn::Set(d, bias);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(d, hn::Add(hn::LoadU(d, sums + i), add), to + i);
  if (i < n) store_n(d, hn::Add(hn::LoadU(d, sums + i), add), to + i, static_cast<size_t>(n - i));
}

template <class S, class T>
void row_band(const conv::TapProblem& p, const conv::Pass& pass, const conv::RowPlan& plan, const conv::Band& band,
              const T* filter, T* scratch) {
  widen_band<S>(conv::patches_of(p, pass, band.group).image, p.source_size, p.in, pass, plan, band, scratch);
  T* sums = scratch + plan.channel * p.in;
  const int64_t pitch = conv::round_up(plan.band_width, 4 * lanes_of<T>());
  const S* bias = reinterpret_cast<const S*>(p.bias);
  S* target = reinterpret_cast<S*>(p.target.data) + band.image * p.target.batch;
  for (int64_t o = 0; o < p.out; o += kBlock, filter += kBlock * p.in * static_cast<int64_t>(plan.taps.size()))
    for (int64_t r = 0; r < band.rows; ++r) {
      const T* row = scratch + r * plan.row_step;
      const int64_t outs = std::min<int64_t>(kBlock, p.out - o);
      if (outs == 1)
        slide_row<1>(plan, p.in, row, filter, sums, pitch, band.cols);
      else if (outs == 2)
        slide_row<2>(plan, p.in, row, filter, sums, pitch, band.cols);
      else
        slide_row<kBlock>(plan, p.in, row, filter, sums, pitch, band.cols);
      const int64_t q[] = {band.depth, band.row + r, band.col};
      int64_t at = 0;
      for (int s = 0; s < conv::kSpatial; ++s) at += (q[s] * pass.step[s] + pass.base[s]) * p.target.spatial[s];
      for (int64_t i = 0; i < outs; ++i) {
        const int64_t channel = band.group * p.out + o + i;
        store_run(sums + i * pitch, band.cols, bias ? core::cast<T>(bias[channel * p.bias_stride]) : T(0),
                  target + at + channel * p.target.channel, pass.step[2] * p.target.spatial[2]);
      }
    }
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

// ---- by channels
// ------------------------------------------------------------------------------------------------------

/// A tap that an output row meets: the row it reads, and its place in the weights.
template <class S, class T>
struct RowTap {
  const S* row;
  const T* weight;
  int64_t offset;  ///< output w reads column w * scale + offset
};

/// A row of outputs, as counted over batch, depth and height.
struct OutputRow {
  int64_t image, at[2];
};
HWY_INLINE OutputRow output_row(const conv::Pass& pass, int64_t row) {
  return {row / (pass.size[0] * pass.size[1]), {row / pass.size[1] % pass.size[0], row % pass.size[1]}};
}

/// The offset of the source row that a tap reads, or -1 on padding.
HWY_INLINE int64_t row_offset(const conv::Pass& pass, const conv::Tap& tap, const OutputRow& row,
                              const conv::Image& image, const int64_t* size) {
  int64_t offset = row.image * image.batch;
  for (int i = 0; i < 2; ++i) {
    const int64_t at = row.at[i] * pass.scale[i] + tap.offset[i];
    if (at < 0 || at >= size[i]) return -1;
    offset += at * image.spatial[i];
  }
  return offset;
}

/// The outputs w whose tap at `offset` reads a column of the source, within [0, count).
HWY_INLINE core::WindowRange reading(int64_t offset, int64_t scale, int64_t size, int64_t count) {
  const int64_t first = offset < 0 ? (-offset + scale - 1) / scale : 0;
  const int64_t last = offset < size ? (size - offset + scale - 1) / scale : 0;
  return {first, std::min(last, count)};
}

/// Outputs w..w + Pixels - 1 of a vector of channels, all taps inside. `n` < lanes: of that many channels.
template <int Pixels, bool Tail, class S, class T>
HWY_INLINE void window_channels(const RowTap<S, T>* taps, size_t count, int64_t w, int64_t scale, int64_t size,
                                int64_t step, int64_t c, size_t n, const T* bias, S* to, int64_t to_step, bool check) {
  const hn::ScalableTag<T> d;
  const auto fetch = [&](const auto* from) HWY_ATTR {
    if constexpr (Tail)
      return load_n(d, from, n);
    else
      return load(d, from);
  };
  hn::Vec<decltype(d)> acc[Pixels];
  for (auto& a : acc) a = hn::Zero(d);
  for (size_t t = 0; t < count; ++t) {
    const int64_t at = w * scale + taps[t].offset;
    if (check && (at < 0 || at >= size)) continue;
    const auto weight = fetch(taps[t].weight + c);
    const S* from = taps[t].row + at * step + c;
    for (int i = 0; i < Pixels; ++i) acc[i] = hn::MulAdd(fetch(from + i * scale * step), weight, acc[i]);
  }
  const auto add = fetch(bias + c);
  for (int i = 0; i < Pixels; ++i) {
    if constexpr (Tail)
      store_n(d, hn::Add(acc[i], add), to + i * to_step + c, n);
    else
      store(d, hn::Add(acc[i], add), to + i * to_step + c);
  }
}

template <bool Tail, class S, class T>
void channel_vector(const conv::ChannelRows& rows, const std::vector<RowTap<S, T>>& taps, core::WindowRange inside,
                    int64_t c, size_t n, const T* bias, S* to) {
  const conv::TapProblem& p = *rows.problem;
  const conv::Pass& pass = *rows.pass;
  const int64_t scale = pass.scale[2], size = p.source_size[2], step = p.source.spatial[2];
  const int64_t to_step = pass.step[2] * p.target.spatial[2];
  for (int64_t w = 0; w < pass.size[2];) {
    const bool check = w < inside.first || w >= inside.last;
    if (!check && w + 4 <= inside.last) {
      window_channels<4, Tail>(taps.data(), taps.size(), w, scale, size, step, c, n, bias, to + w * to_step, to_step,
                               false);
      w += 4;
    } else {
      window_channels<1, Tail>(taps.data(), taps.size(), w, scale, size, step, c, n, bias, to + w * to_step, to_step,
                               check);
      ++w;
    }
  }
}

template <class S, class T>
void channel_rows(const conv::ChannelRows& rows) {
  const conv::TapProblem& p = *rows.problem;
  const conv::Pass& pass = *rows.pass;
  const int64_t channels = p.groups, lanes = lanes_of<T>();
  const T* weight = static_cast<const T*>(rows.weight);
  const T* bias = weight + static_cast<int64_t>(pass.taps.size()) * channels;
  std::vector<RowTap<S, T>> taps;
  for (int64_t r = rows.row; r < rows.row + rows.rows; ++r) {
    const OutputRow row = output_row(pass, r);
    taps.clear();
    core::WindowRange inside{0, pass.size[2]};
    for (size_t t = 0; t < pass.taps.size(); ++t) {
      const conv::Tap& tap = pass.taps[t];
      const int64_t offset = row_offset(pass, tap, row, p.source, p.source_size);
      if (offset < 0) continue;
      taps.push_back({reinterpret_cast<const S*>(p.source.data) + offset, weight + static_cast<int64_t>(t) * channels,
                      tap.offset[2]});
      const core::WindowRange own = reading(tap.offset[2], pass.scale[2], p.source_size[2], pass.size[2]);
      inside.first = std::max(inside.first, own.first), inside.last = std::min(inside.last, own.last);
    }
    S* to = reinterpret_cast<S*>(p.target.data) + row.image * p.target.batch + pass.base[2] * p.target.spatial[2];
    for (int i = 0; i < 2; ++i) to += (row.at[i] * pass.step[i] + pass.base[i]) * p.target.spatial[i];
    int64_t c = 0;
    for (; c + lanes <= channels; c += lanes) channel_vector<false>(rows, taps, inside, c, 0, bias, to);
    if (c < channels) channel_vector<true>(rows, taps, inside, c, static_cast<size_t>(channels - c), bias, to);
  }
}

/// sums[c..] += the products of a tap over outputs [first, last) of a row, Vectors vectors of channels.
template <int Vectors, class S, class T>
HWY_INLINE void add_products(const S* input, int64_t input_step, const S* grad, int64_t grad_step, int64_t count,
                             T* sums) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = lanes_of<T>();
  hn::Vec<decltype(d)> acc[Vectors];
  for (int v = 0; v < Vectors; ++v) acc[v] = hn::LoadU(d, sums + v * lanes);
  for (int64_t w = 0; w < count; ++w, input += input_step, grad += grad_step)
    for (int v = 0; v < Vectors; ++v)
      acc[v] = hn::MulAdd(load(d, input + v * lanes), load(d, grad + v * lanes), acc[v]);
  for (int v = 0; v < Vectors; ++v) hn::StoreU(acc[v], d, sums + v * lanes);
}

template <class S, class T>
void channel_gradient(const conv::ChannelGradient& g) {
  const conv::ConvProblem& p = *g.problem;
  const conv::Pass& pass = *g.pass;
  const int64_t channels = p.channels, lanes = lanes_of<T>(), scale = pass.scale[2];
  const int64_t size[] = {p.window[0].input, p.window[1].input, p.window[2].input};
  T* sums = static_cast<T*>(g.sums);
  std::fill_n(sums, p.taps() * channels, T(0));
  const auto add_tap = [&](const S* input, const S* grad, int64_t count, T* to) HWY_ATTR {
    const int64_t step = scale * p.input.spatial[2], grad_step = p.output.spatial[2];
    int64_t c = 0;
    for (; c + 4 * lanes <= channels; c += 4 * lanes)
      add_products<4>(input + c, step, grad + c, grad_step, count, to + c);
    for (; c + lanes <= channels; c += lanes) add_products<1>(input + c, step, grad + c, grad_step, count, to + c);
    for (; c < channels; ++c)
      for (int64_t w = 0; w < count; ++w)
        to[c] += core::cast<T>(input[c + w * step]) * core::cast<T>(grad[c + w * grad_step]);
  };
  for (int64_t r = g.row; r < g.row + g.rows; ++r) {
    const OutputRow row = output_row(pass, r);
    const S* grad = reinterpret_cast<const S*>(p.output.data) + row.image * p.output.batch +
                    row.at[0] * p.output.spatial[0] + row.at[1] * p.output.spatial[1];
    for (size_t t = 0; t < pass.taps.size(); ++t) {
      const conv::Tap& tap = pass.taps[t];
      const int64_t offset = row_offset(pass, tap, row, p.input, size);
      const core::WindowRange w = reading(tap.offset[2], scale, size[2], pass.size[2]);
      if (offset < 0 || w.empty()) continue;
      add_tap(
          reinterpret_cast<const S*>(p.input.data) + offset + (w.first * scale + tap.offset[2]) * p.input.spatial[2],
          grad + w.first * p.output.spatial[2], w.last - w.first, sums + static_cast<int64_t>(t) * channels);
    }
  }
}

// ---- by dtype
// ---------------------------------------------------------------------------------------------------------

int64_t lanes_for(DType compute) { return compute == DType::kFloat64 ? lanes_of<double>() : lanes_of<float>(); }

void row_filter_of(const conv::TapProblem& p, const conv::Pass& pass, int64_t group, void* to) {
  with_compute(p.dtype, [&]<class T>() { row_filter(p, pass, group, static_cast<T*>(to)); });
}
void row_band_of(const conv::TapProblem& p, const conv::Pass& pass, const conv::RowPlan& plan, const conv::Band& band,
                 const void* filter, void* scratch) {
  with_compute(p.dtype, [&]<class T>() {
    with_storage<T>(p.dtype, [&]<class S>() {
      row_band<S>(p, pass, plan, band, static_cast<const T*>(filter), static_cast<T*>(scratch));
    });
  });
}
void row_gradient_of(const conv::RowGradient& g, void* scratch) {
  with_compute(g.problem->dtype, [&]<class T>() {
    with_storage<T>(g.problem->dtype, [&]<class S>() { row_gradient<S>(g, static_cast<T*>(scratch)); });
  });
}
void channel_rows_of(const conv::ChannelRows& rows) {
  with_compute(rows.problem->dtype,
               [&]<class T>() { with_storage<T>(rows.problem->dtype, [&]<class S>() { channel_rows<S, T>(rows); }); });
}
void channel_gradient_of(const conv::ChannelGradient& g) {
  with_compute(g.problem->dtype,
               [&]<class T>() { with_storage<T>(g.problem->dtype, [&]<class S>() { channel_gradient<S, T>(g); }); });
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
HWY_EXPORT(lanes_for);
HWY_EXPORT(row_filter_of);
HWY_EXPORT(row_band_of);
HWY_EXPORT(row_gradient_of);
HWY_EXPORT(channel_rows_of);
HWY_EXPORT(channel_gradient_of);

int64_t conv_lanes(DType compute) { return HWY_DYNAMIC_DISPATCH(lanes_for)(compute); }
void conv_row_filter(const conv::TapProblem& p, const conv::Pass& pass, int64_t group, void* to) {
  HWY_DYNAMIC_DISPATCH(row_filter_of)(p, pass, group, to);
}
void conv_row_band(const conv::TapProblem& p, const conv::Pass& pass, const conv::RowPlan& plan, const conv::Band& band,
                   const void* filter, void* scratch) {
  HWY_DYNAMIC_DISPATCH(row_band_of)(p, pass, plan, band, filter, scratch);
}
void conv_row_gradient(const conv::RowGradient& g, void* scratch) { HWY_DYNAMIC_DISPATCH(row_gradient_of)(g, scratch); }
void conv_channel_rows(const conv::ChannelRows& rows) { HWY_DYNAMIC_DISPATCH(channel_rows_of)(rows); }
void conv_channel_gradient(const conv::ChannelGradient& rows) { HWY_DYNAMIC_DISPATCH(channel_gradient_of)(rows); }

}  // namespace tenor::cpu
#endif
