#include "src/ops/conv/conv_pointwise.h"

#include <climits>
#include <cstdint>

#include "src/core/device_traits.h"
#include "src/ops/conv/conv_cuda.h"

namespace tenor::conv {
namespace {

constexpr int64_t kLeastWritten = 65;  ///< channels: with fewer, the implicit GEMM's narrow tiles are faster
constexpr int64_t kPieces = 8;         ///< elements of which strides are a multiple

/// Elements from a pixel to the next, where that is the same for all pixels of all images.
std::optional<int64_t> pixel_step(const Image& x, const ConvProblem& p, bool input) {
  std::optional<int64_t> step;
  int64_t pixels = 1;  // of the dims inside
  const auto dim = [&](int64_t size, int64_t stride) {
    if (size == 1) return true;
    if (!step) step = stride;
    const bool even = stride == *step * pixels;
    pixels *= size;
    return even;
  };
  bool even = true;
  for (int d = kSpatial - 1; d >= 0; --d)
    even = even && dim(input ? p.window[d].input : p.window[d].output, x.spatial[d]);
  even = even && dim(p.batch, x.batch);
  return even ? (step ? step : kPieces) : std::nullopt;
}

bool one_to_one(const ConvProblem& p) {
  for (const core::WindowDim& w : p.window)
    if (w.kernel != 1 || w.stride != 1 || w.before != 0 || w.input != w.output) return false;
  return true;
}

bool aligned(const void* x) { return reinterpret_cast<uintptr_t>(x) % 16 == 0; }

}  // namespace

std::optional<PointwiseProduct> pointwise_product(const ConvProblem& p) {
  if (p.direction == Direction::kWeightBackward || p.groups != 1 || !one_to_one(p)) return std::nullopt;
  if (p.dtype != DType::kBFloat16 && p.dtype != DType::kFloat16) return std::nullopt;
  if (core::device_traits(p.device).capability != kHopper) return std::nullopt;
  const bool forward = p.direction == Direction::kForward;
  const Image &source = read_image(p), &result = written_image(p);
  const std::optional<int64_t> from = pixel_step(source, p, forward), to = pixel_step(result, p, !forward);
  PointwiseProduct x{};
  x.pixels = p.batch * p.output_pixels();
  x.read = forward ? p.channels : p.out_channels;
  x.written = forward ? p.out_channels : p.channels;
  if (!from || !to || x.written < kLeastWritten || x.pixels > INT_MAX / 2) return std::nullopt;
  x.source_row = *from, x.result_row = *to, x.result_column = result.channel;
  const int64_t read_step = forward ? p.weight.in : p.weight.out, written_step = forward ? p.weight.out : p.weight.in;
  x.weight_across = read_step != 1 && x.read > 1;
  x.weight_row = x.weight_across ? read_step : written_step;
  const bool lies = (!x.weight_across || written_step == 1) && x.weight_row > 0 && x.weight_row % kPieces == 0 &&
                    aligned(p.weight.data);
  const bool reads = source.channel == 1 && aligned(source.data) && x.source_row > 0 && x.source_row % kPieces == 0;
  return lies && reads && x.result_row > 0 && x.result_column > 0 ? std::optional(x) : std::nullopt;
}

}  // namespace tenor::conv
