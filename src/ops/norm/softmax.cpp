// Contract of softmax, log_softmax, softmax_last_axis and normalize.
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/cpu/reduced_layout.h"
#include "src/ops/norm/norm_checks.h"
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

/// An operator over dim `dim` of x whose result has x's shape; columns(x, dim, out) may take it instead of the kernel.
Tensor along_dim(
    const char* op, const Tensor& x, int64_t dim, const Tensor& given, cpu::FunctionRef<void(const RowBlock&)> kernel,
    cpu::FunctionRef<bool(const Tensor&, int, const Tensor&)> columns = [](const Tensor&, int, const Tensor&) {
      return false;
    }) {
  const int d = core::normalize_dim(op, dim, x.ndim());
  Output out(op, given, x.shape(), x.dtype(), x, {&x}, {.elementwise = true});
  StepScope step([&] { return Step{op, OpClass::kReduction, {x}, {out.target()}, x.numel()}; });
  if (step.shape_only(out.target())) return out.target();
  if (columns(x, d, out.target())) return out.finish();
  const Tensor from = cpu::dim_last(x, d);
  cpu::RowWalk walk(from.shape(), 1);
  walk.read(from);
  walk.write(cpu::dim_last(out.target(), d));
  walk.run(kernel);
  return out.finish();
}

}  // namespace

Tensor softmax(const Tensor& x, const SoftmaxOptions& o) {
  core::check_float("softmax", {"x", x});
  return along_dim(
      "softmax", x, o.dim, o.out, [&](const RowBlock& block) { cpu::softmax_rows(block, x.dtype()); },
      [](const Tensor& from, int d, const Tensor& to) { return by_columns(from, d, to, false); });
}

Tensor log_softmax(const Tensor& x, const SoftmaxOptions& o) {
  core::check_float("log_softmax", {"x", x});
  return along_dim(
      "log_softmax", x, o.dim, o.out, [&](const RowBlock& block) { cpu::log_softmax_rows(block, x.dtype()); },
      [](const Tensor& from, int d, const Tensor& to) { return by_columns(from, d, to, true); });
}

Tensor softmax_last_axis(const Tensor& x, const SoftmaxLastAxisOptions& o) {
  core::check_float("softmax_last_axis", {"x", x});
  check_last_axis("softmax_last_axis", x);
  return along_dim("softmax_last_axis", x, -1, o.out,
                   [&](const RowBlock& block) { cpu::softmax_rows(block, x.dtype()); });
}

Tensor normalize(const Tensor& x, const NormalizeOptions& o) {
  core::check_float("normalize", {"x", x});
  if (std::isnan(o.p)) fail<ValueError>("normalize: p must be a number, got {}", o.p);
  if (!(std::isfinite(o.epsilon) && o.epsilon >= 0))
    fail<ValueError>("normalize: epsilon must be finite and >= 0, got {}", o.epsilon);
  return along_dim("normalize", x, o.dim, o.out,
                   [&](const RowBlock& block) { cpu::normalize_rows(block, x.dtype(), o.p, o.epsilon); });
}

}  // namespace tenor
