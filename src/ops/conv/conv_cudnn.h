// What the vendor candidate on CUDA is made of: the graph of a problem, and the engines of cuDNN's that compute it.
#pragma once

#include "src/cuda/cudnn_graph.h"

#if TENOR_HAS_CUDA && __has_include(<cudnn.h>)

#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/ops/conv/conv_problem.h"

namespace tenor::conv {

/// Names of the graph's tensors.
enum CudnnOperand : int64_t { kInput = 1, kWeight, kOutput, kBias, kSum };

/// Bytes that the pointer is a multiple of, as far as engines care.
inline int64_t cudnn_alignment(const void* p) {
  return int64_t{1} << std::min(std::countr_zero(reinterpret_cast<uintptr_t>(p) | 16), 4);
}

/// The graph of a convolution, and of the addition of its bias, with what it holds.
/// @throws cuda::CudnnError
cuda::CudnnDescriptor cudnn_graph(cudnnHandle_t handle, const ConvProblem& p);

/// An engine of cuDNN's and its settings, made ready for a problem.
struct CudnnPlan {
  std::string declined = {};  ///< why cuDNN has nothing for the problem; the rest is empty then
  std::string name = {};      ///< the engine's number, and its settings as kind:value
  cuda::CudnnDescriptor plan = {};
  int64_t workspace = 0;
};

/// Of the engines that a mode of the heuristics names for the problem's graph, in their order: those that keep the
/// contract and whose name is `wanted`, at most `most`.
/// @throws cuda::CudnnError
std::vector<std::shared_ptr<const CudnnPlan>> cudnn_plans(cudnnHandle_t handle, const ConvProblem& p,
                                                          const cuda::CudnnDescriptor& graph,
                                                          cudnnBackendHeurMode_t mode, size_t most,
                                                          const std::function<bool(const std::string&)>& wanted);

}  // namespace tenor::conv

#endif
