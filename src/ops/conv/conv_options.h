// Reading the options that the family's operators share, with the contract's errors.
#pragma once

#include <optional>

#include "src/core/check.h"
#include "src/core/step.h"
#include "src/ops/conv/conv_problem.h"
#include "tenor/conv.h"

namespace tenor::conv {

/// Where an image's or a filter's channels are: second, or last.
enum class Layout : uint8_t { kChannelsSecond, kChannelsLast };

/// The sizes [N, C, *S] of a shape in that layout.
Dims canonical(const Dims& shape, Layout layout);
/// The shape in that layout of sizes [N, C, *S].
Dims in_layout(const Dims& sizes, Layout layout);
inline int spatial_dims(const Dims& sizes) { return static_cast<int>(sizes.size()) - 2; }
/// The last sizes of [N, C, *S].
Dims spatial_sizes(const Dims& sizes);

/// Options with one value a spatial dim.
struct Sliding {
  int dims = 0;
  Dims stride = {}, dilation = {}, before = {}, after = {};
  bool same = false;  ///< before and after are still to be computed
};
/// @throws ValueError
Sliding read_sliding(const char* op, int dims, const Dims& stride, const ConvPadding& padding, const Dims& dilation);

/// The windows of a convolution over `input` (its spatial sizes), output sizes included. `kernel_argument` and
/// `input_argument` are what the operator calls them. @throws ShapeError for an empty kernel or one that does not fit,
/// ValueError for one whose span is beyond reason
struct Windows {
  core::WindowDim window[kSpatial];
  int dims;
  Dims outputs() const;
};
Windows read_windows(const char* op, const Sliding& sliding, const Dims& input, const Dims& kernel,
                     const char* kernel_argument = "weight", const char* input_argument = "input");
/// The windows of the convolution whose data gradient a transposed one is: `given` is its output's spatial sizes, its
/// input's follow from the options; without an output_padding the one is taken that makes them `result`, where that is
/// given. @throws as read_windows; ValueError for an output_padding that is too large
Windows read_transposed(const char* op, const Sliding& sliding, const Dims& given, const Dims& kernel,
                        const std::optional<Dims>& output_padding, const Dims* result = nullptr);

/// @throws ShapeError unless x has 3 to 5 dims, DTypeError unless it is a float
void check_image(const char* op, core::Named x);

Image image_of(const Tensor& x, Layout layout = Layout::kChannelsSecond);
Filter filter_of(const Tensor& weight, Layout layout = Layout::kChannelsSecond);

}  // namespace tenor::conv
