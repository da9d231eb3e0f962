// Gated activations: the activation of one operand times the other, fused. float16, bfloat16, float32, float64;
// computed in float32 (float64 for float64) and rounded once, at the end. Class 2, one pass: both operands are read
// once, the result written once. A gate of -inf gives the activation's limit, 0. Errors: DTypeError for other or
// unequal dtypes, ShapeError for an odd last axis or unequal shapes, ValueError for options.
#pragma once

#include <string>

#include "tenor/tensor.h"

namespace tenor {

struct SiluMulOptions {
  Tensor out = {};
};
/// silu(gate) * up, silu(v) = v / (1 + e^-v); gate is the first half of x's last axis, up the second: x[..., 2d] ->
/// [..., d]. Source: Shazeer 2020, "GLU Variants Improve Transformer" (SwiGLU).
Tensor silu_mul(const Tensor& x, const SiluMulOptions& options = {});
/// The same for two tensors of one shape and dtype.
Tensor silu_mul(const Tensor& gate, const Tensor& up, const SiluMulOptions& options = {});

struct GeluMulOptions {
  std::string approximate =
      "none";  ///< "none": v * P(N(0, 1) <= v); "tanh": v/2 * (1 + tanh(sqrt(2/pi) * (v + 0.044715 v^3)))
  Tensor out = {};
};
/// gelu(gate) * up, as silu_mul. Sources: Hendrycks, Gimpel 2016, "Gaussian Error Linear Units"; GEGLU as above.
Tensor gelu_mul(const Tensor& x, const GeluMulOptions& options = {});
Tensor gelu_mul(const Tensor& gate, const Tensor& up, const GeluMulOptions& options = {});

}  // namespace tenor
