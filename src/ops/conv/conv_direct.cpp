// The direct strategy on the CPU: by channels where a depthwise problem has them innermost, by rows wherever a band's
// source rows fit a scratch, and one output at a time for what is left (taps very far apart, very large strides).
#include "src/ops/conv/conv_direct.h"

#include <algorithm>
#include <atomic>

#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/conv/conv_candidates.h"
#include "src/ops/conv/conv_plain.h"
#include "tenor/tensor.h"

namespace tenor::conv {
namespace {

constexpr int64_t kMostScratch = int64_t{1} << 17;  // elements that a band aims at
constexpr int64_t kLargestScratch = int64_t{1} << 21;
constexpr int64_t kBandWidth = 512;
constexpr int64_t kBlock = 4;  // output channels of a register tile
constexpr int64_t kMostSplits = 16;

/// Sets what follows from the band's size. False where the scratch is too large.
bool fit(RowPlan& plan, const Pass& pass, const int64_t* most, int64_t channels, int64_t lanes, int64_t limit) {
  plan.depth = most[0] - plan.least[0] + 1;
  plan.height = (plan.band_rows - 1) * pass.scale[1] + most[1] - plan.least[1] + 1;
  plan.width = (plan.band_width - 1) * pass.scale[2] + most[2] - plan.least[2] + 1;
  // Vectors read past the last output: three left are computed as four (conv_rows_cpu.cpp, slide_row).
  const int64_t reach = pieces(most[2] - plan.least[2] + 1, pass.scale[2]);
  plan.phase = round_up(plan.band_width + 2 * lanes + reach, lanes);
  plan.row = core::count_product(plan.phase, std::min(pass.scale[2], plan.width));
  plan.channel = core::count_product(core::count_product(plan.depth, plan.height), plan.row);
  return core::count_product(plan.channel, channels) <= limit;
}

/// Finds the grid of taps in a plan that is complete but for it.
void find_grid(RowPlan& plan, const Pass& pass) {
  const auto taps = static_cast<int64_t>(plan.taps.size());
  int64_t width = 1;
  while (width < taps && pass.taps[width].offset[0] == pass.taps[0].offset[0] &&
         pass.taps[width].offset[1] == pass.taps[0].offset[1])
    ++width;
  if (width == taps) return;
  const int64_t next = plan.taps[width] - plan.taps[0];
  if (taps % width != 0 || std::abs(next) != plan.row) return;
  for (int64_t t = width; t < taps; ++t)
    if (plan.taps[t] != plan.taps[t - width] + next) return;
  plan.grid_height = taps / width, plan.grid_width = width, plan.grid_next = next;
}

/// Whether channels are innermost and each is a group of its own.
bool by_channels(int64_t in, int64_t out, int64_t groups, const Image& source, const Image& target) {
  return in == 1 && out == 1 && groups > 1 && source.channel == 1 && target.channel == 1;
}

void run_channels(const TapProblem& p, const Pass& pass) {
  const DType compute = compute_dtype(p.dtype);
  const auto taps = static_cast<int64_t>(pass.taps.size());
  const Tensor weight = Tensor::empty({(taps + 1) * p.groups}, compute);
  core::visit_float(p.dtype, [&]<class S>() {
    using T = core::Compute<S>;
    const S *from = reinterpret_cast<const S*>(p.weight), *bias = reinterpret_cast<const S*>(p.bias);
    T* to = weight.data<T>();
    for (const Tap& tap : pass.taps)
      for (int64_t g = 0; g < p.groups; ++g) *to++ = core::cast<T>(from[g * p.weight_group + tap.weight]);
    for (int64_t g = 0; g < p.groups; ++g) *to++ = bias ? core::cast<T>(bias[g * p.bias_stride]) : T(0);
  });
  const int64_t rows = p.batch * pass.size[0] * pass.size[1];
  const int64_t bytes = pass.size[2] * p.groups * (taps + 2);
  cpu::parallel_for(rows, cpu::grain_of(bytes), [&](int64_t first, int64_t last) {
    cpu::conv_channel_rows({&p, &pass, weight.raw(), first, last - first});
  });
}

void run_rows(const TapProblem& p, const Pass& pass, const RowPlan& plan) {
  const DType compute = compute_dtype(p.dtype);
  const auto item = static_cast<int64_t>(item_size(compute)), taps = static_cast<int64_t>(pass.taps.size());
  const int64_t filter = round_up(p.out, kBlock) * p.in * taps;
  const Tensor filters = Tensor::empty({p.groups * filter}, compute);
  cpu::parallel_for(p.groups, cpu::grain_of(filter * item), [&](int64_t first, int64_t last) {
    for (int64_t g = first; g < last; ++g)
      cpu::conv_row_filter(p, pass, g, static_cast<char*>(filters.raw()) + g * filter * item);
  });
  std::atomic<bool> not_numbers = false;
  const int64_t bands = plan.bands(pass), work = plan.band_rows * plan.band_width * p.out * p.in * taps;
  cpu::parallel_for(p.batch * p.groups * bands, std::max<int64_t>(1, 65536 / std::max<int64_t>(work, 1)),
                    [&](int64_t first, int64_t last) {
                      const int64_t sums = kBlock * round_up(plan.band_width, 4 * cpu::conv_lanes(compute));
                      const Tensor scratch = Tensor::empty({plan.channel * p.in + sums}, compute);
                      for (int64_t i = first; i < last; ++i) {
                        const Band band = band_of(plan, pass, i / (p.groups * bands), i / bands % p.groups, i % bands);
                        const char* weights = static_cast<const char*>(filters.raw()) + band.group * filter * item;
                        if (cpu::conv_row_band(p, pass, plan, band, weights, scratch.raw()))
                          not_numbers.store(true, std::memory_order_relaxed);
                      }
                    });
  if (not_numbers) mend_pass(p, pass);
}

void run_pass(const TapProblem& p, const Pass& pass) {
  if (pass.pixels() == 0) return;
  if (by_channels(p.in, p.out, p.groups, p.source, p.target)) return run_channels(p, pass);
  const RowPlan plan = plan_rows(pass, p.in, cpu::conv_lanes(compute_dtype(p.dtype)));
  if (plan.band_rows > 0) return run_rows(p, pass, plan);
  plain_pass(p, pass);
}

/// By channels: the rows in splits that depend on the sizes alone, added up in order.
void channel_gradient(const ConvProblem& p, const Pass& pass) {
  const DType compute = compute_dtype(p.dtype);
  const int64_t rows = p.batch * pass.size[0] * pass.size[1], all = p.taps() * p.channels;
  const int64_t split = std::max(pieces(rows, kMostSplits), std::max<int64_t>(1, 512 / pass.size[2])),
                splits = pieces(rows, split);
  const Tensor sums = Tensor::empty({splits, all}, compute);
  cpu::parallel_for(splits, 1, [&](int64_t first, int64_t last) {
    for (int64_t s = first; s < last; ++s)
      cpu::conv_channel_gradient({&p, &pass, s * split, std::min(split, rows - s * split),
                                  static_cast<char*>(sums.raw()) + s * all * static_cast<int64_t>(item_size(compute))});
  });
  core::visit_float(p.dtype, [&]<class S>() {
    const auto* from = sums.data<core::Compute<S>>();
    for (int64_t t = 0, i = 0; t < p.taps(); ++t)
      for (int64_t o = 0; o < p.channels; ++o, ++i) {
        auto sum = from[i];
        for (int64_t s = 1; s < splits; ++s) sum += from[s * all + i];
        reinterpret_cast<S*>(p.weight.data)[o * p.weight.out + pass.taps[static_cast<size_t>(t)].weight] =
            core::cast<S>(sum);
      }
  });
}

void row_gradient(const ConvProblem& p, const Pass& pass, const RowPlan& plan) {
  const DType compute = compute_dtype(p.dtype);
  const int64_t blocks = pieces(p.group_outputs(), kBlock), cols = p.group_channels() * p.taps();
  cpu::parallel_for(p.groups * blocks, 1, [&](int64_t first, int64_t last) {
    const int64_t grads = plan.band_rows * round_up(plan.band_width, cpu::conv_lanes(compute));
    const Tensor scratch = Tensor::empty({plan.channel * p.group_channels() + kBlock * grads}, compute);
    const Tensor sums = Tensor::empty({kBlock * cols}, compute);
    for (int64_t i = first; i < last; ++i) {
      const int64_t g = i / blocks, out = i % blocks * kBlock, outs = std::min(kBlock, p.group_outputs() - out);
      cpu::conv_row_gradient({&p, &pass, &plan, g, out, outs, sums.raw()}, scratch.raw());
      core::visit_float(p.dtype, [&]<class S>() {
        const auto* from = sums.data<core::Compute<S>>();
        S* to = reinterpret_cast<S*>(p.weight.data) + (g * p.group_outputs() + out) * p.weight.out;
        for (int64_t o = 0; o < outs; ++o)
          for (int64_t c = 0; c < p.group_channels(); ++c)
            for (const Tap& tap : pass.taps)
              to[o * p.weight.out + c * p.weight.in + tap.weight] = core::cast<S>(*from++);
      });
    }
  });
}

void run_gradient(const ConvProblem& p) {
  const Pass pass = forward_pass(p);
  if (by_channels(p.group_channels(), p.group_outputs(), p.groups, p.input, p.output)) return channel_gradient(p, pass);
  const RowPlan plan = plan_rows(pass, p.group_channels(), cpu::conv_lanes(compute_dtype(p.dtype)));
  if (plan.band_rows == 0) return plain_gradient(p, pass);
  row_gradient(p, pass, plan);
  mend_gradient(p, pass);
}

}  // namespace

RowPlan plan_rows(const Pass& pass, int64_t channels, int64_t lanes) {
  RowPlan plan;
  if (pass.taps.empty()) return plan;
  int64_t most[kSpatial];
  for (int d = 0; d < kSpatial; ++d) {
    plan.least[d] = most[d] = pass.taps[0].offset[d];
    for (const Tap& tap : pass.taps)
      plan.least[d] = std::min(plan.least[d], tap.offset[d]), most[d] = std::max(most[d], tap.offset[d]);
  }
  plan.band_width = std::min(pass.size[2], kBandWidth), plan.band_rows = 1;
  if (!fit(plan, pass, most, channels, lanes, kLargestScratch)) return RowPlan{};
  for (int64_t rows = std::min<int64_t>(pass.size[1], 16); rows > 1; rows = rows == 3 ? 2 : rows / 2) {
    plan.band_rows = rows;
    if (fit(plan, pass, most, channels, lanes, kMostScratch)) break;
    plan.band_rows = 1;
  }
  fit(plan, pass, most, channels, lanes, kLargestScratch);
  plan.row_step = pass.scale[1] * plan.row;
  for (const Tap& tap : pass.taps) {
    const int64_t column = tap.offset[2] - plan.least[2];
    plan.taps.push_back(((tap.offset[0] - plan.least[0]) * plan.height + tap.offset[1] - plan.least[1]) * plan.row +
                        column % pass.scale[2] * plan.phase + column / pass.scale[2]);
  }
  find_grid(plan, pass);
  return plan;
}

Band band_of(const RowPlan& plan, const Pass& pass, int64_t image, int64_t group, int64_t i) {
  const int64_t across = pieces(pass.size[2], plan.band_width), down = pieces(pass.size[1], plan.band_rows);
  Band band{image, group, i / (across * down), i / across % down * plan.band_rows, 0, i % across * plan.band_width, 0};
  band.rows = std::min(plan.band_rows, pass.size[1] - band.row);
  band.cols = std::min(plan.band_width, pass.size[2] - band.col);
  return band;
}

void direct_run(const ConvProblem& p) {
  if (p.direction == Direction::kWeightBackward) return run_gradient(p);
  if (passes_of(p) > kMostPasses) return plain_data_backward(p);
  const TapProblem taps = taps_of(p);
  for (const Pass& pass : taps.passes) run_pass(taps, pass);
}

}  // namespace tenor::conv
