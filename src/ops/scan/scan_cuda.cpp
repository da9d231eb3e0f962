// The operators as scans of CUDA kernels: which dtype each runs in, and the plan that it follows.
#include "src/ops/scan/scan_cuda.h"

#include "src/core/output.h"

namespace tenor::scan {
namespace {

/// Whether vectors of a run stay aligned in every line.
bool steps_by(const cuda::Layout<2>& kept, int64_t run) {
  for (int t = 0; t < 2; ++t)
    for (int d = 0; d < kept.ndim; ++d)
      if (kept.stride[t][d] % run != 0) return false;
  return true;
}
bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

Tensor as(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : x.to(dtype); }

/// Runs fn(x, out) on an out of that dtype: problem.out, or a temporary that is then converted.
template <class F>
void through(const Problem& p, DType dtype, F&& fn) {
  if (p.out.dtype() == dtype) return fn(p.out);
  const Tensor out = Tensor::empty(p.out.shape(), dtype, p.out.device(), p.out.strides());
  fn(out);
  core::copy_into(out, p.out);
}

/// int64 and uint64 are alike modulo 2^64.
DType total(const Problem& p) {
  const bool wide = p.out.dtype() == int64 || p.out.dtype() == uint64;
  return !is_float(p.accumulator) && wide ? p.out.dtype() : p.accumulator;
}

void run_sum(const Problem& p) {
  if (is_float(p.accumulator)) {
    const bool direct = p.x.dtype() == p.out.dtype();
    const Tensor x = direct ? p.x : as(p.x, p.accumulator);
    return through(p, x.dtype(),
                   [&](const Tensor& out) { sum_floats(make_plan("cumsum", x, out, {}, p.dim), x.dtype()); });
  }
  const DType dtype = p.x.dtype();
  const Tensor x = is_float(dtype)                                                           ? as(p.x, p.accumulator)
                   : dtype == uint8 || dtype == boolean || dtype == int32 || dtype == uint64 ? p.x
                                                                                             : as(p.x, int64);
  const DType read = x.dtype() == boolean ? uint8 : x.dtype() == uint64 ? int64 : x.dtype();
  through(p, total(p), [&](const Tensor& out) { sum_integers(make_plan("cumsum", x, out, {}, p.dim), read); });
}

void run_prod(const Problem& p) {
  const bool direct = is_float(p.x.dtype()) && p.x.dtype() == p.out.dtype();
  const Tensor x = direct                                              ? p.x
                   : p.accumulator == uint64 && !is_float(p.x.dtype()) ? as(p.x, int64)
                                                                       : as(p.x, p.accumulator);
  const DType read = is_float(x.dtype()) ? x.dtype() : int64;
  through(p, direct ? x.dtype() : total(p),
          [&](const Tensor& out) { prod(make_plan("cumprod", x, out, {}, p.dim), read); });
}

void run_extreme(const Problem& p) {
  const DType dtype = p.x.dtype();
  const bool direct = is_float(dtype) || item_size(dtype) == 8 || dtype == int32;
  const Tensor x = direct ? p.x : as(p.x, dtype == uint32 ? int64 : int32);
  through(p, x.dtype(), [&](const Tensor& out) {
    extreme(make_plan("cummax", x, out, p.indices, p.dim), x.dtype(), p.op == Op::kMax);
  });
}

}  // namespace

Plan make_plan(const char* op, const Tensor& x, const Tensor& out, const Tensor& indices, int dim) {
  Plan plan{op, x.device(), x.raw(), out.raw(), indices.defined() ? indices.data<int64_t>() : nullptr,
            {}, false,      false};
  Dims kept, x_strides, y_strides;
  for (int d = 0; d < x.ndim(); ++d) {
    if (d == dim) continue;
    kept.push_back(x.shape(d));
    x_strides.push_back(x.stride(d));
    y_strides.push_back(out.stride(d));
  }
  Lines& l = plan.lines;
  l.kept = cuda::collapse<2>(op, kept, {x_strides, y_strides}, 0);
  l.lines = product(kept);
  if (x.ndim() > 0) l.count = x.shape(dim), l.x_step = x.stride(dim), l.y_step = out.stride(dim);
  const int64_t near = l.kept.ndim == 0 ? INT64_MAX : l.kept.stride[0][l.kept.ndim - 1];
  plan.by_rows = l.x_step < near;
  const int64_t run = item_size(x.dtype()) <= 2 ? 8 : 4;
  plan.vectors = l.x_step == 1 && l.y_step == 1 && steps_by(l.kept, run) && is_aligned(plan.x) &&
                 is_aligned(plan.out) && is_aligned(plan.indices);
  return plan;
}

void run_cuda(const Problem& p) {
  if (p.out.numel() == 0) return;
  switch (p.op) {
    case Op::kSum:
      return run_sum(p);
    case Op::kProd:
      return run_prod(p);
    case Op::kMax:
    case Op::kMin:
      return run_extreme(p);
    case Op::kLogSumExp:
      return log_sum(make_plan("logcumsumexp", p.x, p.out, {}, p.dim), p.x.dtype());
  }
}

}  // namespace tenor::scan
