// What the CUDA candidates take: known in every build, so that `explain` can state it for a described device.
#include "src/ops/conv/conv_cuda.h"

namespace tenor::conv {

std::string cuda_implicit_gemm_why_not(const ConvProblem&) { return "it has no CUDA kernel yet"; }
std::string cuda_vendor_why_not(const ConvProblem&) { return "it has no CUDA kernel yet"; }
std::string cuda_direct_why_not(const ConvProblem&) { return {}; }

}  // namespace tenor::conv
