// empty, zeros, ones, full and their _like forms; arange, linspace, eye.
#include "tenor/create.h"

#include <cmath>

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/numeric.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/scalar_value.h"
#include "src/core/step.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/create/create_cuda.h"
#include "src/ops/elementwise/elementwise_recipe.h"

namespace tenor {
namespace {

using core::check_given;
using core::fail;
using core::OpClass;
using core::Output;
using core::Step;

const core::OpRegistration kOps({
    {"empty", "create", OpClass::kElementwise, "[*shape], contents undefined"},
    {"zeros", "create", OpClass::kElementwise, "[*shape] of 0"},
    {"ones", "create", OpClass::kElementwise, "[*shape] of 1"},
    {"full", "create", OpClass::kElementwise, "[*shape] of one value"},
    {"empty_like", "create", OpClass::kElementwise, "empty of x's shape, dtype and device"},
    {"zeros_like", "create", OpClass::kElementwise, "zeros of x's shape, dtype and device"},
    {"ones_like", "create", OpClass::kElementwise, "ones of x's shape, dtype and device"},
    {"full_like", "create", OpClass::kElementwise, "full of x's shape, dtype and device"},
    {"arange", "create", OpClass::kElementwise, "[ceil((end - start) / step)]: start + i * step"},
    {"linspace", "create", OpClass::kElementwise, "[steps]: from start to end, both included"},
    {"eye", "create", OpClass::kElementwise, "[n, m]: 1 on the main diagonal"},
});

DType dtype_for(const CreateOptions& options, DType fallback) {
  return options.dtype.value_or(options.out.defined() ? options.out.dtype() : fallback);
}

/// out=, or new memory.
Output target_of(const char* op, const Dims& shape, DType dtype, const CreateOptions& options) {
  for (int64_t size : shape)
    if (size < 0) fail<ShapeError>("{}: sizes must be >= 0, got {}", op, shape);
  const Tensor given =
      options.out.defined() ? options.out : Tensor::empty(shape, dtype, core::traced_device(options.device));
  return Output(op, given, shape, dtype, {}, {}, {.cuda = core::kHasCuda});
}

/// As target_of, in x's shape and dimension order.
Output target_like(const char* op, const Tensor& x, DType dtype, const LikeOptions& options) {
  constexpr core::OutputRules kRules{.cuda = core::kHasCuda};
  if (options.out.defined()) return Output(op, options.out, x.shape(), dtype, {}, {}, kRules);
  const Device device = core::traced_device(options.device.value_or(x.device()));
  const Tensor fresh = Tensor::empty(x.shape(), dtype, device, core::result_strides(x.shape(), x));
  return Output(op, fresh, x.shape(), dtype, {}, {}, kRules);
}

/// Runs write(target) where there is memory, and states the step.
template <class F>
Tensor written(const char* op, Output out, F write, std::shared_ptr<const core::Recipe> recipe = {}) {
  core::StepScope step([&] {
    return Step{op, OpClass::kElementwise, {}, {out.target()}, out.target().numel()}
        .with({.as_bits = true})
        .with(recipe ? std::move(recipe) : core::recipe([write](const auto&, const auto& outs) { write(outs[0]); }));
  });
  if (!step.shape_only(out.target())) write(out.target());
  return out.finish();
}

/// Every element of the target = value, one element on the CPU.
void fill(const Tensor& target, const Tensor& value) {
  if (core::on_cuda(target)) return core::backend(target.device()).fill(target, value.raw());
  core::copy_into(value.with_layout(target.shape(), Dims(target.shape().size(), 0), value.offset()), target);
}

/// Made only where somebody listens.
std::shared_ptr<const core::Recipe> fill_recipe(const Tensor& value) {
  return core::current_tracer ? std::make_shared<elementwise::Fill>(value.raw(), value.dtype()) : nullptr;
}

Tensor filled(const char* op, const Dims& shape, const Scalar& value, DType fallback, const CreateOptions& options) {
  const DType dtype = dtype_for(options, fallback);
  const Tensor one = core::scalar_tensor(op, "fill_value", value, dtype, kCpu);
  return written(
      op, target_of(op, shape, dtype, options), [&](const Tensor& target) { fill(target, one); }, fill_recipe(one));
}

Tensor filled_like(const char* op, const Tensor& x, const Scalar& value, const LikeOptions& options) {
  check_given(op, {"x", x});
  const DType dtype = options.dtype.value_or(x.dtype());
  const Tensor one = core::scalar_tensor(op, "fill_value", value, dtype, kCpu);
  return written(
      op, target_like(op, x, dtype, options), [&](const Tensor& target) { fill(target, one); }, fill_recipe(one));
}

DType dtype_of(const Scalar& value) { return value.is_float() ? float32 : value.is_bool() ? boolean : int64; }

/// target[i] = value(i), converted once.
template <class Fn>
void generate(const Tensor& target, Fn value) {
  core::visit(target.dtype(), [&]<class T>() {
    T* to = target.data<T>();
    const int64_t stride = target.stride(0);
    cpu::parallel_for(target.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i * stride] = core::cast<T>(value(i));
    });
  });
}

void check_finite(const char* op, const char* argument, const Scalar& value) {
  if (!std::isfinite(value.as_double()))
    fail<ValueError>("{}: {} must be finite, got {}", op, argument, value.as_double());
}

