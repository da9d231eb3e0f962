// What an elementwise step tells fusion: everything that its kernel is told, so that it computes the same bits
// elsewhere.
#pragma once

#include <array>

#include "src/core/step.h"
#include "src/ops/elementwise/elementwise_ops.h"

namespace tenor::elementwise {

/// An operand of a kernel: one of the step's inputs, or an element for all places.
struct Source {
  int input = -1;  ///< of the step's; -1: `element`
  DType dtype = DType::kFloat32, compute = DType::kFloat32;
  alignas(8) std::array<char, 8> element = {};
};

class Recipe final : public core::Recipe {
 public:
  void run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) const override;

  Op op;
  cpu::StepFn fn;
  int arity;
  std::array<Source, 3> sources;
  DType computed;
  bool has_params;
  std::array<double, 3> params;  ///< of isclose, elu, leaky_relu, softplus
};

/// to, clone, contiguous, copy_: input 0 at the output's shape, in its dtype.
class Copy final : public core::Recipe {
 public:
  void run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) const override;
};

/// A reshape that copies: the elements of input 0 in row-major order.
class Reorder final : public core::Recipe {
 public:
  void run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) const override;
};

/// fill_, full: one element of the output's dtype.
class Fill final : public core::Recipe {
 public:
  explicit Fill(const void* value, DType dtype);
  void run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) const override;

  alignas(8) std::array<char, 8> element = {};
};

}  // namespace tenor::elementwise
