#include "src/core/output.h"

#include "src/core/check.h"
#include "src/core/layout.h"

namespace tenor::core {

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
