// The implicit GEMM on the CPU: packs the filter once, cuts outputs (or the filter's gradient) into tiles, one thread
// each. An output's chain of FMAs does not depend on its tile, so tiles suit the thread count; the gradient's sum over
// pixels is split by the sizes alone.
#include "src/ops/conv/conv_gemm.h"

#include <algorithm>
#include <atomic>

#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/conv/conv_candidates.h"
#include "src/ops/conv/conv_plain.h"
#include "tenor/tensor.h"

namespace tenor::conv {
namespace {

constexpr int64_t kMostRows = 96, kMostCols = 256;  // of a tile: its sums and panels stay in the L2 cache
constexpr int64_t kMostPatches = int64_t{1} << 17, kMostPanels = 16;  // elements and panels of a tile along pixels
constexpr int64_t kMostSplits = 32;
constexpr int64_t kLeastSplit = 1536;                // pixels
constexpr int64_t kMostPartials = int64_t{1} << 22;  // elements of all splits' sums

/// A tile's rows and columns.
struct Cut {
  int64_t rows, cols;
};

/// Tiles of at most those sizes, in whole units, smaller where there are too few for the threads.
Cut cut(int64_t rows, int64_t cols, int64_t row_unit, int64_t col_unit, int64_t others) {
  Cut c{std::min(round_up(rows, row_unit), kMostRows / row_unit * row_unit),
        std::min(round_up(cols, col_unit), kMostCols / col_unit * col_unit)};
  const int64_t wanted = 3 * num_threads();
  while (others * pieces(rows, c.rows) * pieces(cols, c.cols) < wanted) {
    if (c.rows > 2 * row_unit)
      c.rows = round_up(c.rows / 2, row_unit);
    else if (c.cols > col_unit)
      c.cols = round_up(c.cols / 2, col_unit);
    else
      break;
  }
  return c;
}

/// Rows are pixels: a stretch of panels whose patches stay in the L2 cache, long enough for memory to be written in
/// long runs. All outputs at once, or fewer where there are too few panels for the threads.
Cut cut_pixels(int64_t pixels, int64_t outs, int64_t cols, const GemmShape& shape, int64_t others) {
  const int64_t panel = shape.cols * std::max<int64_t>(cols, 1);
  const int64_t panels = std::clamp<int64_t>(kMostPatches / panel, 1, kMostPanels);
  Cut c{std::min(round_up(pixels, shape.cols), panels * shape.cols), round_up(outs, shape.rows)};
  const int64_t wanted = num_threads() == 1 ? 1 : 3 * num_threads();
  while (others * pieces(pixels, shape.cols) * pieces(outs, c.cols) < wanted && c.cols > shape.rows)
    c.cols = round_up(c.cols / 2, shape.rows);
  return c;
}

Along along_of(const TapProblem& p, const Pass& pass, const GemmShape& shape) {
  const bool channels = p.target.channel == 1 || pass.step[2] * p.target.spatial[2] != 1;
  if (channels && p.out * 2 >= shape.cols) return Along::kOutputs;
  return p.batch * pass.pixels() * 2 >= shape.cols ? Along::kPixels : Along::kOutputs;
}

Tensor packed_filter(const TapProblem& p, std::span<const Pass> joint, Along along, const GemmShape& shape,
                     DType compute) {
  const int64_t cols = static_cast<int64_t>(joint[0].taps.size()) * p.in;
  const int64_t outs = p.out * static_cast<int64_t>(joint.size());
  const int64_t group = packed_filter_elements(shape, along, outs, cols);
  const Tensor packed = Tensor::empty({p.groups * group}, compute);
  const int64_t unit = along == Along::kOutputs ? shape.cols : shape.rows, blocks = pieces(outs, unit);
  const auto item = static_cast<int64_t>(item_size(compute));
  cpu::parallel_for(p.groups * blocks, cpu::grain_of(unit * cols * item), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t o = i % blocks * unit;
      const int64_t g = i / blocks, count = std::min(unit, outs - o);
      char* to = static_cast<char*>(packed.raw()) + g * group * item;
      if (along == Along::kOutputs)
        cpu::conv_pack_filter(p, joint[0], g, o, count, to);
      else
        cpu::conv_pack_filter_rows(p, joint, g, o, count, to);
    }
  });
  return packed;
}

