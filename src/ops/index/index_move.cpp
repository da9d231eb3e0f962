// roll, flip, one_hot.
#include <algorithm>
#include <cstring>

#include "src/core/backend.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/cuda/remap.h"
#include "src/ops/index/index_check.h"
#include "src/ops/index/index_one_hot_cuda.h"
#include "src/ops/index/index_rows.h"
#include "tenor/index.h"

namespace tenor {
namespace {

using core::check_given;
using core::fail;
using core::OpClass;
using core::Output;
using core::Step;

const core::OpRegistration kOps({
    {"roll", "index", OpClass::kIndex, "out[..., (i + shift) mod n, ...] = x[..., i, ...]"},
    {"flip", "index", OpClass::kIndex, "out[..., i, ...] = x[..., n - 1 - i, ...] for each of dims"},
    {"one_hot", "index", OpClass::kIndex, "x [*S] -> int64 [*S, classes], 1 at x"},
});

/// Copies x to out, moved along the dims from `next` on: each splits into the part that stays in order and the part
/// that comes around.
void roll_into(const Tensor& x, const Tensor& out, const Dims& dims, const Dims& shifts, size_t next) {
  if (next == dims.size()) return core::copy_into(x, out);
  const auto d = static_cast<size_t>(dims[next]);
  const int64_t n = x.shape()[d], shift = shifts[next];
  const auto part = [&](const Tensor& t, int64_t start, int64_t length) {
    Dims shape = t.shape();
    shape[d] = length;
    return t.with_layout(shape, t.strides(), t.offset() + start * t.strides()[d]);
  };
  if (shift < n) roll_into(part(x, 0, n - shift), part(out, shift, n - shift), dims, shifts, next + 1);
  if (shift > 0) roll_into(part(x, n - shift, shift), part(out, 0, shift), dims, shifts, next + 1);
}

/// roll on CUDA: each dim's rule. Shifts are 0..n-1.
void roll_on_cuda(const Tensor& x, const Tensor& out, const Dims& dims, const Dims& shifts) {
  std::vector<cuda::CoordinateRule> rules(x.shape().size());
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t n = x.shape()[dims[i]];
    if (shifts[i] != 0) rules[dims[i]] = {cuda::CoordinateRule::kWrap, n - shifts[i], n};
  }
  cuda::remap("roll", x, rules, out);
}

void roll_to(const Tensor& x, const Tensor& out, const Dims& dims, const Dims& shifts) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) return roll_on_cuda(x, out, dims, shifts);
  }
  roll_into(x, out, dims, shifts, 0);
}

Tensor roll_flat(const Tensor& x, const Dims& shifts, const Tensor& out_option) {
  if (shifts.size() != 1) fail<ValueError>("roll: without dims there is one shift, got {}", shifts);
  Output out("roll", out_option, x.shape(), x.dtype(), x, {&x}, {.contiguous = true, .cuda = core::kHasCuda});
  core::StepScope step([&] {
    Step stated{"roll", OpClass::kIndex, {x}, {out.target()}};
    stated.recipe = core::recipe([shifts](const auto& in, const auto& outs) { roll_flat(in[0], shifts, outs[0]); });
    if (!x.is_contiguous())
      stated.copies.push_back(
          {"x", x.numel() * static_cast<int64_t>(item_size(x.dtype())), "without dims it rolls one dense row"});
    return stated;
  });
  const int64_t n = x.numel();
  if (step.shape_only(out.target()) || n == 0) return out.target();
  const Tensor from = x.contiguous(), to = out.target();
  const Tensor flat_from = from.with_layout({n}, {1}, from.offset()), flat_to = to.with_layout({n}, {1}, to.offset());
  roll_to(flat_from, flat_to, {0}, {((shifts[0] % n) + n) % n});
  return out.finish();
}

