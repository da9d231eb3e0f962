// Row operators that normalise: a statistic of each row (or group, or channel), then one pass that applies it.
//
// x is float16, bfloat16, float32 or float64. Statistics and affine are computed in float32 (float64 for float64) and
// rounded once, to x's dtype. gamma, beta, mean, variance are float32 or x's dtype. The result keeps x's shape, dtype
// and dense dimension order; out= may be an input. A row's bits depend on that row alone. Class 3, one pass over
// memory: x is read once, the result written once, as long as a row stays in cache; strided rows are gathered into
// cache. Errors, all before anything is written: DTypeError for other dtypes (integers too), ShapeError for sizes,
// ValueError for option values, IndexError for a dim out of range.
#pragma once

#include "tenor/tensor.h"

namespace tenor {

struct LayerNormOptions {
  Tensor beta = {};       ///< [H]
  double epsilon = 1e-5;  ///< finite, > 0
  Tensor out = {};
};
/// (x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis: x[..., H], H > 0, gamma[H]. The mean is
/// corrected by the mean of the deviations from it and the variance is that of the deviations: no cancellation.
/// Source: Ba, Kiros, Hinton 2016, "Layer Normalization".
Tensor layer_norm(const Tensor& x, const Tensor& gamma, const LayerNormOptions& options = {});

struct RmsNormOptions {
  double epsilon = 1e-6;       ///< finite, > 0; inside the root
  double weight_offset = 0.0;  ///< added to gamma in the compute type: 1 for models that store gamma - 1
  Tensor out = {};
};
/// x / sqrt(mean(x^2) + epsilon) * (gamma + weight_offset) over the last axis: x[..., H], H > 0, gamma[H].
/// Source: Zhang, Sennrich 2019, "Root Mean Square Layer Normalization".
Tensor rms_norm(const Tensor& x, const Tensor& gamma, const RmsNormOptions& options = {});

struct AddNormResult {
  Tensor y, new_residual;
};

struct AddRmsNormOptions {
  double epsilon = 1e-6;
  double weight_offset = 0.0;
  AddNormResult out = {};  ///< both or neither; {x, residual} works in place
};
/// new_residual = x + residual, rounded to x's dtype; y = rms_norm(new_residual, gamma): bit for bit the unfused pair.
/// x and residual have one shape and dtype.
AddNormResult add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& gamma,
                           const AddRmsNormOptions& options = {});

struct AddLayerNormOptions {
  Tensor beta = {};
  double epsilon = 1e-5;
  AddNormResult out = {};
};
/// As add_rms_norm, with layer_norm.
AddNormResult add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& gamma,
                             const AddLayerNormOptions& options = {});

struct SoftmaxOptions {
  int64_t dim = -1;
  Tensor out = {};
};
/// exp(x - max) / sum(exp(x - max)) along dim. A row that is all -inf, or holds +inf or NaN, gives NaN.
Tensor softmax(const Tensor& x, const SoftmaxOptions& options = {});
/// (x - max) - log(sum(exp(x - max))) along dim; the same rows give NaN.
Tensor log_softmax(const Tensor& x, const SoftmaxOptions& options = {});

struct SoftmaxLastAxisOptions {
  Tensor out = {};
};
/// softmax over the last axis, whose length must be > 0 (ShapeError).
Tensor softmax_last_axis(const Tensor& x, const SoftmaxLastAxisOptions& options = {});

struct NormalizeOptions {
  double p = 2;  ///< the norm's order: any number, infinities included; 0 counts what is not zero
  int64_t dim = -1;
  double epsilon = 1e-12;  ///< finite, >= 0
  Tensor out = {};
};
/// x / max(norm_p(x), epsilon) along dim.
Tensor normalize(const Tensor& x, const NormalizeOptions& options = {});

struct ChannelNormOptions {
  Tensor gamma = {};      ///< [C]
  Tensor beta = {};       ///< [C]
  double epsilon = 1e-5;  ///< finite, > 0
  Tensor out = {};
};
/// x[N, C, *S], each of `groups` equal runs of channels (with its *S) normalised as one row, then gamma and beta per
/// channel. groups > 0 divides C (ValueError). Source: Wu, He 2018, "Group Normalization".
Tensor group_norm(const Tensor& x, int64_t groups, const ChannelNormOptions& options = {});
/// group_norm of every channel by itself. Source: Ulyanov, Vedaldi, Lempitsky 2016, "Instance Normalization".
Tensor instance_norm(const Tensor& x, const ChannelNormOptions& options = {});
/// (x - mean) / sqrt(variance + epsilon) * gamma + beta with the given mean[C] and variance[C]: batch normalisation at
/// inference. x[N, C, *S]. Source: Ioffe, Szegedy 2015, "Batch Normalization".
Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& variance, const ChannelNormOptions& options = {});

}  // namespace tenor
