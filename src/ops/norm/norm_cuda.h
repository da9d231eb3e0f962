// Entry points of the CUDA kernels of this family. Arguments are checked; tensors lie on one device; results are given.
#pragma once

#include "tenor/tensor.h"

namespace tenor::cuda {

/// layer_norm and rms_norm over the last dim; `residual` and `sum` are both given (add_...) or both undefined.
struct NormTensors {
  const Tensor& x;
  const Tensor& residual;
  const Tensor& gamma;  ///< undefined: ones
  const Tensor& beta;   ///< undefined: none
  const Tensor& y;
  const Tensor& sum;
};
void layer_norm_rows(const char* op, const NormTensors& tensors, double epsilon);
void rms_norm_rows(const char* op, const NormTensors& tensors, double epsilon, double weight_offset);

/// Over the last dim.
void softmax_rows(const char* op, const Tensor& x, const Tensor& y, bool log);
void normalize_rows(const Tensor& x, const Tensor& y, double p, double epsilon);

/// Tensors [N, groups, C / groups, *S]; gamma, beta [C] or undefined.
void group_norm_rows(const char* op, const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& y,
                     double epsilon);

struct BatchNormVectors {
  const Tensor &mean, &variance, &gamma, &beta;  ///< [C]; the last two may be undefined
};
/// x, y [N, C, *S].
void batch_norm_elements(const Tensor& x, const BatchNormVectors& vectors, const Tensor& y, double epsilon);

}  // namespace tenor::cuda
