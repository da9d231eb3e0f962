// layer_norm, alone and behind an addition.
#include "src/ops/norm/layer_norm_cuda.cuh"

namespace tenor::cuda {

void layer_norm_rows(const char* op, const NormTensors& tensors, double epsilon) {
  norm_rows<LayerNorm>(op, tensors, epsilon, 0);
}

}  // namespace tenor::cuda
