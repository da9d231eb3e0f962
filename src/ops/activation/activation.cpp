// Contract of silu_mul and gelu_mul.
#include "tenor/activation.h"

#include <algorithm>
#include <numeric>

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/ops/activation/activation_cuda.h"
#include "src/ops/activation/activation_kernels.h"

namespace tenor {
namespace {

using core::fail;
using core::OpClass;
using core::Output;
using core::Step;
using core::StepScope;
using cpu::RowBlock;

const core::OpRegistration kOps({
    {"silu_mul", "activation", OpClass::kElementwise,
     "x[..., 2d] -> silu(x[..., :d]) * x[..., d:], or silu(gate) * up"},
    {"gelu_mul", "activation", OpClass::kElementwise,
     "x[..., 2d] -> gelu(x[..., :d]) * x[..., d:], or gelu(gate) * up"},
});

/// x's last axis from `start`, `count` long.
Tensor part(const Tensor& x, int64_t start, int64_t count) {
  Dims shape = x.shape();
  shape.back() = count;
  return x.with_layout(std::move(shape), x.strides(), x.offset() + start * x.stride(-1));
}

/// x with its dims in the order of `like`'s strides, widest first: the walk then follows memory.
Tensor ordered_like(const Tensor& x, const Tensor& like) {
  std::vector<int> order(static_cast<size_t>(x.ndim()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return like.stride(a) > like.stride(b); });
  Dims shape, strides;
  for (int d : order) {
    shape.push_back(x.shape(d));
    strides.push_back(x.stride(d));
  }
  return x.with_layout(std::move(shape), std::move(strides), x.offset());
}

/// The operands' dims merged into rows as long as they can be.
void walk_gated(const Tensor& gate, const Tensor& up, const Tensor& out,
                cpu::FunctionRef<void(const RowBlock&)> kernel) {
  const Tensor to = ordered_like(out, out);
  const bool dense = gate.is_contiguous() && up.is_contiguous() && out.is_contiguous();
  cpu::RowWalk walk(to.shape(), dense ? to.ndim() : std::min(to.ndim(), 1), cpu::RowWalk::Rows::kMayBeCut);
  walk.read(ordered_like(gate, out));
  walk.read(ordered_like(up, out));
  walk.write(to);
  walk.run(kernel);
}

/// A formula's kernels on both devices; `on_cuda` is null in a build without CUDA.
struct Formula {
  void (*on_cpu)(const RowBlock&, DType);
  void (*on_cuda)(const char*, const Tensor& gate, const Tensor& up, const Tensor& out) = nullptr;
};

void run_gated(const char* op, const Formula& formula, const Tensor& gate, const Tensor& up, const Tensor& out) {
  if (core::on_cuda(gate)) return formula.on_cuda(op, gate, up, out);
  walk_gated(gate, up, out, [&](const RowBlock& block) { formula.on_cpu(block, gate.dtype()); });
}

Tensor gated_halves(const char* op, const Tensor& x, const Tensor& given, const Formula& formula) {
  core::check_float(op, {"x", x});
  if (x.ndim() == 0 || x.shape(-1) % 2 != 0)
    fail<ShapeError>("{}: x must have a last axis of even length, got shape {}", op, x.shape());
  const int64_t half = x.shape(-1) / 2;
  const Tensor gate = part(x, 0, half), up = part(x, half, half);
  Output out(op, given, gate.shape(), x.dtype(), x, {&gate, &up}, {.elementwise = true, .cuda = core::kHasCuda});
  StepScope step([&] {
    return Step{op, OpClass::kElementwise, {x}, {out.target()}, gate.numel()}
        .with({.exponentials = gate.numel()})
        .with(core::recipe(
            [op, &formula](const auto& in, const auto& outs) { gated_halves(op, in[0], outs[0], formula); }));
  });
  if (step.shape_only(out.target())) return out.target();
  run_gated(op, formula, gate, up, out.target());
  return out.finish();
}

Tensor gated_pair(const char* op, const Tensor& gate, const Tensor& up, const Tensor& given, const Formula& formula) {
  core::check_float(op, {"gate", gate});
  core::check_same_dtype(op, {"gate", gate}, {"up", up});
  core::check_same_device(op, {{"gate", gate}, {"up", up}});
  core::check_shape(op, {"up", up}, gate.shape());
  Output out(op, given, gate.shape(), gate.dtype(), gate, {&gate, &up}, {.elementwise = true, .cuda = core::kHasCuda});
  StepScope step([&] {
    return Step{op, OpClass::kElementwise, {gate, up}, {out.target()}, gate.numel()}
        .with({.exponentials = gate.numel()})
        .with(core::recipe(
            [op, &formula](const auto& in, const auto& outs) { gated_pair(op, in[0], in[1], outs[0], formula); }));
  });
  if (step.shape_only(out.target())) return out.target();
  run_gated(op, formula, gate, up, out.target());
  return out.finish();
}

#if TENOR_HAS_CUDA
constexpr Formula kSilu{cpu::silu_mul_rows, cuda::silu_mul}, kGelu{cpu::gelu_mul_rows, cuda::gelu_mul},
    kGeluTanh{cpu::gelu_tanh_mul_rows, cuda::gelu_tanh_mul};
#else
constexpr Formula kSilu{cpu::silu_mul_rows}, kGelu{cpu::gelu_mul_rows}, kGeluTanh{cpu::gelu_tanh_mul_rows};
#endif

const Formula& gelu_formula(const std::string& approximate) {
  if (approximate == "none") return kGelu;
  if (approximate == "tanh") return kGeluTanh;
  fail<ValueError>("gelu_mul: approximate must be 'none' or 'tanh', got '{}'", approximate);
}

}  // namespace

Tensor silu_mul(const Tensor& x, const SiluMulOptions& o) { return gated_halves("silu_mul", x, o.out, kSilu); }
Tensor silu_mul(const Tensor& gate, const Tensor& up, const SiluMulOptions& o) {
  return gated_pair("silu_mul", gate, up, o.out, kSilu);
}
Tensor gelu_mul(const Tensor& x, const GeluMulOptions& o) {
  return gated_halves("gelu_mul", x, o.out, gelu_formula(o.approximate));
}
Tensor gelu_mul(const Tensor& gate, const Tensor& up, const GeluMulOptions& o) {
  return gated_pair("gelu_mul", gate, up, o.out, gelu_formula(o.approximate));
}

}  // namespace tenor
