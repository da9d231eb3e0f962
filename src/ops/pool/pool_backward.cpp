// Contracts of the gradients of max_pool, avg_pool and their adaptive forms.
#include "src/core/registry.h"
#include "src/ops/pool/pool_checks.h"
#include "tenor/pool.h"

namespace tenor {
namespace {

using core::OpClass;
using core::Step;
using pool::Function;
using pool::PoolSpace;

constexpr const char* kMaxFormula =
    "grad_output, indices -> grad_output added at its place in each plane of input_shape";
constexpr const char* kAvgFormula = "grad_output -> sum over the windows that cover an input of grad_output / elements";

const core::OpRegistration kOps({
    {"max_pool1d_backward", "pool", OpClass::kIndex, kMaxFormula},
    {"max_pool2d_backward", "pool", OpClass::kIndex, kMaxFormula},
    {"max_pool3d_backward", "pool", OpClass::kIndex, kMaxFormula},
    {"adaptive_max_pool1d_backward", "pool", OpClass::kIndex, kMaxFormula},
    {"adaptive_max_pool2d_backward", "pool", OpClass::kIndex, kMaxFormula},
    {"adaptive_max_pool3d_backward", "pool", OpClass::kIndex, kMaxFormula},
    {"avg_pool1d_backward", "pool", OpClass::kReduction, kAvgFormula},
    {"avg_pool2d_backward", "pool", OpClass::kReduction, kAvgFormula},
    {"avg_pool3d_backward", "pool", OpClass::kReduction, kAvgFormula},
    {"adaptive_avg_pool1d_backward", "pool", OpClass::kReduction, kAvgFormula},
    {"adaptive_avg_pool2d_backward", "pool", OpClass::kReduction, kAvgFormula},
    {"adaptive_avg_pool3d_backward", "pool", OpClass::kReduction, kAvgFormula},
});

void run_max_backward(const pool::Problem& p, const Tensor& grad, const Tensor& indices, const Tensor& dx,
                      bool is_new) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(grad)) return cuda::max_pool_backward(p, grad, indices, dx);
  }
  cpu::max_pool_backward(p, grad, indices, dx, is_new);
}

Tensor max_backward(Function f, const Tensor& grad, const Tensor& indices, const Dims& input_shape,
                    const MaxPoolBackwardOptions& o) {
  core::check_float(f.op, {"grad_output", grad});
  core::check_index_dtype(f.op, {"indices", indices});
  core::check_same_device(f.op, {{"grad_output", grad}, {"indices", indices}});
  core::check_shape(f.op, {"indices", indices}, grad.shape());
  pool::check_input_shape(f, input_shape, grad);
  return pool::one_result(
      f, o.out, input_shape, grad, {&grad, &indices},
      [&](const Tensor& dx) {
        return Step{f.op, OpClass::kIndex, {grad, indices}, {dx}, 0}.with(
            core::recipe([f, input_shape](const auto& in, const auto& outs) {
              max_backward(f, in[0], in[1], input_shape, {.out = outs[0]});
            }));
      },
      [&](const Tensor& dx) {
        run_max_backward(pool::problem_of(f, {}, dx, grad, indices), grad, indices, dx, !o.out.defined());
      });
}

void run_avg_backward(const pool::Problem& p, const pool::PoolDivisor& divisor, const Tensor& grad, const Tensor& dx) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(grad)) return cuda::avg_pool_backward(p, divisor, grad, dx);
  }
  cpu::avg_pool_backward(p, divisor, grad, dx);
}

Tensor avg_backward(Function f, const Tensor& grad, const Dims& input_shape, const PoolSpace& space,
                    const pool::PoolDivisor& divisor, const Tensor& given) {
  core::check_shape(f.op, {"grad_output", grad}, pool::pooled_shape(f, input_shape, space));
  return pool::one_result(
      f, given, input_shape, grad, {&grad},
      [&](const Tensor& dx) {
        return Step{f.op, OpClass::kReduction, {grad}, {dx}, pool::flops_of(space, dx, grad)}.with(
            core::recipe([f, input_shape, space, divisor](const auto& in, const auto& outs) {
              avg_backward(f, in[0], input_shape, space, divisor, outs[0]);
            }));
      },
      [&](const Tensor& dx) { run_avg_backward(pool::problem_of(f, space, dx, grad), divisor, grad, dx); });
}

