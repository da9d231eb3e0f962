#include "src/core/output.h"

#include <cstdlib>

#include "src/core/check.h"
#include "src/core/layout.h"
#include "src/core/workspace.h"

namespace tenor::core {
namespace {

bool share_elements(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || a.numel() == 0 || b.numel() == 0 || !spans_overlap(a, b)) return false;
  const auto item = static_cast<int64_t>(item_size(a.dtype()));
  const int64_t gap = static_cast<const char*>(b.raw()) - static_cast<const char*>(a.raw());
  const bool alike = a.shape() == b.shape() && a.strides() == b.strides() && item_size(b.dtype()) == item_size(a.dtype());
  if (!alike || gap == 0 || gap % item != 0) return true;
  Dims shape = a.shape(), strides = a.strides();
  shape.insert(0, 2);
  strides.insert(0, std::abs(gap / item));
  return has_internal_overlap(a.with_layout(shape, strides, a.offset()));
}

}  // namespace

void check_distinct_outputs(const char* op, std::initializer_list<const Tensor*> outs) {
  for (const Tensor* const* a = outs.begin(); a != outs.end(); ++a)
    for (const Tensor* const* b = a + 1; b != outs.end(); ++b)
      if (share_elements(**a, **b))
        fail<ValueError>("{}: the tensors of out share memory, number {} with number {}", op, a - outs.begin(), b - outs.begin());
}

void check_writable(const char* op, const char* argument, const Tensor& x) {
  if (x.read_only()) fail<ValueError>("{}: {} is read-only", op, argument);
  if (has_internal_overlap(x))
    fail<ValueError>("{}: {} has elements that share memory (shape {}, strides {}), so it cannot be written", op, argument,
                     x.shape(), x.strides());
}

Output::Output(const char* op, const Tensor& out, const Dims& shape, DType dtype, const Tensor& like,
               std::initializer_list<const Tensor*> inputs, OutputRules rules) {
  // Of a creation operator, `like` is undefined: its memory, already made, comes as `out`.
  const bool on_cuda = like.device().type == DeviceType::kCuda || out.device().type == DeviceType::kCuda;
  if (on_cuda && !rules.cuda)
    fail<UnsupportedError>("{}: has no CUDA kernel yet; move the arguments to the CPU first", op);
  if (!out.defined()) {
    const AllocatorGuard results(&result_allocator());
    target_ = Tensor::empty(shape, dtype, like.device(), rules.contiguous ? Dims() : result_strides(shape, like));
    return;
  }
  check_shape(op, {rules.argument, out}, shape);
  check_dtype(op, {rules.argument, out}, dtype);
  check_same_device(op, {{"its input", like}, {rules.argument, out}});
  check_writable(op, rules.argument, out);
  bool direct = !rules.contiguous || out.is_contiguous();
  for (const Tensor* input : inputs) {
    if (!input->defined() || !spans_overlap(*input, out)) continue;
    direct = direct && rules.elementwise && same_elements(*input, out);
  }
  target_ = direct ? out : Tensor::empty(shape, dtype, out.device());
  if (!direct) out_ = out;
}

Tensor Output::finish() {
  if (!out_.defined()) return target_;
  copy_into(target_, out_);
  return out_;
}

}  // namespace tenor::core
