// Convolutions whose window is one element of stride 1 over images without gaps are matrix products as they lie: the
// forward and data directions run as the Hopper GEMM, which also takes the filter across.
#pragma once

#include <optional>

#include "src/ops/conv/conv_problem.h"

namespace tenor::conv {

/// The matrices of such a product, result[pixels, written] = source[pixels, read] * weight; strides in elements.
struct PointwiseProduct {
  int64_t pixels, read, written;  ///< the last two channels
  int64_t source_row, result_row, result_column;
  int64_t weight_row;  ///< between neighbours of the dim that is not contiguous
  bool weight_across;  ///< the weight lies as [read, written]
};

/// Nothing where the problem is none, or the GEMM's tiles would stay half empty.
std::optional<PointwiseProduct> pointwise_product(const ConvProblem& p);
void pointwise_run(const ConvProblem& p, const PointwiseProduct& product);

}  // namespace tenor::conv
