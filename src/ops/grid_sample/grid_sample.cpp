// Contract of grid_sample, its gradients and affine_grid.
#include "tenor/grid_sample.h"

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/ops/grid_sample/grid_sample_cuda.h"
#include "src/ops/grid_sample/grid_sample_kernels.h"

namespace tenor {
namespace {

using core::fail;
using core::OpClass;
using core::Output;
using core::Step;
using core::StepScope;

const core::OpRegistration kOps({
    {"grid_sample", "grid_sample", OpClass::kIndex,
     "x[N, C, H, W], grid[N, Ho, Wo, 2] -> [N, C, Ho, Wo]: x at the grid's places; 3-D likewise"},
    {"grid_sample_backward", "grid_sample", OpClass::kIndex, "grad_output, x, grid -> grad_x, grad_grid"},
    {"affine_grid", "grid_sample", OpClass::kContraction,
     "theta[N, 2, 3], size -> [N, H, W, 2]: theta (x, y, 1) at the pixels' places; 3-D likewise"},
});

core::GridMode mode_of(const char* op, const std::string& mode) {
  if (mode == "bilinear") return core::GridMode::kBilinear;
  if (mode == "nearest") return core::GridMode::kNearest;
  if (mode == "bicubic") return core::GridMode::kBicubic;
  fail<ValueError>("{}: mode must be 'bilinear', 'nearest' or 'bicubic', got '{}'", op, mode);
}
core::GridPadding padding_of(const char* op, const std::string& padding) {
  if (padding == "zeros") return core::GridPadding::kZeros;
  if (padding == "border") return core::GridPadding::kBorder;
  if (padding == "reflection") return core::GridPadding::kReflection;
  fail<ValueError>("{}: padding_mode must be 'zeros', 'border' or 'reflection', got '{}'", op, padding);
}

void check_images(const char* op, const Tensor& x, const Tensor& grid) {
  if (x.ndim() != 4 && x.ndim() != 5)
    fail<ShapeError>("{}: x must be [N, C, H, W] or [N, C, D, H, W], got {}", op, x.shape());
  for (int d = 2; d < x.ndim(); ++d)
    if (x.shape(d) == 0) fail<ShapeError>("{}: x must hold images that are not empty, got {}", op, x.shape());
  const int dims = x.ndim() - 2;
  if (grid.ndim() != x.ndim() || grid.shape(0) != x.shape(0) || grid.shape(-1) != dims)
    fail<ShapeError>("{}: grid must have shape ({}, {}, {}) for x {}, got {}", op, x.shape(0),
                     dims == 2 ? "Ho, Wo" : "Do, Ho, Wo", dims, x.shape(), grid.shape());
}

void check_dtypes(const char* op, const Tensor& x, const Tensor& grid) {
  core::check_float(op, {"x", x});
  core::check_given(op, {"grid", grid});
  if (grid.dtype() != x.dtype() && grid.dtype() != float32)
    fail<DTypeError>("{}: grid must be float32 or x's dtype {}, got {}", op, x.dtype(), grid.dtype());
  core::check_same_device(op, {{"x", x}, {"grid", grid}});
}

Dims sampled_shape(const Tensor& x, const Tensor& grid) {
  Dims shape{x.shape(0), x.shape(1)};
  for (int d = 1; d + 1 < grid.ndim(); ++d) shape.push_back(grid.shape(d));
  return shape;
}

/// With a dim of size 1 before the spatial ones, at `at`, for images of two dims.
Tensor with_depth(const Tensor& x, size_t at) {
  if (x.ndim() == 5) return x;
  Dims shape, strides;
  for (size_t d = 0; d < 4; ++d) {
    if (d == at) shape.push_back(1), strides.push_back(0);
    shape.push_back(x.shape()[d]);
    strides.push_back(x.strides()[d]);
  }
  return x.with_layout(shape, strides, x.offset());
}

template <class Options>
GridSampling sampling_of(const char* op, const Tensor& x, const Tensor& grid, const Options& o) {
  check_dtypes(op, x, grid);
  const core::GridMode mode = mode_of(op, o.mode);
  const core::GridPadding padding = padding_of(op, o.padding_mode);
  check_images(op, x, grid);
  if (mode == core::GridMode::kBicubic && x.ndim() == 5)
    fail<UnsupportedError>("{}: mode 'bicubic' samples images of two dims only; 'bilinear' and 'nearest' also of three",
                           op);
  return {op, with_depth(x, 2), with_depth(grid, 1), {}, x.ndim() - 2, mode, padding, o.align_corners};
}

void run(const GridSampling& s) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(s.x)) return cuda::grid_sample(s);
  }
  cpu::grid_sample(s);
}
void run_backward(const GridSampling& s, const Tensor& grad_x, const Tensor& grad_grid) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(s.x)) return cuda::grid_sample_backward(s, grad_x, grad_grid);
  }
  cpu::grid_sample_backward(s, grad_x, grad_grid);
}

