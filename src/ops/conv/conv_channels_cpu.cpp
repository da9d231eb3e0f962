// The direct strategy by channels: depthwise problems with innermost channels, in place.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/conv/conv_channels_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/conv/conv_direct.h"
#include "src/ops/conv/conv_patches-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace conv = tenor::conv;

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

/// Outputs w..w + Pixels - 1 of every channel: memory is read in its order.
template <int Pixels, class S, class T>
void channel_pixels(const conv::ChannelRows& rows, const std::vector<RowTap<S, T>>& taps, int64_t w, const T* bias,
                    S* to, bool check) {
  const conv::TapProblem& p = *rows.problem;
  const int64_t scale = rows.pass->scale[2], size = p.source_size[2], step = p.source.spatial[2];
  const int64_t to_step = rows.pass->step[2] * p.target.spatial[2], channels = p.groups, lanes = lanes_of<T>();
  to += w * to_step;
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes)
    window_channels<Pixels, false>(taps.data(), taps.size(), w, scale, size, step, c, 0, bias, to, to_step, check);
  if (c < channels)
    window_channels<Pixels, true>(taps.data(), taps.size(), w, scale, size, step, c, static_cast<size_t>(channels - c),
                                  bias, to, to_step, check);
}

template <class S, class T>
void channel_rows(const conv::ChannelRows& rows) {
  const conv::TapProblem& p = *rows.problem;
  const conv::Pass& pass = *rows.pass;
  const int64_t channels = p.groups;
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
    for (int64_t w = 0; w < pass.size[2];) {
      const bool check = w < inside.first || w >= inside.last;
      if (!check && w + 4 <= inside.last) {
        channel_pixels<4>(rows, taps, w, bias, to, false);
        w += 4;
      } else {
        channel_pixels<1>(rows, taps, w, bias, to, check);
        ++w;
      }
    }
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
HWY_EXPORT(channel_rows_of);
HWY_EXPORT(channel_gradient_of);

void conv_channel_rows(const conv::ChannelRows& rows) { HWY_DYNAMIC_DISPATCH(channel_rows_of)(rows); }
void conv_channel_gradient(const conv::ChannelGradient& rows) { HWY_DYNAMIC_DISPATCH(channel_gradient_of)(rows); }

}  // namespace tenor::cpu
#endif
