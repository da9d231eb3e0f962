// A convolution's directions as the products and sums of conv_gather.h.
#pragma once

#include <vector>

#include "src/ops/conv/conv_gather.h"
#include "src/ops/conv/conv_problem.h"

namespace tenor::conv {

/// Operands as the implicit GEMM reads them: channels innermost and dense within a pixel, a group's in multiples of 8.
struct GatherOperands {
  Image source;                  ///< what the direction reads
  int64_t source_channels = 0;   ///< of a group, with those that fill it up
  const void* weight = nullptr;  ///< [groups, channels written, taps, source_channels] of forward and data backward
};

inline constexpr int64_t kPiece = 8;  ///< elements of which the last dim of what is gathered has a whole number
inline int64_t whole_pieces(int64_t channels) { return (channels + kPiece - 1) / kPiece * kPiece; }

/// Sizes of an image's dims, with its channels by group.
struct ImageSizes {
  int64_t channels;  ///< of a group
  int64_t size[kSpatial];
};
ImageSizes input_sizes(const ConvProblem& p);
ImageSizes output_sizes(const ConvProblem& p);

/// Whether x can be gathered from where it lies: channels innermost, pixels at multiples of pieces.
bool gathers(const Image& x, const ImageSizes& sizes);
/// Whether it is [N, pixels, channels] without gaps besides.
bool is_dense(const Image& x, const ConvProblem& p, const ImageSizes& sizes);
/// Whether the weight lies as GatherOperands::weight.
bool weight_lies(const ConvProblem& p);

/// One product (forward), or one a residue of the input's positions modulo the strides (data backward), which together
/// write the whole result.
std::vector<GatherProduct> products_of(const ConvProblem& p, const GatherOperands& operands);

/// The weight gradient. `grad` is the output's gradient, dense [N, P, O] with `grad_channels` a group.
GatherSums sums_of(const ConvProblem& p, const GatherOperands& operands, const void* grad, int64_t grad_channels);

}  // namespace tenor::conv
