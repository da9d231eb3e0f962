// Convolutions of one to three spatial dims, their gradients, transposed and deformable convolution, im2col.
//
// A convolution here is a cross-correlation, as in every neural-network library:
//
//     output[n, o, p] = bias[o] + sum over c, k of
//         weight[o, c, k] * input[n, g C/G + c, p * stride + k * dilation - lo]
//
// with g the group of o, lo the padding before the first input, and zeros on padding (whether an infinite weight there
// gives NaN is left open). A dim has floor((S + lo + hi - dilation (K - 1) - 1) / stride) + 1 outputs.
//
// All operands have one dtype: float16, bfloat16, float32 or float64, and any strides. Sums are float32 (float64 for
// float64) and rounded once, after the bias. A zero batch gives an empty result and zero gradients; C = 0, or an empty
// image that padding fills, gives the bias. Cost: 2 FLOPs a multiply-add of the definition, padding included.
//
// Strategies: "implicit_gemm" (a product on register tiles, operands gathered as they lie), "direct" (sliding windows
// over rows; the one for depthwise, grouped and few-channel problems), "vendor" (oneDNN, cuDNN), "auto".
//
// @throws ShapeError for ranks other than 3 to 5, a dilated kernel larger than the padded input, channels that `groups`
// does not divide, and operands that do not fit each other; ValueError for option values; DTypeError, DeviceError;
// UnsupportedError for a named strategy that cannot do the problem.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenor/tensor.h"

namespace tenor {

/// Zeros around an image: one number for all sides, one a dim, (lo, hi) a dim, "valid" (none), or "same" (as many
/// outputs as inputs, the odd one at the end; stride 1 only).
struct ConvPadding {
  enum class Kind : uint8_t { kNumbers, kSame, kUnknown };

  ConvPadding(int64_t all = 0) : before{all}, after{all} {}
  ConvPadding(int all) : ConvPadding(static_cast<int64_t>(all)) {}
  ConvPadding(const Dims& each) : before(each), after(each) {}
  ConvPadding(std::initializer_list<int64_t> each) : before(each), after(each) {}
  ConvPadding(Dims lo, Dims hi) : before(std::move(lo)), after(std::move(hi)) {}
  /// @throws ValueError unless it is "valid" or "same"; the operator names itself when it reads the padding
  ConvPadding(std::string_view word) : kind(kind_of(word)), before{0}, after{0} {
    if (kind == Kind::kUnknown) unknown = word;
  }
  ConvPadding(const char* word) : ConvPadding(std::string_view(word)) {}

  Kind kind = Kind::kNumbers;
  Dims before, after;   ///< one number or one a dim
  std::string unknown;  ///< of kUnknown, the word that is neither; every operator refuses it

