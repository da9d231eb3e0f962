// The implicit GEMM of float32 on any CUDA device.
#pragma once

#include <cuda_runtime_api.h>

#include "src/ops/conv/conv_gather.h"

namespace tenor::conv {

/// A product of float32, operands as sm90_conv.h asks: channels of a group in multiples of 4, pixels and the weight at
/// multiples of 16 bytes, at most 31 taps in dims with padding.
cudaError_t float_conv(const GatherProduct& p, cudaStream_t stream);

/// Sums over pixels by ranges whose float32 sums go to the workspace, of that many bytes.
size_t float_weight_workspace(const GatherSums& sums);
cudaError_t float_conv_weight(const GatherSums& sums, void* workspace, cudaStream_t stream);

}  // namespace tenor::conv