/// Makes one row of all pixels of an image where a pass reads and writes each at its own place, in dims that follow one
/// another densely: rows that end within a tile cost.
void join_dims(TapProblem& p, Pass& pass) {
  if (pass.taps.size() != 1) return;
  for (int d = 0; d < kSpatial; ++d)
    if (pass.taps[0].offset[d] != 0 || pass.scale[d] != 1 || pass.step[d] != 1 || pass.base[d] != 0 ||
        pass.size[d] != p.source_size[d])
      return;
  for (int d = kSpatial - 2; d >= 0; --d) {
    const int64_t row = pass.size[2];
    if (pass.size[d] == 1) continue;
    if (p.source.spatial[d] != row * p.source.spatial[2] || p.target.spatial[d] != row * p.target.spatial[2]) return;
    pass.size[2] *= pass.size[d], pass.size[d] = 1;
    p.source_size[2] = pass.size[2], p.source_size[d] = 1;
  }
}

/// One pass, or several that are joint.
void run_passes(const TapProblem& p, std::span<const Pass> joint) {
  const Pass& pass = joint[0];
  if (pass.pixels() == 0) return;
  const DType compute = compute_dtype(p.dtype);
  const GemmShape shape = cpu::conv_gemm_shape(compute);
  const Along along = joint.size() > 1 ? Along::kPixels : along_of(p, pass, shape);
  const bool outputs = along == Along::kOutputs;
  const int64_t outs = p.out * static_cast<int64_t>(joint.size());
  const int64_t pixels = p.batch * pass.pixels(), cols = static_cast<int64_t>(pass.taps.size()) * p.in;
  const Tensor weight = packed_filter(p, joint, along, shape, compute);
  const Cut c =
      outputs ? cut(pixels, outs, shape.rows, shape.cols, p.groups) : cut_pixels(pixels, outs, cols, shape, p.groups);
  const int64_t elements =
      outputs ? workspace_elements(shape, c.rows, c.cols) : pixel_workspace_elements(shape, c.rows, cols);
  // Threads share the pixels by panels where tiles are many of them, so that none has a tile more than the others.
  const int64_t unit = outputs ? c.rows : shape.cols, most = c.rows / unit;
  const int64_t down = pieces(pixels, unit), across = pieces(outs, c.cols);
  const int64_t group = packed_filter_elements(shape, along, outs, cols) * static_cast<int64_t>(item_size(compute));
  const int64_t work = unit * c.cols * std::max<int64_t>(cols, 1);
  std::atomic<bool> not_numbers = false;
  cpu::parallel_for(p.groups * down * across, std::max<int64_t>(1, 65536 / work), [&](int64_t first, int64_t last) {
    const Tensor workspace = Tensor::empty({elements}, compute);
    for (int64_t i = first, count; i < last; i += count) {
      const int64_t g = i / (down * across), row = i % down, col = i / down % across * c.cols;
      count = std::min({most, last - i, down - row});
      const ForwardTile tile{&p,
                             joint,
                             g,
                             row * unit,
                             std::min(count * unit, pixels - row * unit),
                             col,
                             std::min(c.cols, outs - col),
                             static_cast<char*>(weight.raw()) + g * group};
      if (outputs ? cpu::conv_forward_tile(tile, workspace.raw()) : cpu::conv_pixel_tile(tile, workspace.raw()))
        not_numbers.store(true, std::memory_order_relaxed);
    }
  });
  for (const Pass& of : joint)
    if (not_numbers) mend_pass(p, of);
}

/// grad_weight = the sum of the splits' sums [split][O][taps * channels], in their order, rounded once.
template <class T, class S>
void add_splits(const ConvProblem& p, const Pass& pass, const T* sums, int64_t splits) {
  const int64_t taps = p.taps(), channels = p.group_channels(), cols = taps * channels;
  S* weight = reinterpret_cast<S*>(p.weight.data);
  cpu::parallel_for(p.out_channels, cpu::grain_of(cols * splits * 4), [&](int64_t first, int64_t last) {
    for (int64_t o = first; o < last; ++o)
      for (int64_t t = 0, k = o * cols; t < taps; ++t)
        for (int64_t c = 0; c < channels; ++c, ++k) {
          T sum = sums[k];
          for (int64_t s = 1; s < splits; ++s) sum += sums[s * p.out_channels * cols + k];
          weight[o * p.weight.out + c * p.weight.in + pass.taps[static_cast<size_t>(t)].weight] = core::cast<S>(sum);
        }
  });
}

/// The pass that shows an image as it is: one tap, every pixel.
Pass identity_pass(const ConvProblem& p) {
  Pass pass{};
  for (int i = 0; i < kSpatial; ++i) pass.size[i] = p.window[i].output, pass.scale[i] = 1;
  pass.taps = {Tap{{}, 0}};
  return pass;
}

