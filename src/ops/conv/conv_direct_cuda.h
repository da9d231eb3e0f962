// The kernels of "direct" on CUDA that take a part of what the plain ones take.
#pragma once

#include "src/ops/conv/conv_problem.h"

namespace tenor::conv {

/// Depthwise over channels-last images, windows of 3, 5 or 7, stride and dilation 1 (conv_depthwise.cuh).
bool depthwise_takes(const ConvProblem& p);
void depthwise_run(const ConvProblem& p);
/// Those by TMA (conv_depthwise_ring.cuh); false, and nothing done, where the device or the layout does not allow it.
bool depthwise_ring_run(const ConvProblem& p);
/// Likewise windows of 3 and 5 of stride 2 (conv_depthwise_stride.cuh), of which depthwise_takes says nothing.
bool depthwise_stride_run(const ConvProblem& p);
/// Likewise weight gradients of large windows on tensor cores (conv_depthwise_mma.cuh).
bool depthwise_mma_run(const ConvProblem& p);

/// Groups of eight channels on both sides over channels-last images of 16-bit floats, windows of 3 or 5, stride and
/// dilation 1 (conv_grouped.cuh).
bool grouped_takes(const ConvProblem& p);
void grouped_run(const ConvProblem& p);

}  // namespace tenor::conv