/// An integer scalar's value.
__int128 exact(const Scalar& value) {
  if (value.kind() == Scalar::Kind::kUInt) return static_cast<uint64_t>(value.as_int());
  return value.as_int();
}

int64_t arange_count(const Scalar& start, const Scalar& end, const Scalar& step) {
  const char* op = "arange";
  check_finite(op, "start", start);
  check_finite(op, "end", end);
  check_finite(op, "step", step);
  const double from = start.as_double(), to = end.as_double(), by = step.as_double();
  if (by == 0) fail<ValueError>("{}: step must not be 0", op);
  if ((by > 0 && from > to) || (by < 0 && from < to))
    fail<ValueError>("{}: step {} leads away from end {}, starting at {}", op, by, to, from);
  if (start.is_float() || end.is_float() || step.is_float()) {
    const double count = std::ceil((to - from) / by);
    if (count > 9e18) fail<ValueError>("{}: {} values are too many", op, count);
    return static_cast<int64_t>(count);
  }
  const __int128 stride = exact(step), count = (exact(end) - exact(start) + stride - (stride > 0 ? 1 : -1)) / stride;
  if (count > INT64_MAX) fail<ValueError>("{}: {} values are too many", op, static_cast<double>(count));
  return static_cast<int64_t>(count);
}

}  // namespace

Tensor empty(const Dims& shape, const CreateOptions& options) {
  return written("empty", target_of("empty", shape, dtype_for(options, float32), options), [](const Tensor&) {});
}
Tensor zeros(const Dims& shape, const CreateOptions& options) { return filled("zeros", shape, 0, float32, options); }
Tensor ones(const Dims& shape, const CreateOptions& options) { return filled("ones", shape, 1, float32, options); }
Tensor full(const Dims& shape, const Scalar& value, const CreateOptions& options) {
  return filled("full", shape, value, dtype_of(value), options);
}

Tensor empty_like(const Tensor& x, const LikeOptions& options) {
  check_given("empty_like", {"x", x});
  return written("empty_like", target_like("empty_like", x, options.dtype.value_or(x.dtype()), options),
                 [](const Tensor&) {});
}
Tensor zeros_like(const Tensor& x, const LikeOptions& options) { return filled_like("zeros_like", x, 0, options); }
Tensor ones_like(const Tensor& x, const LikeOptions& options) { return filled_like("ones_like", x, 1, options); }
Tensor full_like(const Tensor& x, const Scalar& value, const LikeOptions& options) {
  return filled_like("full_like", x, value, options);
}

Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, const CreateOptions& options) {
  const char* op = "arange";
  const int64_t count = arange_count(start, end, step);
  const bool floats = start.is_float() || end.is_float() || step.is_float();
  const DType dtype = dtype_for(options, floats ? float32 : int64);
  if (count > 0 && !floats) {
    core::check_fits(op, "start", start, dtype);
    const __int128 last = exact(start) + (count - 1) * exact(step);
    core::check_fits(op, "the last value",
                     last > INT64_MAX ? Scalar(static_cast<uint64_t>(last)) : Scalar(static_cast<int64_t>(last)),
                     dtype);
  }
  return written(op, target_of(op, {count}, dtype, options), [=](const Tensor& target) {
    if constexpr (core::kHasCuda) {
      if (core::on_cuda(target) && floats)
        return create::spaced_on_device(op, target, start.as_double(), step.as_double(), count, 0);
      if (core::on_cuda(target)) return create::arange_on_device(op, target, start.as_int(), step.as_int());
    }
    if (floats)
      return generate(
          target, [a = start.as_double(), b = step.as_double()](int64_t i) { return a + static_cast<double>(i) * b; });
    generate(target, [a = start.as_int(), b = step.as_int()](int64_t i) { return a + i * b; });
  });
}

Tensor linspace(const Scalar& start, const Scalar& end, int64_t steps, const CreateOptions& options) {
  const char* op = "linspace";
  if (steps < 0) fail<ValueError>("{}: steps must be >= 0, got {}", op, steps);
  const double from = start.as_double(), to = end.as_double(),
               by = steps > 1 ? (to - from) / static_cast<double>(steps - 1) : 0;
  return written(op, target_of(op, {steps}, dtype_for(options, float32), options), [=](const Tensor& target) {
    // From the nearer end, so that both ends are exact.
    if constexpr (core::kHasCuda) {
      if (core::on_cuda(target)) return create::spaced_on_device(op, target, from, by, (steps + 1) / 2, to);
    }
    generate(target, [=](int64_t i) {
      // The ends themselves, lest 0 times an infinite step be NaN.
      if (i == 0 || i == steps - 1) return i == 0 ? from : to;
      return i < (steps + 1) / 2 ? from + static_cast<double>(i) * by : to - static_cast<double>(steps - 1 - i) * by;
    });
  });
}

Tensor eye(int64_t n, std::optional<int64_t> m, const CreateOptions& options) {
  const char* op = "eye";
  const DType dtype = dtype_for(options, float32);
  return written(op, target_of(op, {n, m.value_or(n)}, dtype, options), [=](const Tensor& target) {
    fill(target, core::scalar_tensor(op, "value", 0, dtype, kCpu));
    const int64_t length = std::min(target.shape(0), target.shape(1));
    const Tensor diagonal = target.with_layout({length}, {target.stride(0) + target.stride(1)}, target.offset());
    fill(diagonal, core::scalar_tensor(op, "value", 1, dtype, kCpu));
  });
}

}  // namespace tenor
