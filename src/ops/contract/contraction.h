// What the operators of the family share: dtypes, and a GEMM from tensors.
#pragma once

#include <initializer_list>
#include <optional>
#include <vector>

#include "src/core/step.h"
#include "src/ops/contract/gemm.h"
#include "tenor/contract.h"

namespace tenor::contract {

struct Epilogue;

/// The dtypes of a contraction.
struct Types {
  DType result;   ///< what is returned
  DType compute;  ///< what is multiplied and added
};
/// @throws DTypeError for float8 operands and those without a common dtype.
Types contraction_types(const char* op, std::span<const Tensor> operands, const std::optional<DType>& dtype);

/// Whether kernels that compute in `compute` read `dtype` as it is.
bool reads_directly(DType dtype, DType compute);
/// x as the kernels read it: itself, or converted to the compute dtype.
Tensor readable(const Tensor& x, DType compute);
/// States the conversion that readable() makes, if it makes one.
void state_conversion(const char* argument, const Tensor& x, DType compute, std::vector<core::Copy>& copies);

/// c = a @ b (+ bias [n]) over tensors shaped [*batch, m, k], [*batch, k, n], [*batch, m, n], all with the same batch
/// sizes (stride 0 where shared). Of tensors that are not readable() yet, the problem that their conversion will give.
GemmProblem gemm_of(const Tensor& a, const Tensor& b, const Tensor& c, DType compute);
/// States that the problem of a traced c adds this bias, if it is one.
void state_bias(GemmProblem& problem, const Tensor& bias, const Tensor& c);
/// Runs c = a @ b + bias; converts a, b and bias where they are not readable, and rounds through a temporary where no
/// kernel writes c's dtype.
void run_into(const Tensor& a, const Tensor& b, const Tensor& c, DType compute, const Tensor& bias = {});

/// The problem that run_into() would run, with an epilogue's operands [*batch, m, n] (stride 0 where one repeats); c is
/// what the epilogue's result goes to.
GemmProblem epilogue_problem(const Tensor& a, const Tensor& b, const Tensor& c, DType compute,
                             const std::vector<Tensor>& operands);
/// Runs c = epilogue(a @ b + bias), rounded once. @throws UnsupportedError as epilogue_why_not() says
void run_into(const Tensor& a, const Tensor& b, const Tensor& c, DType compute, const Tensor& bias,
              const Epilogue& epilogue, const std::vector<Tensor>& operands);

/// c = a * b, all of one shape: what a contraction that sums nothing comes down to.
void multiply_into(const Tensor& a, const Tensor& b, const Tensor& c, DType compute);

}  // namespace tenor::contract
