#include "src/core/output.h"

#include <algorithm>
#include <vector>

#include "src/core/check.h"
#include "src/core/layout.h"
#include "src/core/workspace.h"

namespace tenor::core {
namespace {

/// A dim that elements of a and b differ along: its stride, and how many a and b have.
struct Along {
  int64_t stride, a, b;
};

/// Whether some element of a lies `gap` elements before the place that it has in b: whether there are i, j with
/// sum_d (i_d - j_d) * stride_d == gap. Dims by falling stride, so that the inner ones leave few choices for the next;
/// true where there are too many to try.
bool meet(const std::vector<Along>& dims, size_t d, int64_t gap, int& tries) {
  if (--tries < 0) return true;
  if (d == dims.size()) return gap == 0;
  int64_t most = 0, least = 0;  // what the inner dims add
  for (size_t e = d + 1; e < dims.size(); ++e)
    most += (dims[e].a - 1) * dims[e].stride, least -= (dims[e].b - 1) * dims[e].stride;
  const auto floor_of = [&](int64_t x) { return x / dims[d].stride - (x % dims[d].stride < 0); };
  const int64_t first = std::max(-floor_of(most - gap), 1 - dims[d].b);
  const int64_t last = std::min(floor_of(gap - least), dims[d].a - 1);
  for (int64_t step = first; step <= last; ++step)
    if (meet(dims, d + 1, gap - step * dims[d].stride, tries)) return true;
  return false;
}

bool share_elements(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || a.numel() == 0 || b.numel() == 0 || !spans_overlap(a, b)) return false;
  const auto item = static_cast<int64_t>(item_size(a.dtype()));
  const int64_t gap = static_cast<const char*>(b.raw()) - static_cast<const char*>(a.raw());
  if (a.ndim() != b.ndim() || item_size(b.dtype()) != item_size(a.dtype()) || gap % item != 0) return true;
  std::vector<Along> dims;
  for (int d = 0; d < a.ndim(); ++d) {
    if (a.shape(d) == 1 && b.shape(d) == 1) continue;
    const int64_t stride = a.shape(d) > 1 ? a.stride(d) : b.stride(d);
    if (stride <= 0 || (a.shape(d) > 1 && b.shape(d) > 1 && a.stride(d) != b.stride(d))) return true;
    dims.push_back({stride, a.shape(d), b.shape(d)});
  }
  std::sort(dims.begin(), dims.end(), [](const Along& x, const Along& y) { return x.stride > y.stride; });
  int tries = 10000;
  return meet(dims, 0, gap / item, tries);
}

}  // namespace

void check_distinct_outputs(const char* op, std::initializer_list<const Tensor*> outs) {
  for (const Tensor* const* a = outs.begin(); a != outs.end(); ++a)
    for (const Tensor* const* b = a + 1; b != outs.end(); ++b)
      if (share_elements(**a, **b))
        fail<ValueError>("{}: the tensors of out share memory, number {} with number {}", op, a - outs.begin(),
                         b - outs.begin());
}

void check_writable(const char* op, const char* argument, const Tensor& x) {
  if (x.read_only()) fail<ValueError>("{}: {} is read-only", op, argument);
  if (has_internal_overlap(x))
    fail<ValueError>("{}: {} has elements that share memory (shape {}, strides {}), so it cannot be written", op,
                     argument, x.shape(), x.strides());
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
