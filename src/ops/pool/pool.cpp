// Contracts of the pooling forwards.
#include "tenor/pool.h"

#include "src/core/backend.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/ops/pool/pool_checks.h"
#include "tenor/reduce.h"

namespace tenor {
namespace {

using core::fail;
using core::OpClass;
using core::Output;
using core::Step;
using core::StepScope;
using pool::Function;
using pool::PoolSpace;

constexpr const char* kMaxFormula = "x[N, C, *S] -> the largest of each window, and its place in the plane";
constexpr const char* kAvgFormula = "x[N, C, *S] -> sum of each window / its elements";
constexpr const char* kAdaptiveMaxFormula = "x[N, C, *S] -> the largest of each bin, and its place in the plane";
constexpr const char* kAdaptiveAvgFormula = "x[N, C, *S] -> the mean of each bin";

const core::OpRegistration kOps({
    {"max_pool1d", "pool", OpClass::kReduction, kMaxFormula},
    {"max_pool2d", "pool", OpClass::kReduction, kMaxFormula},
    {"max_pool3d", "pool", OpClass::kReduction, kMaxFormula},
    {"avg_pool1d", "pool", OpClass::kReduction, kAvgFormula},
    {"avg_pool2d", "pool", OpClass::kReduction, kAvgFormula},
    {"avg_pool3d", "pool", OpClass::kReduction, kAvgFormula},
    {"adaptive_max_pool1d", "pool", OpClass::kReduction, kAdaptiveMaxFormula},
    {"adaptive_max_pool2d", "pool", OpClass::kReduction, kAdaptiveMaxFormula},
    {"adaptive_max_pool3d", "pool", OpClass::kReduction, kAdaptiveMaxFormula},
    {"adaptive_avg_pool1d", "pool", OpClass::kReduction, kAdaptiveAvgFormula},
    {"adaptive_avg_pool2d", "pool", OpClass::kReduction, kAdaptiveAvgFormula},
    {"adaptive_avg_pool3d", "pool", OpClass::kReduction, kAdaptiveAvgFormula},
});

Step step_of(Function f, const PoolSpace& space, const Tensor& x, std::vector<Tensor> results) {
  const int64_t flops = pool::flops_of(space, x, results[0]);
  return {f.op, OpClass::kReduction, {x}, std::move(results), flops};
}

void run_max(const pool::Problem& p, const Tensor& x, const Tensor& values, const Tensor& indices) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) return cuda::max_pool(p, x, values, indices);
  }
  cpu::max_pool(p, x, values, indices);
}

void run_avg(const pool::Problem& p, const pool::PoolDivisor& divisor, const Tensor& x, const Tensor& y) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) return cuda::avg_pool(p, divisor, x, y);
  }
  cpu::avg_pool(p, divisor, x, y);
}

/// Kernels of this family for one output a plane; false where the reduction's serve.
bool run_planes(const pool::Problem& p, const Tensor& x, const Tensor& y, bool largest) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) return largest ? cuda::max_planes(p, x, y) : cuda::mean_planes(p, x, y);
  }
  return false;
}

void check_outs(Function f, bool return_indices, const MaxPoolResult& given) {
  if (given.indices.defined() && !return_indices)
    fail<ValueError>("{}: out has indices, but return_indices is off", f.op);
  if (return_indices && given.values.defined() != given.indices.defined())
    fail<ValueError>("{}: out= needs both values and indices", f.op);
}

/// Without places; one output a plane is a reduction of the tree's own.
Tensor largest(Function f, const Tensor& x, const PoolSpace& space, const Tensor& given) {
  return pool::one_result(
      f, given, pool::pooled_shape(f, x.shape(), space), x, {&x},
      [&](const Tensor& y) {
        return step_of(f, space, x, {y}).with(core::recipe([f, space](const auto& in, const auto& outs) {
          largest(f, in[0], space, outs[0]);
        }));
      },
      [&](const Tensor& y) {
        const pool::Problem problem = pool::problem_of(f, space, x, y);
        if (!pool::is_global(space)) return run_max(problem, x, y, {});
        if (!run_planes(problem, x, y, true)) amax(x, {.dim = pool::spatial_dims(f), .keepdim = true, .out = y});
      });
}

MaxPoolResult largest_and_places(Function f, const Tensor& x, const PoolSpace& space, const MaxPoolResult& given) {
  const Dims shape = pool::pooled_shape(f, x.shape(), space);
  Output values(f.op, given.values, shape, x.dtype(), x, {&x}, {.argument = "out.values", .cuda = core::kHasCuda});
  Output places(f.op, given.indices, shape, int64, x, {&x}, {.argument = "out.indices", .cuda = core::kHasCuda});
  core::check_distinct_outputs(f.op, {&given.values, &given.indices});
  StepScope step([&] {
    return step_of(f, space, x, {values.target(), places.target()})
        .with(core::recipe([f, space](const auto& in, const auto& outs) {
          largest_and_places(f, in[0], space, {outs[0], outs[1]});
        }));
  });
  if (step.shape_only(values.target())) return {values.target(), places.target()};
  if (values.target().numel() > 0)
    run_max(pool::problem_of(f, space, x, values.target(), places.target()), x, values.target(), places.target());
  return {values.finish(), places.finish()};
}

