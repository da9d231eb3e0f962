// What the CUDA candidates take: known in every build, so that `explain` can state it for a described device.
#include <algorithm>
#include <climits>

#include "src/core/device_traits.h"
#include "src/ops/conv/conv_cuda.h"
#include "src/ops/conv/conv_pointwise.h"
#include "src/ops/conv/conv_products.h"
#include "src/ops/conv/conv_rows.cuh"
#include "src/ops/conv/conv_stem.h"

namespace tenor::conv {
namespace {

constexpr int kHopper = 90;

/// Whether the kernels' 32-bit counts hold every size.
bool fits_counts(const ConvProblem& p) {
  constexpr int64_t kMost = INT32_MAX / 4;
  bool fits = p.batch <= kMost && p.channels + 8 * p.groups <= kMost && p.out_channels + 8 * p.groups <= kMost;
  fits = fits && p.taps() <= kMost / (p.channels + p.out_channels + 64);
  for (const core::WindowDim& w : p.window)
    fits = fits && w.input <= kMost && w.output <= kMost && w.span() <= kMost && w.before <= kMost && w.stride <= kMost;
  return fits;
}

}  // namespace

std::string cuda_implicit_gemm_why_not(const ConvProblem& p) {
  const bool sums = p.direction == Direction::kWeightBackward, wide = p.dtype == DType::kFloat32;
  if (p.dtype == DType::kFloat64) return "takes bfloat16, float16 and float32";
  if (!wide && core::device_traits(p.device).capability != kHopper)
    return "the device is no Hopper GPU, or this build has no code of sm_90a";
  if (p.taps() > 1024) return "more than 1024 taps";
  if (!fits_counts(p)) return "a size or a window's span is beyond 2^29";
  constexpr int64_t kMostChannels = int64_t{1} << 21, kMostGroups = 65535;
  if (std::max(p.channels, p.out_channels) > kMostChannels || p.groups > kMostGroups)
    return "more than 2^21 channels or 65535 groups";
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

std::string cuda_vendor_why_not(const ConvProblem&) { return "this build does not call cuDNN"; }
std::string cuda_direct_why_not(const ConvProblem&) { return {}; }

}  // namespace tenor::conv
