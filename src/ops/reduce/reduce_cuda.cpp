// The operators as passes of CUDA kernels, and the plan that a pass follows.
#include "src/ops/reduce/reduce_cuda.h"

#include <algorithm>
#include <cmath>

#include "src/core/check.h"
#include "src/core/layout.h"

namespace tenor::reduce {
namespace {

constexpr int64_t kVectorBytes = 16;

template <int N>
int64_t inner_stride(const cuda::Layout<N>& layout) {
  return layout.ndim == 0 ? 0 : layout.stride[0][layout.ndim - 1];
}
/// Whether x's strides of all dims, or of all but the innermost, are multiples of n.
template <int N>
bool steps_by(const cuda::Layout<N>& layout, int64_t n, bool inner_too) {
  for (int d = 0; d + (inner_too ? 0 : 1) < layout.ndim; ++d)
    if (layout.stride[0][d] % n != 0) return false;
  return true;
}

/// Whether runs along `inner` are whole vectors of n from an aligned start, wherever `other` leads.
template <int N, int M>
bool in_vectors(const void* x, const cuda::Layout<N>& inner, const cuda::Layout<M>& other, int64_t n) {
  return reinterpret_cast<uintptr_t>(x) % kVectorBytes == 0 && inner.ndim > 0 && inner_stride(inner) == 1 &&
         inner.size[inner.ndim - 1] % n == 0 && steps_by(inner, n, false) && steps_by(other, n, true);
}

Walk row_walk(const void* x, const Shape& shape, int64_t vector) {
  const cuda::Layout<1>& reduced = shape.reduced;
  const bool vectors = in_vectors(x, reduced, shape.kept, vector);
  if (reduced.ndim > 1) return vectors && reduced.ndim == 2 && shape.count <= INT32_MAX ? Walk::kPlane : Walk::kAny;
  if (vectors) return Walk::kRun;
  return inner_stride(reduced) == 1 && shape.count > vector ? Walk::kShift : Walk::kStride;
}

Dims pick(const Dims& of, const Dims& dims) {
  Dims out;
  for (int64_t d : dims) out.push_back(of[static_cast<size_t>(d)]);
  return out;
}

/// x in a dtype whose kernels form what the operator asks for.
Tensor as(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : x.to(dtype); }

bool sums_directly(DType x, DType accumulator) {
  if (x == boolean) return accumulator == int64 || accumulator == uint64;
  if (is_float(x)) return accumulator == (x == float64 ? float64 : float32);
  return accumulator == int64 || accumulator == uint64;  // alike modulo 2^64
}
/// bool is read as the bytes 0 and 1.
DType readable(DType x) { return x == boolean ? uint8 : x; }

class Runner {
 public:
  explicit Runner(const Problem& p) : p_(p) {
    result_.out = p.out.raw();
    result_.finish.out = p.out.dtype();
    result_.finish.count = static_cast<double>(count());
  }

  void run() {
    switch (p_.op) {
      case Op::kSum:
        return sums(FinishKind::kNone);
      case Op::kMean:
        return sums(FinishKind::kMean);
      case Op::kProd:
        return products();
      case Op::kMax:
      case Op::kMin:
        return extremes(p_.op == Op::kMax, false, p_.x);
      case Op::kAny:
        return counts(FinishKind::kAny);
      case Op::kAll:
        return counts(FinishKind::kAll);
      case Op::kCount:
        return counts(FinishKind::kNone);
      case Op::kNorm:
        return norms();
      case Op::kVar:
        return variances(FinishKind::kVar);
      case Op::kStd:
        return variances(FinishKind::kStd);
      case Op::kLogSumExp:
        return log_sums();
    }
  }

 private:
  int64_t count() const {
    int64_t n = 1;
    for (int d = 0; d < p_.x.ndim(); ++d)
      if (std::find(p_.dims.begin(), p_.dims.end(), d) != p_.dims.end()) n *= p_.x.shape(d);
    return n;
  }
  Plan plan(const Tensor& x) const { return make_plan("reduce", x, p_.dims, p_.out); }
  Tensor accumulated() const { return as(p_.x, p_.accumulator); }