void weight_run(const ConvProblem& p) {
  const Pass pass = forward_pass(p), plain = identity_pass(p);
  const DType compute = compute_dtype(p.dtype);
  const GemmShape shape = cpu::conv_gemm_shape(compute);
  // What is gathered for every tile of the larger matrix is read as it lies; the gradient may be turned over.
  const Along along = p.input.channel == 1 ? Along::kPixels : Along::kOutputs;
  const int64_t channels = p.group_channels(), outs = p.group_outputs(), cols = p.taps() * channels;
  const int64_t pixels = p.batch * p.output_pixels(), all = p.out_channels * cols;
  const int64_t most = std::clamp<int64_t>(kMostPartials / all, 1, kMostSplits);
  const int64_t split = round_up(std::max(pieces(pixels, most), kLeastSplit), shape.depth),
                splits = pieces(pixels, split);
  const bool outputs = along == Along::kOutputs;
  const Cut c = cut(outputs ? cols : outs, outputs ? outs : cols, shape.rows, shape.cols, p.groups * splits);
  const int64_t tile_outs = outputs ? c.cols : c.rows, tile_cols = outputs ? c.rows : c.cols;
  const int64_t down = pieces(outs, tile_outs), across = pieces(cols, tile_cols),
                item = static_cast<int64_t>(item_size(p.dtype));
  const Tensor sums = Tensor::empty({splits, all}, compute);
  const int64_t size = static_cast<int64_t>(item_size(compute));
  cpu::parallel_for(splits * p.groups * down * across, 1, [&](int64_t first, int64_t last) {
    const Tensor workspace = Tensor::empty({workspace_elements(shape, c.rows, c.cols)}, compute);
    for (int64_t i = first; i < last; ++i) {
      const int64_t s = i / (down * across * p.groups), g = i / (down * across) % p.groups;
      const int64_t out = i % down * tile_outs, col = i / down % across * tile_cols, row = s * split;
      WeightTile t{{p.dtype, p.input, {}, channels, &pass},
                   {p.dtype, p.output, {}, outs, &plain},
                   along,
                   out,
                   std::min(tile_outs, outs - out),
                   col,
                   std::min(tile_cols, cols - col),
                   row,
                   std::min(split, pixels - row),
                   static_cast<char*>(sums.raw()) + (s * all + g * outs * cols) * size,
                   cols};
      t.patches.image.data += g * channels * p.input.channel * item;
      t.grads.image.data += g * outs * p.output.channel * item;
      for (int d = 0; d < kSpatial; ++d) t.patches.size[d] = p.window[d].input, t.grads.size[d] = p.window[d].output;
      cpu::conv_weight_tile(t, workspace.raw());
    }
  });
  core::visit_float(
      p.dtype, [&]<class S>() { add_splits<core::Compute<S>, S>(p, pass, sums.data<core::Compute<S>>(), splits); });
  mend_gradient(p, pass);
}

}  // namespace

int64_t packed_filter_elements(const GemmShape& shape, Along along, int64_t outs, int64_t cols) {
  if (along == Along::kOutputs) return round_up(outs, shape.cols) * cols;
  return round_up(outs, shape.rows) * cols;
}

int64_t workspace_elements(const GemmShape& shape, int64_t rows, int64_t cols) {
  const int64_t r = round_up(rows, shape.rows), c = round_up(cols, shape.cols);
  return r * shape.pitch + c * shape.depth + r * c;
}

int64_t pixel_workspace_elements(const GemmShape& shape, int64_t pixels, int64_t cols) {
  return (shape.rows + 1) * shape.cols + round_up(pixels, shape.cols) * cols;
}

bool are_joint(std::span<const Pass> passes) {
  const auto same = [&](const Pass& pass) {
    return pass.taps.size() == 1 && std::ranges::equal(pass.taps[0].offset, passes[0].taps[0].offset) &&
           std::ranges::equal(pass.size, passes[0].size);
  };
  return passes.size() > 1 && std::ranges::all_of(passes, same);
}

Patches patches_of(const TapProblem& p, const Pass& pass, int64_t group) {
  Patches patches{p.dtype, p.source, {}, p.in, &pass};
  patches.image.data += group * p.in * p.source.channel * static_cast<int64_t>(item_size(p.dtype));
  std::copy(p.source_size, p.source_size + kSpatial, patches.size);
  return patches;
}

std::string gemm_why_not(const ConvProblem& p) {
  if (passes_of(p) > kMostPasses) return core::text("more than {} remainders modulo the stride", kMostPasses);
  return {};
}

void gemm_run(const ConvProblem& p) {
  if (p.direction == Direction::kWeightBackward) return weight_run(p);
  TapProblem taps = taps_of(p);
  std::vector<Pass> passes = std::move(taps.passes);
  if (passes.size() == 1) join_dims(taps, passes[0]);
  if (taps.target.spatial[2] == 1 && are_joint(passes)) return run_passes(taps, passes);
  for (const Pass& pass : passes) run_passes(taps, {&pass, 1});
}

}  // namespace tenor::conv