MaxPoolResult max_over(Function f, const Tensor& x, const PoolSpace& space, bool return_indices,
                       const MaxPoolResult& given) {
  check_outs(f, return_indices, given);
  if (return_indices) return largest_and_places(f, x, space, given);
  return {largest(f, x, space, given.values), {}};
}

MaxPoolResult max_pool(Function f, const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& o) {
  pool::check_numbers(f, {"x", x});
  const PoolSpace space =
      pool::windows_of(f, "x", x.shape(), {kernel_size, o.stride, o.padding, o.dilation, o.ceil_mode});
  return max_over(f, x, space, o.return_indices, o.out);
}

MaxPoolResult adaptive_max_pool(Function f, const Tensor& x, const Dims& size, const AdaptiveMaxPoolOptions& o) {
  pool::check_numbers(f, {"x", x});
  pool::check_image(f, "x", x.shape());
  return max_over(f, x, pool::bins_of(f, x.shape(), size), o.return_indices, o.out);
}

Tensor average(Function f, const Tensor& x, const PoolSpace& space, const pool::PoolDivisor& divisor,
               const Tensor& given) {
  return pool::one_result(
      f, given, pool::pooled_shape(f, x.shape(), space), x, {&x},
      [&](const Tensor& y) {
        return step_of(f, space, x, {y}).with(core::recipe([f, space, divisor](const auto& in, const auto& outs) {
          average(f, in[0], space, divisor, outs[0]);
        }));
      },
      [&](const Tensor& y) {
        const pool::Problem problem = pool::problem_of(f, space, x, y);
        if (!pool::is_mean(space, divisor)) return run_avg(problem, divisor, x, y);
        if (!run_planes(problem, x, y, false)) mean(x, {.dim = pool::spatial_dims(f), .keepdim = true, .out = y});
      });
}

Tensor avg_pool(Function f, const Tensor& x, const Dims& kernel_size, const AvgPoolOptions& o) {
  core::check_float(f.op, {"x", x});
  const PoolSpace space = pool::windows_of(f, "x", x.shape(), pool::average_windows(kernel_size, o));
  return average(f, x, space, pool::divisor_of(f, o), o.out);
}

Tensor adaptive_avg_pool(Function f, const Tensor& x, const Dims& size, const AdaptivePoolOptions& o) {
  core::check_float(f.op, {"x", x});
  pool::check_image(f, "x", x.shape());
  return average(f, x, pool::bins_of(f, x.shape(), size), {}, o.out);
}

}  // namespace

MaxPoolResult max_pool1d(const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& options) {
  return max_pool({"max_pool1d", 1}, x, kernel_size, options);
}
MaxPoolResult max_pool2d(const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& options) {
  return max_pool({"max_pool2d", 2}, x, kernel_size, options);
}
MaxPoolResult max_pool3d(const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& options) {
  return max_pool({"max_pool3d", 3}, x, kernel_size, options);
}
MaxPoolResult adaptive_max_pool1d(const Tensor& x, const Dims& output_size, const AdaptiveMaxPoolOptions& options) {
  return adaptive_max_pool({"adaptive_max_pool1d", 1}, x, output_size, options);
}
MaxPoolResult adaptive_max_pool2d(const Tensor& x, const Dims& output_size, const AdaptiveMaxPoolOptions& options) {
  return adaptive_max_pool({"adaptive_max_pool2d", 2}, x, output_size, options);
}
MaxPoolResult adaptive_max_pool3d(const Tensor& x, const Dims& output_size, const AdaptiveMaxPoolOptions& options) {
  return adaptive_max_pool({"adaptive_max_pool3d", 3}, x, output_size, options);
}
Tensor avg_pool1d(const Tensor& x, const Dims& kernel_size, const AvgPoolOptions& options) {
  return avg_pool({"avg_pool1d", 1}, x, kernel_size, options);
}
Tensor avg_pool2d(const Tensor& x, const Dims& kernel_size, const AvgPoolOptions& options) {
  return avg_pool({"avg_pool2d", 2}, x, kernel_size, options);
}
Tensor avg_pool3d(const Tensor& x, const Dims& kernel_size, const AvgPoolOptions& options) {
  return avg_pool({"avg_pool3d", 3}, x, kernel_size, options);
}
Tensor adaptive_avg_pool1d(const Tensor& x, const Dims& output_size, const AdaptivePoolOptions& options) {
  return adaptive_avg_pool({"adaptive_avg_pool1d", 1}, x, output_size, options);
}
Tensor adaptive_avg_pool2d(const Tensor& x, const Dims& output_size, const AdaptivePoolOptions& options) {
  return adaptive_avg_pool({"adaptive_avg_pool2d", 2}, x, output_size, options);
}
Tensor adaptive_avg_pool3d(const Tensor& x, const Dims& output_size, const AdaptivePoolOptions& options) {
  return adaptive_avg_pool({"adaptive_avg_pool3d", 3}, x, output_size, options);
}

}  // namespace tenor