/// theta's shape, and the size's entries.
void check_affine(const Tensor& theta, const Dims& size) {
  constexpr const char* kOp = "affine_grid";
  core::check_float(kOp, {"theta", theta});
  if (size.size() != 4 && size.size() != 5)
    fail<ShapeError>("{}: size must be (N, C, H, W) or (N, C, D, H, W), got {}", kOp, size);
  for (size_t d = 0; d < size.size(); ++d)
    if (size[d] < (d < 2 ? 0 : 1)) fail<ShapeError>("{}: size must hold an image that is not empty, got {}", kOp, size);
  const auto dims = static_cast<int64_t>(size.size()) - 2;
  core::check_shape(kOp, {"theta", theta}, {size[0], dims, dims + 1});
}

}  // namespace

Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& o) {
  constexpr const char* kOp = "grid_sample";
  GridSampling s = sampling_of(kOp, x, grid, o);
  Output out(kOp, o.out, sampled_shape(x, grid), x.dtype(), x, {&x, &grid}, {.cuda = core::kHasCuda});
  StepScope step([&] {
    return Step{kOp, OpClass::kIndex, {x, grid}, {out.target()}}.with(
        core::recipe([o](const auto& in, const auto& outs) {
          GridSampleOptions again = o;
          again.out = outs[0];
          grid_sample(in[0], in[1], again);
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  s.y = with_depth(out.target(), 2);
  run(s);
  return out.finish();
}

GridSampleGradients grid_sample_backward(const Tensor& grad_output, const Tensor& x, const Tensor& grid,
                                         const GridSampleBackwardOptions& o) {
  constexpr const char* kOp = "grid_sample_backward";
  core::check_float(kOp, {"grad_output", grad_output});
  GridSampling s = sampling_of(kOp, x, grid, o);
  core::check_same_dtype(kOp, {"x", x}, {"grad_output", grad_output});
  core::check_same_device(kOp, {{"x", x}, {"grad_output", grad_output}});
  core::check_shape(kOp, {"grad_output", grad_output}, sampled_shape(x, grid));
  core::check_distinct_outputs(kOp, {&o.out.grad_x, &o.out.grad_grid});
  Output grad_x(kOp, o.out.grad_x, x.shape(), x.dtype(), x, {&grad_output, &x, &grid},
                {.argument = "out.grad_x", .cuda = core::kHasCuda});
  Output grad_grid(kOp, o.out.grad_grid, grid.shape(), grid.dtype(), grid, {&grad_output, &x, &grid},
                   {.argument = "out.grad_grid", .cuda = core::kHasCuda});
  StepScope step([&] {
    return Step{kOp, OpClass::kIndex, {grad_output, x, grid}, {grad_x.target(), grad_grid.target()}}.with(
        core::recipe([o](const auto& in, const auto& outs) {
          GridSampleBackwardOptions again = o;
          again.out = {outs[0], outs[1]};
          grid_sample_backward(in[0], in[1], in[2], again);
        }));
  });
  if (step.shape_only(grad_x.target())) return {grad_x.target(), grad_grid.target()};
  s.y = with_depth(grad_output, 2);
  run_backward(s, with_depth(grad_x.target(), 2), with_depth(grad_grid.target(), 1));
  return {grad_x.finish(), grad_grid.finish()};
}

Tensor affine_grid(const Tensor& theta, const Dims& size, const AffineGridOptions& o) {
  constexpr const char* kOp = "affine_grid";
  core::check_given(kOp, {"theta", theta});
  check_affine(theta, size);
  Dims shape{size[0]};
  for (size_t d = 2; d < size.size(); ++d) shape.push_back(size[d]);
  const auto dims = static_cast<int64_t>(size.size()) - 2;
  shape.push_back(dims);
  Output out(kOp, o.out, shape, theta.dtype(), theta, {&theta}, {.cuda = core::kHasCuda});
  StepScope step([&] {
    return Step{kOp, OpClass::kContraction, {theta}, {out.target()}, core::count_product(2 * dims, product(shape))}
        .with(core::recipe([size, o](const auto& in, const auto& outs) {
          AffineGridOptions again = o;
          again.out = outs[0];
          affine_grid(in[0], size, again);
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  const Tensor target = with_depth(out.target(), 1);
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(theta)) {
      cuda::affine_grid(theta, target, o.align_corners);
      return out.finish();
    }
  }
  cpu::affine_grid(theta, target, o.align_corners);
  return out.finish();
}

}  // namespace tenor