/// The largest entry + 1.
int64_t classes_of(const Tensor& x) {
  if (x.numel() == 0)
    fail<ShapeError>("one_hot: num_classes is not determined by an empty x of shape {}; give it", x.shape());
  const Tensor dense = x.contiguous();
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x))
      return std::max<int64_t>(index::plus("one_hot", index::greatest_entry_on_device("one_hot", dense), 1), 0);
  }
  return core::visit_integer(x.dtype(), [&]<class T>() {
    const T* from = dense.data<T>();
    const auto most = static_cast<int64_t>(*std::max_element(from, from + dense.numel()));
    return std::max<int64_t>(index::plus("one_hot", most, 1), 0);
  });
}

}  // namespace

Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims, const IndexOptions& options) {
  const char* op = "roll";
  check_given(op, {"x", x});
  if (dims.empty()) return roll_flat(x, shifts, options.out);
  const Dims along = core::normalize_dims(op, dims, x.ndim(), "dims");
  if (shifts.size() != dims.size()) fail<ValueError>("{}: shifts {} and dims {} differ in length", op, shifts, dims);
  Output out(op, options.out, x.shape(), x.dtype(), x, {&x}, {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    return Step{op, OpClass::kIndex, {x}, {out.target()}}.with(core::recipe(
        [shifts, dims](const auto& in, const auto& outs) { roll(in[0], shifts, dims, {.out = outs[0]}); }));
  });
  if (step.shape_only(out.target()) || x.numel() == 0) return out.finish();
  if (x.ndim() == 0) {
    core::copy_into(x, out.target());
    return out.finish();
  }
  Dims steps = shifts;
  for (size_t i = 0; i < along.size(); ++i) {
    const int64_t n = x.shape()[along[i]];
    steps[i] = ((shifts[i] % n) + n) % n;
  }
  roll_to(x, out.target(), along, steps);
  return out.finish();
}

namespace {

void flip_on_cuda(const Tensor& x, const Tensor& out, const Dims& dims) {
  std::vector<cuda::CoordinateRule> rules(x.shape().size());
  for (int64_t d : dims)
    if (x.ndim() > 0) rules[d] = {cuda::CoordinateRule::kBackward, x.shape()[d] - 1, x.shape()[d]};
  cuda::remap("flip", x, rules, out);
}

}  // namespace

Tensor flip(const Tensor& x, const Dims& dims, const IndexOptions& options) {
  const char* op = "flip";
  check_given(op, {"x", x});
  const Dims along = core::normalize_dims(op, dims, x.ndim(), "dims");
  Output out(op, options.out, x.shape(), x.dtype(), x, {&x}, {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    return Step{op, OpClass::kIndex, {x}, {out.target()}}.with(
        core::recipe([dims](const auto& in, const auto& outs) { flip(in[0], dims, {.out = outs[0]}); }));
  });
  if (step.shape_only(out.target()) || x.numel() == 0) return out.finish();
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) {
      flip_on_cuda(x, out.target(), along);
      return out.finish();
    }
  }
  Dims strides = x.strides();
  int64_t last = 0;  // the element that comes first
  for (int64_t d : along) {
    if (x.ndim() == 0) continue;
    last += (x.shape()[d] - 1) * strides[d];
    strides[d] = -strides[d];
  }
  const char* from = static_cast<const char*>(x.raw()) + last * static_cast<int64_t>(item_size(x.dtype()));
  index::copy_strided(from, strides, out.target().raw(), out.target().strides(), x.shape(), x.dtype());
  return out.finish();
}

Tensor one_hot(const Tensor& x, const OneHotOptions& options) {
  const char* op = "one_hot";
  core::check_index_dtype(op, {"x", x});
  if (options.num_classes < -1) fail<ValueError>("{}: num_classes must be -1 or >= 0, got {}", op, options.num_classes);
  const bool meta = x.device().type == DeviceType::kMeta;
  if (meta && options.num_classes == -1)
    fail<UnsupportedError>("{}: without num_classes the size of the result depends on data", op);
  const int64_t classes = options.num_classes >= 0 ? options.num_classes : classes_of(x);
  const Tensor at = meta ? x : index::checked_indices(op, "class", x, classes, true);
  Dims shape = x.shape();
  shape.push_back(classes);
  Output out(op, options.out, shape, int64, x, {&x}, {.contiguous = true, .cuda = core::kHasCuda});
  core::StepScope step([&] {
    return Step{op, OpClass::kIndex, {x}, {out.target()}}.with(core::recipe(
        [classes](const auto& in, const auto& outs) { one_hot(in[0], {.num_classes = classes, .out = outs[0]}); }));
  });
  if (step.shape_only(out.target())) return out.target();
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) {
      index::one_hot_on_device(at, out.target());
      return out.finish();
    }
  }
  const auto* from = at.data<int64_t>();
  auto* to = out.target().data<int64_t>();
  cpu::parallel_for(at.numel(), cpu::grain_of(8 * classes), [&](int64_t begin, int64_t end) {
    std::memset(to + begin * classes, 0, static_cast<size_t>((end - begin) * classes) * sizeof(int64_t));
    for (int64_t i = begin; i < end; ++i) to[i * classes + from[i]] = 1;
  });
  return out.finish();
}

}  // namespace tenor
