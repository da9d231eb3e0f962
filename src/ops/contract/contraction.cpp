#include "src/ops/contract/contraction.h"

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/modes.h"
#include "src/core/output.h"
#include "src/ops/contract/epilogue.h"

namespace tenor::contract {
namespace {

/// Whether the kernels that compute in `compute` round to `dtype` themselves.
bool writes_directly(DType dtype, DType compute) {
  return dtype == compute || (compute == DType::kFloat32 && reads_as_float(dtype));
}

Matrix matrix_of(const Tensor& x, DType compute) {
  const int rank = x.ndim();
  Matrix matrix{static_cast<char*>(x.raw()), reads_directly(x.dtype(), compute) ? x.dtype() : compute,
                x.stride(rank - 2), x.stride(rank - 1)};
  for (int d = 0; d < rank - 2; ++d) matrix.batch.push_back(x.shape(d) == 1 ? 0 : x.stride(d));
  return matrix;
}

/// As which dtype kernels read a bias of c.
DType bias_dtype(const Tensor& bias, const Tensor& c, DType compute) {
  // CUDA kernels add a bias of c's dtype as it is: a conversion would be a kernel of its own.
  return core::runs_on(c.device()) == DeviceType::kCuda && bias.dtype() == c.dtype() ? bias.dtype() : compute;
}

}  // namespace

Types contraction_types(const char* op, std::span<const Tensor> operands, const std::optional<DType>& dtype) {
  DType common = operands[0].dtype();
  for (const Tensor& x : operands) {
    if (is_float8(x.dtype()))
      core::fail<DTypeError>("{}: operands must not be float8, got {}; convert them first", op, x.dtype());
    const bool clash = (x.dtype() == uint64 && is_signed(common)) || (common == uint64 && is_signed(x.dtype()));
    if (clash) core::fail<DTypeError>("{}: {} and {} have no common dtype; convert one of them", op, common, x.dtype());
    common = promote(common, x.dtype());
  }
  const DType result = dtype.value_or(common);
  // A wider result is not computed in less than its own precision, and an integer one wraps in itself.
  if (is_float(common) || is_float(result)) return {result, common == float64 || result == float64 ? float64 : float32};
  return {result, result == boolean ? common : result};
}

bool reads_directly(DType dtype, DType compute) {
  return dtype == compute || (compute == DType::kFloat32 && reads_as_float(dtype));
}

Tensor readable(const Tensor& x, DType compute) { return reads_directly(x.dtype(), compute) ? x : x.to(compute); }

void state_conversion(const char* argument, const Tensor& x, DType compute, std::vector<core::Copy>& copies) {
  if (!x.defined() || reads_directly(x.dtype(), compute)) return;
  copies.push_back({argument, x.numel() * static_cast<int64_t>(item_size(compute)),
                    "converted from " + std::string(name(x.dtype())) + " to " + std::string(name(compute))});
}

GemmProblem gemm_of(const Tensor& a, const Tensor& b, const Tensor& c, DType compute) {
  const int rank = c.ndim();
  GemmProblem p;
  p.m = c.shape(rank - 2), p.n = c.shape(rank - 1), p.k = a.shape(rank - 1);
  p.batch = Dims(c.shape().begin(), c.shape().end() - 2);
  p.compute = compute;
  p.a = matrix_of(a, compute), p.b = matrix_of(b, compute), p.c = matrix_of(c, compute);
  p.b.argument = "other";
  p.batch_invariant = core::batch_invariant();
  p.device = core::stands_for(c.device());
  p.bias_dtype = compute;
  return p;
}

void state_bias(GemmProblem& p, const Tensor& bias, const Tensor& c) {
  alignas(16) static const char somewhere[16] = {};
  if (!bias.defined()) return;
  p.bias = somewhere, p.bias_dtype = bias_dtype(bias, c, p.compute), p.bias_col = 1;
}

GemmProblem epilogue_problem(const Tensor& a, const Tensor& b, const Tensor& c, DType compute,
                             const std::vector<Tensor>& operands) {
  GemmProblem p = gemm_of(a, b, c, compute);
  p.c.dtype = c.dtype();
  for (const Tensor& x : operands) p.operands.push_back(matrix_of(x, x.dtype()));
  return p;
}

void run_into(const Tensor& a, const Tensor& b, const Tensor& c, DType compute, const Tensor& bias,
              const Epilogue& epilogue, const std::vector<Tensor>& operands) {
  const Tensor left = readable(a, compute), right = readable(b, compute);
  const Tensor added = bias.defined() ? bias.to(bias_dtype(bias, c, compute)).contiguous() : Tensor();
  GemmProblem problem = epilogue_problem(left, right, c, compute, operands);
  if (added.defined()) problem.bias = added.raw(), problem.bias_dtype = added.dtype(), problem.bias_col = 1;
  run_with_epilogue(problem, epilogue);
}

void run_into(const Tensor& a, const Tensor& b, const Tensor& c, DType compute, const Tensor& bias) {
  if (!writes_directly(c.dtype(), compute)) {
    const Tensor sums = Tensor::empty(c.shape(), compute, c.device());
    run_into(a, b, sums, compute, bias);
    return core::copy_into(sums, c);
  }
  const Tensor left = readable(a, compute), right = readable(b, compute);
  const Tensor added = bias.defined() ? bias.to(bias_dtype(bias, c, compute)).contiguous() : Tensor();
  GemmProblem problem = gemm_of(left, right, c, compute);
  if (added.defined()) problem.bias = added.raw(), problem.bias_dtype = added.dtype(), problem.bias_col = 1;
  run_gemm(problem);
}

}  // namespace tenor::contract