  void sums(FinishKind kind) {
    result_.finish.kind = kind;
    const Tensor x = sums_directly(p_.x.dtype(), p_.accumulator) ? p_.x : accumulated();
    (is_float(x.dtype()) ? sum_floats : sum_integers)(plan(x), readable(x.dtype()), result_);
  }
  void products() {
    const Tensor x = p_.accumulator == uint64 && !is_float(p_.x.dtype()) ? as(p_.x, int64) : accumulated();
    prod(plan(x), x.dtype(), result_);
  }
  void extremes(bool largest, bool magnitude, const Tensor& x) {
    extreme(plan(x), readable(x.dtype()), largest, magnitude, result_);
  }
  void counts(FinishKind kind) {
    result_.finish.kind = kind;
    count_nonzero(plan(p_.x), p_.x.dtype(), result_);
  }
  /// Floats are read as they lie where the norm is formed in their own compute dtype.
  Tensor read() const {
    return is_float(p_.x.dtype()) && compute_dtype(p_.x.dtype()) == p_.accumulator ? p_.x : accumulated();
  }

  void norms() {
    if (p_.power == 0) return counts(FinishKind::kNone);
    const Tensor x = read();
    if (std::isinf(p_.power)) return extremes(p_.power > 0, true, x);
    const bool plain = p_.power == 1 || p_.power == 2;
    result_.finish.kind = p_.power == 1 ? FinishKind::kNone : p_.power == 2 ? FinishKind::kRoot : FinishKind::kPower;
    result_.finish.parameter = 1 / p_.power;
    mapped_sum(plan(x), x.dtype(), plain ? (p_.power == 1 ? Map::kAbs : Map::kSquare) : Map::kPower, p_.power, nullptr,
               result_);
  }
  void variances(FinishKind kind) {
    result_.finish.kind = kind;
    result_.finish.parameter = result_.finish.count - p_.correction;
    const Tensor x = read();
    moments(plan(x), x.dtype(), result_);
  }
  /// The maximum of every output, then the exponentials about it.
  void log_sums() {
    const Tensor x = read(), tops = Tensor::empty(p_.out.shape(), p_.accumulator, p_.out.device());
    Result first;
    first.out = tops.raw();
    first.finish.kind = FinishKind::kShift;
    first.finish.out = p_.accumulator;
    extreme(make_plan("logsumexp", x, p_.dims, tops), x.dtype(), true, false, first);
    result_.finish.kind = FinishKind::kLog;
    result_.finish.shifts = tops.raw();
    mapped_sum(plan(x), x.dtype(), Map::kExp, 0, tops.raw(), result_);
  }

  const Problem& p_;
  Result result_;
};

}  // namespace

Plan make_plan(const char* op, const Tensor& x, const Dims& dims, const Tensor& out, Order order) {
  Plan plan{op, x.device(), x.raw(), {}, false, Walk::kAny, false};
  const bool keepdim = out.ndim() == x.ndim();
  Dims kept, reduced, out_strides(static_cast<size_t>(x.ndim()), 0);
  for (int d = 0, o = 0; d < x.ndim(); ++d) {
    const bool meets = std::find(dims.begin(), dims.end(), d) != dims.end();
    (meets ? reduced : kept).push_back(d);
    if (!meets) out_strides[static_cast<size_t>(d)] = out.stride(o);
    if (!meets || keepdim) ++o;
  }
  kept = core::in_memory_order(x, std::move(kept));
  if (order == Order::kMemory) reduced = core::in_memory_order(x, std::move(reduced));
  Shape& shape = plan.shape;
  shape.kept = cuda::collapse<2>(op, pick(x.shape(), kept), {pick(x.strides(), kept), pick(out_strides, kept)}, -1);
  shape.reduced = cuda::collapse<1>(op, pick(x.shape(), reduced), {pick(x.strides(), reduced)}, -1);
  shape.outputs = product(pick(x.shape(), kept));
  shape.count = product(pick(x.shape(), reduced));
  const int64_t vector = kVectorBytes / static_cast<int64_t>(item_size(x.dtype()));
  plan.by_rows = shape.outputs == 1 || (shape.count > 1 && inner_stride(shape.reduced) < inner_stride(shape.kept));
  plan.walk = plan.by_rows ? row_walk(plan.x, shape, vector) : shape.reduced.ndim > 1 ? Walk::kAny : Walk::kStride;
  plan.vectors = !plan.by_rows && in_vectors(plan.x, shape.kept, shape.reduced, vector);
  return plan;
}

void run_cuda(const Problem& problem) {
  if (problem.out.numel() != 0) Runner(problem).run();
}

void run_arg_cuda(const ArgProblem& p) {
  const Tensor& out = p.indices.defined() ? p.indices : p.values;
  if (out.numel() == 0) return;
  Result result;
  if (p.values.defined()) {
    result.out = p.values.raw();
    result.finish.out = p.values.dtype();
  }
  if (p.indices.defined()) result.indices = p.indices.data<int64_t>();
  arg(make_plan("argmax", p.x, p.dims, out, Order::kLogical), readable(p.x.dtype()), p.largest, result);
}

}  // namespace tenor::reduce
