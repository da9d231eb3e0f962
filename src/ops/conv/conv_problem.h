// What the contract hands to the strategies: a checked convolution as plain sizes, pointers and strides.
//
// All three directions are described by the forward convolution that they belong to: `input`, `weight` and `output` are
// its operands, of which a direction writes one. A transposed convolution is the data direction, with a bias.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "src/core/window.h"
#include "tenor/device.h"
#include "tenor/dtype.h"

namespace tenor::conv {

inline constexpr int kSpatial = 3;  ///< spatial dims of every problem; a 1-d or 2-d one has ones in front

enum class Direction : uint8_t { kForward, kDataBackward, kWeightBackward };

/// An image [N, C, D, H, W]: its first element and its strides in elements. `batch` counts from image to image.
struct Image {
  char* data = nullptr;
  int64_t batch = 0, channel = 0, spatial[kSpatial] = {};
};
/// A filter [O, C / groups, KD, KH, KW].
struct Filter {
  char* data = nullptr;
  int64_t out = 0, in = 0, spatial[kSpatial] = {};
};

struct ConvProblem {
  Direction direction = Direction::kForward;
  DType dtype = DType::kFloat32;  ///< of every operand
  int64_t batch = 0, channels = 0, out_channels = 0, groups = 1;
  int dims = 2;                      ///< spatial dims as the caller gave them, 1 to 3: the last ones of `window`
  core::WindowDim window[kSpatial];  ///< of the forward convolution: input, kernel, output sizes and options
  Image input, output;               ///< output's channels are out_channels
  Filter weight;
  const char* bias = nullptr;  ///< of dtype, one a channel of what is written; never of kWeightBackward
  int64_t bias_stride = 0;
  Device device = {};            ///< where it runs; of traced shapes the one that they stand for, without memory
  bool batch_invariant = false;  ///< an image's bits may not depend on the others

  TENOR_HOST_DEVICE int64_t group_channels() const { return channels / groups; }
  TENOR_HOST_DEVICE int64_t group_outputs() const { return out_channels / groups; }
  TENOR_HOST_DEVICE int64_t taps() const { return window[0].kernel * window[1].kernel * window[2].kernel; }
  TENOR_HOST_DEVICE int64_t input_pixels() const { return window[0].input * window[1].input * window[2].input; }
  TENOR_HOST_DEVICE int64_t output_pixels() const { return window[0].output * window[1].output * window[2].output; }
  /// Whether channels are innermost in both images, so that vectors run over channels.
  bool channels_last() const {
    return (input.channel == 1 || channels == 1) && (output.channel == 1 || out_channels == 1);
  }
  /// Whether each group has one input channel.
  bool depthwise() const { return group_channels() == 1 && groups > 1; }
};

/// Whether no product is formed: what is written is the bias, or zeros.
inline bool sums_nothing(const ConvProblem& p) {
  return p.batch == 0 || p.channels == 0 || p.out_channels == 0 || p.input_pixels() == 0 || p.output_pixels() == 0;
}
/// Channels of the image that the direction writes.
inline int64_t written_channels(const ConvProblem& p) {
  return p.direction == Direction::kForward ? p.out_channels : p.channels;
}
/// What the direction writes, when it is an image.
inline const Image& written_image(const ConvProblem& p) {
  return p.direction == Direction::kForward ? p.output : p.input;
}
/// What an image direction reads.
inline const Image& read_image(const ConvProblem& p) { return p.direction == Direction::kForward ? p.input : p.output; }

}  // namespace tenor::conv
