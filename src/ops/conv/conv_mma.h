// The implicit GEMM of any GPU with mma.sync (from compute capability 8.0 on); conv_mma_cuda.cu and
// conv_mma_weight_cuda.cu say how it works. It asks what sm90_conv.h asks, but for the bound on taps.
#pragma once

#include <cstddef>

#include "src/ops/conv/conv_gather.h"
#include "src/ops/conv/conv_launch.h"

namespace tenor::conv {

void mma_conv(const GatherProduct& p, const LaunchPlace& place);

/// Ranges of pixels that a weight gradient is summed in: by the sizes and the device alone.
int mma_conv_weight_splits(const GatherSums& p, Device device);
/// Bytes of workspace that those take.
size_t mma_conv_weight_workspace(const GatherSums& p, int splits);
void mma_conv_weight(const GatherSums& p, int splits, void* workspace, const LaunchPlace& place);

}  // namespace tenor::conv