 private:
  static Kind kind_of(std::string_view word) {
    return word == "same" ? Kind::kSame : word == "valid" ? Kind::kNumbers : Kind::kUnknown;
  }
};

/// Of the convolution, and of the one that a gradient belongs to.
struct ConvOptions {
  Dims stride = {1};  ///< >= 1, one number or one a dim
  ConvPadding padding = 0;
  Dims dilation = {1};  ///< >= 1
  int64_t groups = 1;   ///< divides C and O; output channel o reads the C / groups channels of its group alone
  std::string_view strategy = "auto";
  Tensor out = {};
};

/// input [N,C,*S], weight [O,C/groups,*K], bias [O] or none -> [N,O,*P]
Tensor conv_forward(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
                    const ConvOptions& options = {});
/// input [N,*S,C], weight [O,*K,C/groups], bias [O] or none -> [N,*P,O]
Tensor conv_forward_nhwc(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
                         const ConvOptions& options = {});

/// The gradient to conv_forward's input, of `input_shape` [N,C,*S]: grad_output [N,O,*P], weight [O,C/groups,*K].
/// Inputs that no window reads get 0.
Tensor conv_data_backward(const Tensor& grad_output, const Tensor& weight, const Dims& input_shape,
                          const ConvOptions& options = {});
/// As conv_data_backward of grad_output [N,*P,O], weight [O,*K,C/groups], input_shape [N,*S,C].
Tensor conv_data_backward_nhwc(const Tensor& grad_output, const Tensor& weight, const Dims& input_shape,
                               const ConvOptions& options = {});

/// The gradient to conv_forward's weight, of `weight_shape` [O,C/groups,*K]: input [N,C,*S], grad_output [N,O,*P].
Tensor conv_weight_backward(const Tensor& input, const Tensor& grad_output, const Dims& weight_shape,
                            const ConvOptions& options = {});
/// As conv_weight_backward of input [N,*S,C], grad_output [N,*P,O], weight_shape [O,*K,C/groups].
Tensor conv_weight_backward_nhwc(const Tensor& input, const Tensor& grad_output, const Dims& weight_shape,
                                 const ConvOptions& options = {});

struct ConvBiasBackwardOptions {
  Tensor out = {};
};
/// The gradient to the bias: grad_output [N,O,*P] summed over all but O -> [O].
Tensor conv_bias_backward(const Tensor& grad_output, const ConvBiasBackwardOptions& options = {});
/// As conv_bias_backward of grad_output [N,*P,O].
Tensor conv_bias_backward_nhwc(const Tensor& grad_output, const ConvBiasBackwardOptions& options = {});

struct ConvTransposeOptions {
  Dims stride = {1};
  ConvPadding padding = 0;  ///< taken away from both ends of the result
  Dims dilation = {1};
  int64_t groups = 1;
  /// Outputs more at the end, below max(stride, dilation); of the gradients: absent means whatever the shapes say.
  std::optional<Dims> output_padding = {};
  std::string_view strategy = "auto";
  Tensor out = {};
};

/// The data gradient of a convolution as an operator of its own: input [N,C,*S], weight [C,O/groups,*K], bias [O] or
/// none -> [N,O,*P] with P = (S - 1) stride - lo - hi + dilation (K - 1) + 1 + output_padding.
/// @throws as conv_forward; ValueError for an output_padding of max(stride, dilation) or more; ShapeError where the
/// padding takes away more than there is
Tensor conv_transpose(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
                      const ConvTransposeOptions& options = {});
/// The gradient to conv_transpose's input, of `input_shape` [N,C,*S]: grad_output [N,O,*P], weight [C,O/groups,*K].
Tensor conv_transpose_data_backward(const Tensor& grad_output, const Tensor& weight, const Dims& input_shape,
                                    const ConvTransposeOptions& options = {});
/// The gradient to conv_transpose's weight, of `weight_shape` [C,O/groups,*K]: input [N,C,*S], grad_output [N,O,*P].
Tensor conv_transpose_weight_backward(const Tensor& input, const Tensor& grad_output, const Dims& weight_shape,
                                      const ConvTransposeOptions& options = {});

/// Of im2col and col2im.
struct Im2colOptions {
  Dims stride = {1};
  ConvPadding padding = 0;
  Dims dilation = {1};
  Tensor out = {};
};
/// Every window as a column: x [N,C,*S] of any dtype -> [N, C prod(K), prod(P)], element (c, k) of window p being
/// x[n, c, p * stride + k * dilation - lo], or 0 on padding. PyTorch's unfold. No FLOPs.
Tensor im2col(const Tensor& x, const Dims& kernel_size, const Im2colOptions& options = {});
/// The adjoint of im2col: columns [N, C prod(K), prod(P)] added up in an image [N,C,*output_size]; where windows
/// overlap, in the order of the taps. Any dtype but bool; integers wrap. PyTorch's fold. One FLOP an element.
Tensor col2im(const Tensor& x, const Dims& output_size, const Dims& kernel_size, const Im2colOptions& options = {});

struct DeformConvOptions {
  Dims stride = {1};
  ConvPadding padding = 0;
  Dims dilation = {1};
  std::optional<int64_t> groups = {};         ///< absent: C / weight's second size
  std::optional<int64_t> offset_groups = {};  ///< absent: offset's channels / (2 KH KW)
  Tensor out = {};
};
/// Deformable convolution (v2 with a mask): input [N,C,H,W], offset [N, 2 OG KH KW, PH, PW] with (y, x) of each tap,
/// weight [O,C/groups,KH,KW], mask [N, OG KH KW, PH, PW] or none, bias [O] or none -> [N,O,PH,PW]. Tap k of output p
/// reads channel c of input at p * stride + k * dilation - lo + offset, bilinearly, zeros outside, times the mask;
/// channels fall in OG equal groups with offsets of their own. Source: arXiv 1811.11168; layouts as torchvision's.
Tensor deform_conv2d(const Tensor& input, const Tensor& offset, const Tensor& weight, const Tensor& mask = {},
                     const Tensor& bias = {}, const DeformConvOptions& options = {});

struct DeformConvGrads {
  Tensor grad_input, grad_offset, grad_weight;
  Tensor grad_mask, grad_bias;  ///< empty without a mask, without a bias
};
struct DeformConvBackwardOptions {
  Dims stride = {1};
  ConvPadding padding = 0;
  Dims dilation = {1};
  std::optional<int64_t> groups = {};
  std::optional<int64_t> offset_groups = {};
  DeformConvGrads out = {};
};
/// The gradients of deform_conv2d to its operands. At a sampling point on a grid line the derivative to the offset is
/// the one towards larger coordinates.
DeformConvGrads deform_conv2d_backward(const Tensor& grad_output, const Tensor& input, const Tensor& offset,
                                       const Tensor& weight, const Tensor& mask = {}, const Tensor& bias = {},
                                       const DeformConvBackwardOptions& options = {});

}  // namespace tenor
