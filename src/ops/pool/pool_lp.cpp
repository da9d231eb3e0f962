// Contracts of lp_pool and its gradient.
#include "src/core/registry.h"
#include "src/ops/pool/pool_checks.h"
#include "tenor/pool.h"

namespace tenor {
namespace {

using core::OpClass;
using core::Step;
using pool::Function;
using pool::PoolSpace;

constexpr const char* kFormula = "x[N, C, *S] -> (sum |x|^p)^(1/p) of each window";
constexpr const char* kGradient = "grad_output, x -> sum over windows of grad_output * sign(x) * (|x| / norm)^(p - 1)";

const core::OpRegistration kOps({
    {"lp_pool1d", "pool", OpClass::kReduction, kFormula},
    {"lp_pool2d", "pool", OpClass::kReduction, kFormula},
    {"lp_pool3d", "pool", OpClass::kReduction, kFormula},
    {"lp_pool1d_backward", "pool", OpClass::kReduction, kGradient},
    {"lp_pool2d_backward", "pool", OpClass::kReduction, kGradient},
    {"lp_pool3d_backward", "pool", OpClass::kReduction, kGradient},
});

void run_lp(const pool::Problem& p, double norm_type, const Tensor& x, const Tensor& y, const Tensor& places) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) return cuda::lp_pool(p, norm_type, x, y, places);
  }
  cpu::lp_pool(p, norm_type, x, y, places);
}

PoolSpace check_lp(Function f, const Tensor& x, double norm_type, const Dims& kernel_size, const LpPoolOptions& o) {
  core::check_float(f.op, {"x", x});
  if (!(norm_type > 0)) core::fail<ValueError>("{}: norm_type must be > 0, got {}", f.op, norm_type);
  return pool::windows_of(f, "x", x.shape(), {kernel_size, o.stride, {0}, {1}, o.ceil_mode});
}

/// One power an element, and a root a window.
core::Work work_of(double norm_type, int64_t flops, const Tensor& y) {
  const bool plain = norm_type == 1 || norm_type == 2 || std::isinf(norm_type);
  return {.exponentials = plain ? 0 : core::count_sum(flops, y.numel()), .divisions = flops};
}

Tensor lp_pool(Function f, const Tensor& x, double norm_type, const Dims& kernel_size, const LpPoolOptions& o) {
  const PoolSpace space = check_lp(f, x, norm_type, kernel_size, o);
  return pool::one_result(
      f, o.out, pool::pooled_shape(f, x.shape(), space), x, {&x},
      [&](const Tensor& y) {
        const int64_t flops = pool::flops_of(space, x, y);
        return Step{f.op, OpClass::kReduction, {x}, {y}, flops}
            .with(work_of(norm_type, flops, y))
            .with(core::recipe([f, norm_type, kernel_size, o](const auto& in, const auto& outs) {
              LpPoolOptions again = o;
              again.out = outs[0];
              lp_pool(f, in[0], norm_type, kernel_size, again);
            }));
      },
      [&](const Tensor& y) { run_lp(pool::problem_of(f, space, x, y), norm_type, x, y, {}); });
}

void run_lp_backward(const pool::Problem& p, double norm_type, const Tensor& grad, const Tensor& x, const Tensor& norms,
                     const Tensor& places, const Tensor& dx) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) return cuda::lp_pool_backward(p, norm_type, grad, x, norms, places, dx);
  }
  cpu::lp_pool_backward(p, norm_type, grad, x, norms, places, dx);
}

Tensor lp_pool_backward(Function f, const Tensor& grad, const Tensor& x, double norm_type, const Dims& kernel_size,
                        const LpPoolOptions& o) {
  core::check_float(f.op, {"grad_output", grad});
  const PoolSpace space = check_lp(f, x, norm_type, kernel_size, o);
  core::check_same_dtype(f.op, {"grad_output", grad}, {"x", x});
  core::check_same_device(f.op, {{"grad_output", grad}, {"x", x}});
  core::check_shape(f.op, {"grad_output", grad}, pool::pooled_shape(f, x.shape(), space));
  return pool::one_result(
      f, o.out, x.shape(), grad, {&grad, &x},
      [&](const Tensor& dx) {
        const int64_t flops = core::count_product(2, pool::flops_of(space, x, grad));
        return Step{f.op, OpClass::kReduction, {grad, x}, {dx}, flops}
            .with(work_of(norm_type, flops, grad))
            .with(core::recipe([f, norm_type, kernel_size, o](const auto& in, const auto& outs) {
              LpPoolOptions again = o;
              again.out = outs[0];
              lp_pool_backward(f, in[0], in[1], norm_type, kernel_size, again);
            }));
      },
      [&](const Tensor& dx) {
        const Tensor norms = Tensor::empty(grad.shape(), compute_dtype(x.dtype()), x.device());
        const Tensor places = std::isinf(norm_type) ? Tensor::empty(grad.shape(), int64, x.device()) : Tensor();
        run_lp(pool::problem_of(f, space, x, norms), norm_type, x, norms, places);
        run_lp_backward(pool::problem_of(f, space, dx, grad, x), norm_type, grad, x, norms, places, dx);
      });
}

}  // namespace

Tensor lp_pool1d(const Tensor& x, double norm_type, const Dims& kernel_size, const LpPoolOptions& options) {
  return lp_pool({"lp_pool1d", 1}, x, norm_type, kernel_size, options);
}
Tensor lp_pool2d(const Tensor& x, double norm_type, const Dims& kernel_size, const LpPoolOptions& options) {
  return lp_pool({"lp_pool2d", 2}, x, norm_type, kernel_size, options);
}
Tensor lp_pool3d(const Tensor& x, double norm_type, const Dims& kernel_size, const LpPoolOptions& options) {
  return lp_pool({"lp_pool3d", 3}, x, norm_type, kernel_size, options);
}
Tensor lp_pool1d_backward(const Tensor& grad_output, const Tensor& x, double norm_type, const Dims& kernel_size,
                          const LpPoolOptions& options) {
  return lp_pool_backward({"lp_pool1d_backward", 1}, grad_output, x, norm_type, kernel_size, options);
}
Tensor lp_pool2d_backward(const Tensor& grad_output, const Tensor& x, double norm_type, const Dims& kernel_size,
                          const LpPoolOptions& options) {
  return lp_pool_backward({"lp_pool2d_backward", 2}, grad_output, x, norm_type, kernel_size, options);
}
Tensor lp_pool3d_backward(const Tensor& grad_output, const Tensor& x, double norm_type, const Dims& kernel_size,
                          const LpPoolOptions& options) {
  return lp_pool_backward({"lp_pool3d_backward", 3}, grad_output, x, norm_type, kernel_size, options);
}

}  // namespace tenor