Tensor avg_pool_backward(Function f, const Tensor& grad, const Dims& input_shape, const Dims& kernel_size,
                         const AvgPoolOptions& o) {
  core::check_float(f.op, {"grad_output", grad});
  const PoolSpace space = pool::windows_of(f, "input_shape", input_shape, pool::average_windows(kernel_size, o));
  return avg_backward(f, grad, input_shape, space, pool::divisor_of(f, o), o.out);
}

Tensor adaptive_avg_backward(Function f, const Tensor& grad, const Dims& input_shape, const AdaptivePoolOptions& o) {
  core::check_float(f.op, {"grad_output", grad});
  pool::check_input_shape(f, input_shape, grad);
  const Dims size(grad.shape().end() - f.dims, grad.shape().end());
  return avg_backward(f, grad, input_shape, pool::bins_of(f, input_shape, size), {}, o.out);
}

}  // namespace

Tensor max_pool1d_backward(const Tensor& grad_output, const Tensor& indices, const Dims& input_shape,
                           const MaxPoolBackwardOptions& options) {
  return max_backward({"max_pool1d_backward", 1}, grad_output, indices, input_shape, options);
}
Tensor max_pool2d_backward(const Tensor& grad_output, const Tensor& indices, const Dims& input_shape,
                           const MaxPoolBackwardOptions& options) {
  return max_backward({"max_pool2d_backward", 2}, grad_output, indices, input_shape, options);
}
Tensor max_pool3d_backward(const Tensor& grad_output, const Tensor& indices, const Dims& input_shape,
                           const MaxPoolBackwardOptions& options) {
  return max_backward({"max_pool3d_backward", 3}, grad_output, indices, input_shape, options);
}
Tensor adaptive_max_pool1d_backward(const Tensor& grad_output, const Tensor& indices, const Dims& input_shape,
                                    const MaxPoolBackwardOptions& options) {
  return max_backward({"adaptive_max_pool1d_backward", 1}, grad_output, indices, input_shape, options);
}
Tensor adaptive_max_pool2d_backward(const Tensor& grad_output, const Tensor& indices, const Dims& input_shape,
                                    const MaxPoolBackwardOptions& options) {
  return max_backward({"adaptive_max_pool2d_backward", 2}, grad_output, indices, input_shape, options);
}
Tensor adaptive_max_pool3d_backward(const Tensor& grad_output, const Tensor& indices, const Dims& input_shape,
                                    const MaxPoolBackwardOptions& options) {
  return max_backward({"adaptive_max_pool3d_backward", 3}, grad_output, indices, input_shape, options);
}
Tensor avg_pool1d_backward(const Tensor& grad_output, const Dims& input_shape, const Dims& kernel_size,
                           const AvgPoolOptions& options) {
  return avg_pool_backward({"avg_pool1d_backward", 1}, grad_output, input_shape, kernel_size, options);
}
Tensor avg_pool2d_backward(const Tensor& grad_output, const Dims& input_shape, const Dims& kernel_size,
                           const AvgPoolOptions& options) {
  return avg_pool_backward({"avg_pool2d_backward", 2}, grad_output, input_shape, kernel_size, options);
}
Tensor avg_pool3d_backward(const Tensor& grad_output, const Dims& input_shape, const Dims& kernel_size,
                           const AvgPoolOptions& options) {
  return avg_pool_backward({"avg_pool3d_backward", 3}, grad_output, input_shape, kernel_size, options);
}
Tensor adaptive_avg_pool1d_backward(const Tensor& grad_output, const Dims& input_shape,
                                    const AdaptivePoolOptions& options) {
  return adaptive_avg_backward({"adaptive_avg_pool1d_backward", 1}, grad_output, input_shape, options);
}
Tensor adaptive_avg_pool2d_backward(const Tensor& grad_output, const Dims& input_shape,
                                    const AdaptivePoolOptions& options) {
  return adaptive_avg_backward({"adaptive_avg_pool2d_backward", 2}, grad_output, input_shape, options);
}
Tensor adaptive_avg_pool3d_backward(const Tensor& grad_output, const Dims& input_shape,
                                    const AdaptivePoolOptions& options) {
  return adaptive_avg_backward({"adaptive_avg_pool3d_backward", 3}, grad_output, input_shape, options);
}

}  // namespace tenor
