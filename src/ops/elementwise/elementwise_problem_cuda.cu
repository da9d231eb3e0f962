// From a decided problem to a launch: operands of dtypes that the kernels do not read are converted first.
#include <array>
#include <cstring>

#include "src/core/layout.h"
#include "src/core/numeric.h"
#include "src/core/output.h"
#include "src/core/visit.h"
#include "src/cuda/pointwise_turned.cuh"
#include "src/ops/elementwise/elementwise_cuda.h"
#include "src/ops/elementwise/elementwise_problem.h"
#include "tenor/error.h"

namespace tenor::elementwise {
namespace {

/// What the kernels compute in: 64 bits for every integer, float32 for 16-bit floats.
DType kernel_compute(DType compute) {
  return is_integer(compute) && compute != uint64 ? int64 : compute_dtype(compute);
}

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

/// The operand with its elements in the result's order: transposing it alone moves its bytes at nearly the copy's rate,
/// where reading it across would fetch every sector many times.
Tensor in_order_of(const Tensor& out, const Tensor& x) {
  const Tensor turned = Tensor::empty(out.shape(), x.dtype(), x.device(), core::result_strides(out.shape(), out));
  core::copy_into(x.with_layout(out.shape(), core::broadcast_strides(x, out.shape()), x.offset()), turned);
  return turned;
}

/// `held` keeps a converted operand alive until the launch. `as_bits`: the kernel moves it, and reads no other dtype.
cuda::PointwiseInput operand(const Input& in, DType compute, bool as_bits, const Tensor& out, Tensor& held) {
  if (!in.tensor) return {.constant = true, .value = bits_of(in.data, in.dtype, compute)};
  const bool reads = as_bits ? in.dtype == compute : reads_on_cuda(compute, in.dtype);
  held = reads ? *in.tensor : in.tensor->to(in.compute);
  return {held.raw(), held.dtype(), core::broadcast_strides(held, out.shape())};
}

void fill_operands(const Problem& p, CudaCall& c, const Tensor& out, std::array<Tensor, 3>& held) {
  const bool selects = p.row.rule == Rule::kSelect;
  for (int i = 0; i < p.arity; ++i) {
    const Input& in = p.inputs[i];
    // Where values are only moved they are moved as bits; the condition is a bool.
    const DType compute = selects ? in.compute : c.compute;
    c.call.in[i] = operand(in, compute, selects, out, held[i]);
    if (selects && i > 0) c.call.in[i].dtype = bits_dtype(in.compute);
  }
  if (takes_turned(c.op) && cuda::can_turn(c.call)) return;
  for (int i = 0; i < p.arity; ++i) {
    if (!held[i].defined() || !lies_across(held[i], out)) continue;
    held[i] = in_order_of(out, held[i]);
    c.call.in[i].data = held[i].raw();
    c.call.in[i].strides = core::broadcast_strides(held[i], out.shape());
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
    case 1:
      return uint8;
    case 2:
      return uint16;
    case 4:
      return uint32;
    default:
      return uint64;
  }
}

void compute_cuda(const Problem& p, const Tensor& out) {
  if (out.numel() == 0) return;
  CudaCall c{p.row.op, kernel_compute(p.inputs[0].compute), p.params};
  if (p.row.rule == Rule::kSelect) c.compute = p.computed;
  std::array<Tensor, 3> held;
  c.call.op = p.row.name;
  c.call.arity = p.arity;
  const DType result = p.row.rule == Rule::kSelect ? p.computed : kernel_compute(p.computed);
  const bool direct = reads_on_cuda(result, out.dtype());
  c.call.out = direct ? out : Tensor::empty(out.shape(), result, out.device());
  c.call.out_dtype = p.row.rule == Rule::kSelect ? bits_dtype(c.call.out.dtype()) : c.call.out.dtype();
  fill_operands(p, c, out, held);
  if (!launch_row(c, p.row.rule))
    throw UnsupportedError(std::string(p.row.name) + ": has no CUDA kernel for " +
                           std::string(name(p.inputs[0].compute)));
  if (!direct) core::copy_into(c.call.out, out);
}

}  // namespace tenor::elementwise
