// The experts on CUDA: which grouped products they are made of.
#include "src/core/compute_capability.h"
#include "src/core/device_traits.h"
#include "src/cuda/gemm/sm90_grouped.h"
#include "src/cuda/runtime.h"
#include "src/ops/moe/grouped_cuda.h"
#include "src/ops/moe/moe_cuda.h"

namespace tenor::cuda {
namespace {

using core::kHopper;

bool lies_well(const Tensor& x) {
  bool good = reinterpret_cast<uintptr_t>(x.raw()) % 16 == 0 && x.stride(-1) == 1;
  for (int d = 0; d < x.ndim() - 1; ++d) good = good && x.stride(d) % 8 == 0 && x.stride(d) > 0;
  return good;
}

gemm::GroupedProblem problem_of(const GroupedTensors& t) {
  gemm::GroupedProblem p{t.x.raw(),
                         t.weight.raw(),
                         t.y.raw(),
                         t.offsets.raw(),
                         true,
                         static_cast<int>(t.x.shape(0)),
                         static_cast<int>(t.weight.shape(1)),
                         static_cast<int>(t.weight.shape(2)),
                         static_cast<int>(t.weight.shape(0)),
                         t.x.stride(0),
                         t.weight.stride(1),
                         t.weight.stride(0),
                         t.y.stride(0),
                         t.x.dtype() == bfloat16};
  p.up = t.up.defined() ? t.up.raw() : nullptr;
  return p;
}

/// By Hopper's instructions where the device has them and TMA can read the operands, else by mma.sync: with the same
/// bits.
void grouped_tensorcore(const char* op, const GroupedTensors& t) {
  const Device device = t.y.device();
  const gemm::GroupedProblem p = problem_of(t);
  const bool alike =
      !t.up.defined() || (lies_well(t.up) && t.up.strides() == t.weight.strides());  // one kernel walks both
  if (core::device_traits(device).capability != kHopper || !alike || !lies_well(t.x) || !lies_well(t.weight) ||
      !gemm::sm90_grouped_why_not(p).empty())
    return grouped_mma(op, t);
  check(gemm::sm90_grouped(p, current_stream(device).handle), op);
}

}  // namespace

void experts_scalar(const moe::ExpertRows& p) {
  const DType wide = compute_dtype(p.x.dtype());
  const Dims shape{p.x.shape(0), p.gate.shape(1)};
  const Tensor gate = Tensor::empty(shape, wide, p.device), up = Tensor::empty(shape, wide, p.device),
               act = Tensor::empty(shape, p.x.dtype(), p.device);
  if (act.numel() > 0) {
    grouped_scalar(p.op, p.x, p.gate, p.offsets, gate);
    grouped_scalar(p.op, p.x, p.up, p.offsets, up);
    gated_elements(p.op, gate, up, act);
  }
  grouped_scalar(p.op, act, p.down, p.offsets, p.y);
}

void experts_tensorcore(const moe::ExpertRows& p) {
  const DeviceGuard guard(p.device);
  const Tensor act = Tensor::empty({p.x.shape(0), p.gate.shape(1)}, p.x.dtype(), p.device), none{};
  if (act.numel() > 0) grouped_tensorcore(p.op, {p.x, p.gate, p.offsets, act, p.up});
  grouped_tensorcore(p.op, {act, p.down, p.offsets, p.y, none});
}

bool experts_one_token(const moe::ExpertRows& p, const moe::RoutingPlan::State& plan, const Tensor& shared,
                       const Tensor& out) {
  if (!plan.arrivals.defined() || p.gate.numel() == 0) return false;
  const DeviceGuard guard(p.device);
  const DType dtype = p.x.dtype(), weights = plan.weights.dtype();
  const auto slots = static_cast<int>(plan.ids.shape(1));
  const Tensor act = Tensor::empty({slots, p.gate.shape(1)}, dtype, p.device), none{};
  gemm::GroupedProblem first = problem_of({p.x, p.gate, p.offsets, act, p.up}),
                       second = problem_of({act, p.down, p.offsets, p.y, none});
  first.m = slots, first.one_row = true;
  const bool good = core::device_traits(p.device).capability == kHopper && lies_well(p.x) && lies_well(p.gate) &&
                    lies_well(p.up) && p.up.strides() == p.gate.strides() && lies_well(p.down) && lies_well(act) &&
                    (weights == float32 || weights == dtype) && gemm::takes_token_sum(slots) &&
                    gemm::sm90_grouped_why_not(first).empty() && gemm::sm90_grouped_why_not(second).empty();
  if (!good) return false;
  second.sum = {plan.rows.data<int>(),
                plan.weights.raw(),
                shared.defined() ? shared.raw() : nullptr,
                out.raw(),
                plan.arrivals.data<int>(),
                slots,
                weights == float32,
                shared.defined() && shared.dtype() == float32};
  const cudaStream_t stream = current_stream(p.device).handle;
  check(gemm::sm90_grouped(first, stream), p.op);
  check(gemm::sm90_grouped(second, stream), p.op);
  return true;
}

void grouped_matmul(const moe::GroupedRows& p) {
  const Device device = p.x.device();
  const DeviceGuard guard(device);
  const Tensor offsets = clean_offsets(p.op, p.offsets.contiguous(), p.x.shape(0)), none{};
  const bool halves = p.x.dtype() == float16 || p.x.dtype() == bfloat16;
  if (halves && p.weight.numel() > 0) {
    const Tensor weight = p.weight.stride(2) == 1 ? p.weight : p.weight.contiguous();
    grouped_tensorcore(p.op, {p.x, weight, offsets, p.y, none});
  } else if (p.weight.shape(0) > 0) {
    grouped_scalar(p.op, p.x, p.weight, offsets, p.y);
  }
  clear_tail(p.op, offsets, p.y);
}

}  // namespace tenor::cuda
