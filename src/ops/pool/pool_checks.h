// What the contracts of this family check, and how they see their tensors.
#pragma once

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/output.h"
#include "src/core/step.h"
#include "src/ops/pool/pool_kernels.h"
#include "tenor/pool.h"

namespace tenor::pool {

/// The function called: its name for error texts and its number of spatial dims.
struct Function {
  const char* op;
  int dims;
};

/// The options of a sliding window as the caller gave them.
struct WindowOptions {
  const Dims& kernel_size;
  const Dims& stride;  ///< empty: kernel_size
  Dims padding = {0};
  Dims dilation = {1};
  bool ceil_mode = false;
};

/// @throws ShapeError unless `shape` has one dim or two before its spatial dims, and no spatial dim is empty.
void check_image(Function f, const char* argument, const Dims& shape);
/// @throws DTypeError for bool and 8-bit floats.
void check_numbers(Function f, core::Named x);
/// @throws ShapeError unless `shape` is grad_output's but for the spatial dims.
void check_input_shape(Function f, const Dims& shape, const Tensor& grad);

/// The windows of an image. @throws ValueError for an option, ShapeError where none fits.
PoolSpace windows_of(Function f, const char* argument, const Dims& shape, const WindowOptions& options);
/// Bins of an image. @throws ValueError for a size below 1
PoolSpace bins_of(Function f, const Dims& shape, const Dims& output_size);

/// `shape` with the outputs of `space` as its spatial dims.
Dims pooled_shape(Function f, const Dims& shape, const PoolSpace& space);
/// A tensor as [N, C, D, H, W].
PoolGrid grid_of(Function f, const Tensor& x);
/// A whole plane is read by its only output, and nothing else counts.
bool is_global(const PoolSpace& space);
bool is_mean(const PoolSpace& space, const PoolDivisor& divisor);
/// Elements read for one output at most, and FLOPs of all outputs.
int64_t flops_of(const PoolSpace& space, const Tensor& image, const Tensor& windows);
/// The dims -dims..-1.
Dims spatial_dims(Function f);

/// avg_pool's options, for its gradient too. @throws ValueError for a divisor_override of 0
PoolDivisor divisor_of(Function f, const AvgPoolOptions& options);
inline WindowOptions average_windows(const Dims& kernel_size, const AvgPoolOptions& o) {
  return {kernel_size, o.stride, o.padding, {1}, o.ceil_mode};
}

inline Problem problem_of(Function f, const PoolSpace& space, const Tensor& image, const Tensor& windows,
                          const Tensor& other = {}) {
  return {f.op, space, grid_of(f, image), grid_of(f, windows), other.defined() ? grid_of(f, other) : PoolGrid()};
}

/// A result of one tensor, of `like`'s dtype: made or the caller's, recorded as the step that `step_of(result)` says,
/// and written by `run(result)` unless it is empty or its shape alone is asked for.
template <class StepOf, class Run>
Tensor one_result(Function f, const Tensor& given, const Dims& shape, const Tensor& like,
                  std::initializer_list<const Tensor*> inputs, StepOf step_of, Run run) {
  core::Output out(f.op, given, shape, like.dtype(), like, inputs, {.cuda = core::kHasCuda});
  core::StepScope step([&] { return step_of(out.target()); });
  if (step.shape_only(out.target())) return out.target();
  if (out.target().numel() > 0) run(out.target());
  return out.finish();
}

}  // namespace tenor::pool
