// What a reduction's step tells fusion.
#pragma once

#include "src/core/step.h"
#include "src/ops/reduce/reduce_problem.h"

namespace tenor::reduce {

class Recipe final : public core::Recipe {
 public:
  void run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) const override;

  const char* name;
  Op op;
  Dims dims;  ///< rising
  bool keepdim;
  DType accumulator;
  double power, correction;
  bool direct;  ///< elements meet as they are, not converted by a pass of their own
};

}  // namespace tenor::reduce
