// The implicit GEMM of float32 on any CUDA device.
#pragma once

#include <cstddef>

#include "src/ops/conv/conv_gather.h"
#include "src/ops/conv/conv_launch.h"

namespace tenor::conv {

/// A product of float32, operands as sm90_conv.h asks: channels of a group in multiples of 4, pixels and the weight at
/// multiples of 16 bytes, at most 31 taps in dims with padding.
void float_conv(const GatherProduct& p, const LaunchPlace& place);

/// Sums over pixels by ranges whose float32 sums go to the workspace, of that many bytes.
size_t float_weight_workspace(const GatherSums& sums);
void float_conv_weight(const GatherSums& sums, void* workspace, const LaunchPlace& place);

}  // namespace tenor::conv
