// A checked reduction, as the contract hands it to the drivers of the CPU and of CUDA.
#pragma once

#include "tenor/tensor.h"

namespace tenor::reduce {

enum class Op : uint8_t { kSum, kMean, kProd, kMax, kMin, kAny, kAll, kCount, kNorm, kVar, kStd, kLogSumExp };

struct Problem {
  Op op;
  Tensor x, out;
  Dims dims;              ///< reduced, in range, rising; or, where `ordered`, in the order in which their elements meet
  DType accumulator;      ///< float32, float64, int64 or uint64: what sums and products are formed in
  double power = 2;       ///< norm
  double correction = 1;  ///< var, std
  bool squares = false;   ///< CPU: sum and mean of x * x, as if those had been stored in the accumulator's dtype
  bool ordered = false;   ///< CPU: x is a part of a tensor whose layout decided the order
};
void run_cpu(const Problem& problem);
void run_cuda(const Problem& problem);

struct ArgProblem {
  bool largest;
  Tensor x;
  Dims dims;
  Tensor values, indices;  ///< either may be undefined; of one shape and the same strides
};
void run_arg_cpu(const ArgProblem& problem);
void run_arg_cuda(const ArgProblem& problem);

}  // namespace tenor::reduce
