// What the CUDA candidates take: known in every build, so that `explain` can state it for a described device.
#include <algorithm>
#include <climits>
#include <iterator>
#include <utility>

#include "src/core/device_traits.h"
#include "src/core/text.h"
#include "src/ops/conv/conv_candidates.h"
#include "src/ops/conv/conv_cuda.h"
#include "src/ops/conv/conv_pointwise.h"
#include "src/ops/conv/conv_products.h"
#include "src/ops/conv/conv_rows.cuh"
#include "src/ops/conv/conv_stem.h"
#include "src/ops/conv/conv_taps.h"

namespace tenor::conv {
namespace {

constexpr int kOldest = 80;  // capability of mma.sync with bfloat16
constexpr int64_t kMostProducts = 256;

/// Whether the kernels' 32-bit counts hold every size.
bool fits_counts(const ConvProblem& p) {
  constexpr int64_t kMost = INT32_MAX / 4;
  bool fits = p.batch <= kMost && p.channels + 8 * p.groups <= kMost && p.out_channels + 8 * p.groups <= kMost;
  fits = fits && p.taps() <= kMost / (p.channels + p.out_channels + 64);
  for (const core::WindowDim& w : p.window)
    fits = fits && w.input <= kMost && w.output <= kMost && w.span() <= kMost && w.before <= kMost && w.stride <= kMost;
  return fits;
}

/// Whether sizes and strides, outermost first, are those of elements side by side.
bool is_packed(std::initializer_list<std::pair<int64_t, int64_t>> dims) {
  int64_t inner = 1;
  bool packed = true;
  for (auto dim = std::rbegin(dims); dim != std::rend(dims); ++dim) {
    packed = packed && (dim->first == 1 || dim->second == inner);
    inner *= dim->first;
  }
  return packed;
}

/// Some of cuDNN's engines disregard strides that leave gaps.
std::string layout_why_not(const ConvProblem& p) {
  const auto packed = [](int64_t outer, int64_t outer_stride, int64_t channels, int64_t channel_stride,
                         const int64_t(&size)[kSpatial], const int64_t(&stride)[kSpatial], bool last) {
    const std::pair<int64_t, int64_t> n{outer, outer_stride}, c{channels, channel_stride}, d{size[0], stride[0]},
        h{size[1], stride[1]}, w{size[2], stride[2]};
    return last ? is_packed({n, d, h, w, c}) : is_packed({n, c, d, h, w});
  };
  const core::WindowDim* w = p.window;
  const int64_t input[] = {w[0].input, w[1].input, w[2].input}, output[] = {w[0].output, w[1].output, w[2].output},
                kernel[] = {w[0].kernel, w[1].kernel, w[2].kernel};
  for (const bool last : {false, true})
    if (packed(p.batch, p.input.batch, p.channels, p.input.channel, input, p.input.spatial, last) &&
        packed(p.batch, p.output.batch, p.out_channels, p.output.channel, output, p.output.spatial, last) &&
        packed(p.out_channels, p.weight.out, p.group_channels(), p.weight.in, kernel, p.weight.spatial, last))
      return {};
  return "the operands are not all dense and channels last, or all dense and channels second";
}

/// An engine of cuDNN 9.14 divides by zero as the heuristics ask it about some of these, which ends the process.
bool ends_cudnn(const ConvProblem& p) {
  return p.dims == 3 && p.direction == Direction::kDataBackward &&
         std::any_of(std::begin(p.window), std::end(p.window),
                     [](const core::WindowDim& w) { return w.stride > w.kernel; });
}

}  // namespace

std::string cuda_implicit_gemm_why_not(const ConvProblem& p) {
  const bool sums = p.direction == Direction::kWeightBackward, wide = p.dtype == DType::kFloat32;
  if (p.dtype == DType::kFloat64) return "takes bfloat16, float16 and float32";
  const int capability = core::device_traits(p.device).capability;
  if (!wide && capability < kOldest) return "16-bit products ask for a compute capability of 8.0";
  if (!wide && capability == kHopper && p.taps() > 1024) return "more than 1024 taps";
  if (passes_of(p) > kMostProducts)
    return core::text("more than {} remainders modulo the stride, each a launch", kMostProducts);
  if (!fits_counts(p)) return "a size or a window's span is beyond 2^29";
  constexpr int64_t kMostBlocks = 65535, kMostChannels = 32 * kMostBlocks, kMostGroups = kMostBlocks;  // of grid.y, .z
  if (std::max(p.channels, p.out_channels) > kMostChannels || p.groups > kMostGroups)
    return core::text("more than {} channels or {} groups", kMostChannels, kMostGroups);
  RowShape rows;
  for (const GatherProduct& product : sums ? std::vector{sums_of(p, {}, nullptr, 8).gather} : products_of(p, {}))
    if (!make_row_shape(product, rows)) return "more than 31 taps in the dims that meet padding, or 2^31 pixels";
  return {};
}

std::vector<core::Copy> cuda_implicit_gemm_copies(const ConvProblem& p) {
  std::vector<core::Copy> copies;
  if (stem_takes(p) || pointwise_product(p)) return copies;
  const auto state = [&](const char* argument, int64_t elements, const char* reason) {
    copies.push_back({argument, core::count_product(elements, static_cast<int64_t>(item_size(p.dtype))), reason});
  };
  constexpr const char* kImage = "its channels are not innermost in multiples of 8 at multiples of 16 bytes";
  const int64_t inputs = p.batch * p.input_pixels() * p.groups * whole_pieces(p.group_channels());
  const int64_t outputs = p.batch * p.output_pixels() * p.groups * whole_pieces(p.group_outputs());
  const bool sums = p.direction == Direction::kWeightBackward;
  if (p.direction != Direction::kDataBackward && !gathers(p.input, input_sizes(p))) state("input", inputs, kImage);
  if (p.direction == Direction::kDataBackward && !gathers(p.output, output_sizes(p)))
    state("grad_output", outputs, kImage);
  if (sums && !is_dense(p.output, p, output_sizes(p))) state("grad_output", outputs, kImage);
  if (!sums && !weight_lies(p)) {
    const bool backward = p.direction == Direction::kDataBackward;
    const int64_t read = p.groups * whole_pieces(backward ? p.group_outputs() : p.group_channels());
    state("weight", read * p.taps() * (backward ? p.group_channels() : p.group_outputs()),
          "its summed channels are not innermost in multiples of 8");
  }
  return copies;
}

std::string cuda_vendor_why_not(const ConvProblem& p) {
  if (p.batch_invariant) return "cuDNN's order of additions may depend on the batch";
  if (std::string reason = vendors_why_not(p); !reason.empty()) return reason;
  const int64_t largest = std::max(core::count_product(p.batch * p.channels, p.input_pixels()),
                                   core::count_product(p.batch * p.out_channels, p.output_pixels()));
  if (largest > INT32_MAX) return "an image has more than 2^31 elements, for which cuDNN's engines are slow";
  for (core::WindowDim w : p.window) {
    w.after = w.before;
    if (core::window_outputs(w) != w.output) return "its padding differs from side to side";
  }
  if (std::string reason = layout_why_not(p); !reason.empty()) return reason;
  if (ends_cudnn(p)) return "cuDNN may divide by zero in three dims where a stride exceeds its window";
#if TENOR_HAS_CUDA
  if (p.device.type == DeviceType::kCuda) return cudnn_why_not(p);
  return "cuDNN is asked on the device alone";
#else
  return "this build does not call cuDNN";
#endif
}
std::string cuda_direct_why_not(const ConvProblem&) { return {}; }

}  // namespace tenor::conv
