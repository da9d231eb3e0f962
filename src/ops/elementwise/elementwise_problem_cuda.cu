// From a decided problem to a launch: operands of dtypes that the kernels do not read are converted first.
#include <algorithm>
#include <array>
#include <cstring>

#include "src/core/layout.h"
#include "src/core/numeric.h"
#include "src/core/output.h"
#include "src/core/visit.h"
#include "src/cuda/transpose.cuh"
#include "src/ops/elementwise/elementwise_cuda.h"
#include "src/ops/elementwise/elementwise_problem.h"
#include "tenor/error.h"

namespace tenor::elementwise {
namespace {

/// What the kernels compute in: 64 bits for every integer, float32 for 16-bit floats.
DType kernel_compute(DType compute) { return is_integer(compute) && compute != uint64 ? int64 : compute_dtype(compute); }

uint64_t bits_of(const void* element, DType dtype, DType compute) {
  uint64_t bits = 0;
  core::visit(dtype, [&]<class From>() {
    core::visit(compute, [&]<class To>() {
      const To value = core::cast<To>(*static_cast<const From*>(element));
      std::memcpy(&bits, &value, sizeof(value));
    });
  });
  return bits;
}

/// Whether x, seen at the result's shape, lies across it: dense along another dim.
bool lies_across(const Tensor& x, const Tensor& out) {
  if (x.numel() != out.numel() || x.ndim() < 2) return false;
  const Dims strides = core::broadcast_strides(x, out.shape());
  return cuda::turned_dim(cuda::collapse("copy", out.shape(), {strides, out.strides()}, 1)) >= 0;
}

/// The operand with its elements in the result's order: transposing it alone moves its bytes at nearly the copy's rate, where
/// reading it across would fetch every sector many times.
Tensor in_order_of(const Tensor& out, const Tensor& x) {
  const Tensor turned = Tensor::empty(out.shape(), x.dtype(), x.device(), core::result_strides(out.shape(), out));
  core::copy_into(x.with_layout(out.shape(), core::broadcast_strides(x, out.shape()), x.offset()), turned);
  return turned;
}

/// `held` keeps a converted operand alive until the launch.
cuda::PointwiseInput operand(const Input& in, DType compute, const Tensor& out, Tensor& held) {
  if (!in.tensor) return {.constant = true, .value = bits_of(in.data, in.dtype, compute)};
  held = reads_on_cuda(compute, in.dtype) ? *in.tensor : in.tensor->to(in.compute);
  if (lies_across(held, out)) held = in_order_of(out, held);
  return {held.raw(), held.dtype(), core::broadcast_strides(held, out.shape())};
}

void fill_operands(const Problem& p, CudaCall& c, const Tensor& out, std::array<Tensor, 3>& held) {
  const bool selects = p.row.rule == Rule::kSelect;
  for (int i = 0; i < p.arity; ++i) {
    const Input& in = p.inputs[i];
    // Where values are only moved they are moved as bits; the condition is a bool.
    const DType compute = selects ? in.compute : c.compute;
    c.call.in[i] = operand(in, compute, out, held[i]);
    if (selects && i > 0) c.call.in[i].dtype = bits_dtype(in.compute);
  }
}

bool launch_row(const CudaCall& c, Rule rule) {
  if (rule == Rule::kSelect) return select_cuda(c);
  return arithmetic_cuda(c) || integer_cuda(c) || division_cuda(c) || math_cuda(c) || trigonometry_cuda(c) ||
         activation_cuda(c) || compare_cuda(c) || logic_cuda(c);
}

}  // namespace

DType bits_dtype(DType dtype) {
  switch (item_size(dtype)) {
    case 1: return uint8;
    case 2: return uint16;
    case 4: return uint32;
    default: return uint64;
  }
}

namespace {

void compute_at_once(const Problem& p, const Tensor& out) {
  const DType first = p.inputs[0].compute;
  CudaCall c{p.row.op, kernel_compute(first), p.params};
  c.mixed = p.row.rule == Rule::kCompare && p.arity == 2 && first != p.inputs[1].compute;
  c.unsigned_first = c.mixed && first == uint64;
  if (c.mixed) c.compute = int64;
  if (p.row.rule == Rule::kSelect) c.compute = p.computed;
  std::array<Tensor, 3> held;
  c.call.op = p.row.name;
  c.call.arity = p.arity;
  fill_operands(p, c, out, held);
  const DType result = p.row.rule == Rule::kSelect ? p.computed : kernel_compute(p.computed);
  const bool direct = reads_on_cuda(result, out.dtype());
  c.call.out = direct ? out : Tensor::empty(out.shape(), result, out.device());
  c.call.out_dtype = p.row.rule == Rule::kSelect ? bits_dtype(c.call.out.dtype()) : c.call.out.dtype();
  if (!launch_row(c, p.row.rule))
    throw UnsupportedError(std::string(p.row.name) + ": has no CUDA kernel for " + std::string(name(first)));
  if (!direct) core::copy_into(c.call.out, out);
}

/// Places [first, first + count) of x along the result's dim `dim`; x itself where it is repeated there.
Tensor part(const Tensor& x, const Tensor& out, int dim, int64_t first, int64_t count) {
  const int own = dim - (out.ndim() - x.ndim());
  if (own < 0 || x.shape(own) == 1) return x;
  Dims shape = x.shape();
  shape[static_cast<size_t>(own)] = count;
  return x.with_layout(shape, x.strides(), x.offset() + first * x.stride(own));
}

void compute_part(const Problem& p, const Tensor& out, int dim, int64_t first, int64_t count) {
  Problem piece = p;
  std::array<Tensor, 3> parts;
  for (int i = 0; i < p.arity; ++i) {
    if (!p.inputs[i].tensor) {
      piece.inputs[i].data = piece.inputs[i].element;
      continue;
    }
    parts[i] = part(*p.inputs[i].tensor, out, dim, first, count);
    piece.inputs[i].tensor = &parts[i];
  }
  compute_at_once(piece, part(out, out, dim, first, count));
}

/// The result's outermost dim in memory.
int widest_dim(const Tensor& out) {
  int widest = 0;
  for (int d = 1; d < out.ndim(); ++d)
    if (out.shape(d) > 1 && (out.shape(widest) == 1 || out.stride(d) > out.stride(widest))) widest = d;
  return widest;
}

/// How much of an operand that lies across is turned before it is used: it then is still in the L2 cache, and device memory
/// sees its bytes once.
constexpr int64_t kTurnedBytes = 16 << 20;

/// Places along the widest dim that are computed together; 0 for all.
int64_t places_at_once(const Problem& p, const Tensor& out, int dim) {
  for (int i = 0; i < p.arity; ++i) {
    const Input& in = p.inputs[i];
    if (!in.tensor || !lies_across(*in.tensor, out)) continue;
    const int64_t a_place = out.numel() / out.shape(dim) * static_cast<int64_t>(item_size(in.dtype));
    return a_place * out.shape(dim) <= 2 * kTurnedBytes ? 0 : std::max<int64_t>(kTurnedBytes / a_place, 1);
  }
  return 0;
}

}  // namespace

void compute_cuda(const Problem& p, const Tensor& out) {
  if (out.numel() == 0) return;
  const int dim = widest_dim(out);
  const int64_t step = out.ndim() < 2 ? 0 : places_at_once(p, out, dim);
  if (step == 0) return compute_at_once(p, out);
  for (int64_t first = 0; first < out.shape(dim); first += step)
    compute_part(p, out, dim, first, std::min(step, out.shape(dim) - first));
}

}  // namespace tenor::elementwise
