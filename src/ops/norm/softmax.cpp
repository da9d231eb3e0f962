// Contract of softmax, log_softmax, softmax_last_axis and normalize.
#include "src/core/backend.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/core/traced_recipe.h"
#include "src/cpu/reduced_layout.h"
#include "src/ops/norm/norm_checks.h"
#include "src/ops/norm/norm_cuda.h"
#include "src/ops/norm/norm_kernels.h"
#include "tenor/norm.h"

namespace tenor {
namespace {

using core::fail;
using core::OpClass;
using core::Output;
using core::Step;
using core::StepScope;
using cpu::RowBlock;

const core::OpRegistration kOps({
    {"softmax", "norm", OpClass::kReduction, "exp(x - max) / sum(exp(x - max)) along dim"},
    {"log_softmax", "norm", OpClass::kReduction, "x - max - log(sum(exp(x - max))) along dim"},
    {"softmax_last_axis", "norm", OpClass::kReduction, "softmax over the last axis"},
    {"normalize", "norm", OpClass::kReduction, "x / max(norm_p(x), epsilon) along dim"},
});

/// Whether the columns of x and out along dim d lie side by side, enough of them, and few enough elements that a strip
/// of exponentials stays in cache.
bool has_strips(const cpu::ReducedLayout& layout, DType dtype) {
  const bool kept = item_size(dtype) == 2;
  return layout.reduced.size() == 1 && layout.reduced[0].in > 1 && layout.inner.in == 1 && layout.inner.out == 1 &&
         layout.inner.size >= 16 && (!kept || layout.count * 4 * cpu::kSoftmaxColumns <= 4 << 20);
}

void run_strips(const Tensor& x, const Tensor& out, int d, const cpu::ReducedLayout& layout, bool logarithm) {
  const auto item = static_cast<int64_t>(item_size(x.dtype()));
  const int64_t width = cpu::kSoftmaxColumns;
  cpu::parallel_for(
      cpu::segments(layout, width), cpu::grain_of(8 * width * layout.count * item), [&](int64_t begin, int64_t end) {
        std::vector<float> scratch(item == 2 && !logarithm ? static_cast<size_t>(layout.count * width) : 0);
        for (int64_t i = begin; i < end; ++i) {
          const cpu::Segment s = cpu::segment(layout, i, width);
          cpu::softmax_columns(
              {static_cast<const char*>(x.raw()) + s.in * item, static_cast<char*>(out.raw()) + s.out * item,
               x.stride(d), out.stride(d), layout.count, s.width, scratch.data()},
              x.dtype(), logarithm);
        }
      });
}

/// softmax or log_softmax where strips of columns can be taken as they lie; false elsewhere.
bool by_columns(const Tensor& x, int d, const Tensor& out, bool logarithm) {
  if (x.numel() == 0 || x.ndim() < 2) return false;
  const cpu::ReducedLayout layout = cpu::make_layout(x, {d}, out);
  if (!has_strips(layout, x.dtype())) return false;
  run_strips(x, out, d, layout, logarithm);
  return true;
}

constexpr auto kNoColumns = [](const Tensor&, int, const Tensor&) { return false; };

/// How an operator along a dim is computed.
struct AlongDim {
  cpu::FunctionRef<void(const RowBlock&)> rows;                  // dense rows on the CPU
  cpu::FunctionRef<void(const Tensor&, const Tensor&)> on_cuda;  // x and the result with that dim last
  cpu::FunctionRef<bool(const Tensor&, int, const Tensor&)> columns =
      kNoColumns;  // x, dim, result: false leaves it to rows
};

/// An operator over dim `dim` of x whose result has x's shape.
Tensor along_dim(const char* op, const Tensor& x, int64_t dim, const Tensor& given, const AlongDim& run,
                 const std::shared_ptr<const core::Recipe>& recipe) {
  const int d = core::normalize_dim(op, dim, x.ndim());
  Output out(op, given, x.shape(), x.dtype(), x, {&x}, {.elementwise = true, .cuda = core::kHasCuda});
  StepScope step([&] {
    return Step{op, OpClass::kReduction, {x}, {out.target()}, x.numel()}
        .with({.exponentials = x.numel(), .operations = core::count_product(3, x.numel())})
        .with(recipe);
  });
  if (step.shape_only(out.target())) return out.target();
  const Tensor from = cpu::dim_last(x, d);
  if (core::on_cuda(x)) {
    run.on_cuda(from, cpu::dim_last(out.target(), d));
    return out.finish();
  }
  if (run.columns(x, d, out.target())) return out.finish();
  cpu::RowWalk walk(from.shape(), 1);
  walk.read(from);
  walk.write(cpu::dim_last(out.target(), d));
  walk.run(run.rows);
  return out.finish();
}

Tensor softmax_along(const char* op, const Tensor& x, int64_t dim, const Tensor& given, bool logarithm) {
  const auto rows = [&](const RowBlock& block) {
    logarithm ? cpu::log_softmax_rows(block, x.dtype()) : cpu::softmax_rows(block, x.dtype());
  };
  const auto on_cuda = [&](const Tensor& from, const Tensor& to) {
    if constexpr (core::kHasCuda) cuda::softmax_rows(op, from, to, logarithm);
  };
  const auto columns = [&](const Tensor& from, int d, const Tensor& to) { return by_columns(from, d, to, logarithm); };
  const auto again = [=](const auto& in, const auto& outs) { softmax_along(op, in[0], dim, outs[0], logarithm); };
  return along_dim(op, x, dim, given, {rows, on_cuda, columns}, core::traced_recipe(again));
}

}  // namespace

Tensor softmax(const Tensor& x, const SoftmaxOptions& o) {
  core::check_float("softmax", {"x", x});
  return softmax_along("softmax", x, o.dim, o.out, false);
}

Tensor log_softmax(const Tensor& x, const SoftmaxOptions& o) {
  core::check_float("log_softmax", {"x", x});
  return softmax_along("log_softmax", x, o.dim, o.out, true);
}

Tensor softmax_last_axis(const Tensor& x, const SoftmaxLastAxisOptions& o) {
  core::check_float("softmax_last_axis", {"x", x});
  check_last_axis("softmax_last_axis", x);
  return softmax_along("softmax_last_axis", x, -1, o.out, false);
}

Tensor normalize(const Tensor& x, const NormalizeOptions& o) {
  core::check_float("normalize", {"x", x});
  if (std::isnan(o.p)) fail<ValueError>("normalize: p must be a number, got {}", o.p);
  if (!(std::isfinite(o.epsilon) && o.epsilon >= 0))
    fail<ValueError>("normalize: epsilon must be finite and >= 0, got {}", o.epsilon);
  const auto rows = [&](const RowBlock& block) { cpu::normalize_rows(block, x.dtype(), o.p, o.epsilon); };
  const auto on_cuda = [&](const Tensor& from, const Tensor& to) {
    if constexpr (core::kHasCuda) cuda::normalize_rows(from, to, o.p, o.epsilon);
  };
  const auto again = [o](const auto& in, const auto& outs) {
    NormalizeOptions options = o;
    options.out = outs[0];
    normalize(in[0], options);
  };
  return along_dim("normalize", x, o.dim, o.out, {rows, on_cuda}, core::traced_recipe(again));
}

}  // namespace tenor
