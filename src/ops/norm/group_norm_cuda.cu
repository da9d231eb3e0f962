// group_norm and instance_norm: layer_norm of longer rows.
#include "src/core/output.h"
#include "src/ops/norm/layer_norm_cuda.cuh"

namespace tenor::cuda {
namespace {

/// Whether a group's channels lie side by side, with the places of x[N, G, C / G, *S] outside of them.
bool channels_inside(const Tensor& x) {
  if (x.shape(2) == 1) return false;
  for (int d = 3; d < x.ndim(); ++d)
    if (x.shape(d) > 1 && x.stride(d) < x.stride(2)) return false;
  return true;
}

/// One dense run of several places as runs of one place, so that an element's place in its run is its channel.
void split_runs(RowPlan& plan, RowProblem<4>& problem, int64_t channels) {
  plan.registers = false;  // whose rows have one run
  problem.run = channels;
  problem.run_divider = make_divider(channels);
  for (int t = 0; t < 4; ++t) problem.run_stride[t] = channels * problem.step[t];
}

}  // namespace

void group_norm_rows(const char* op, const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& y,
                     double epsilon) {
  const DeviceGuard guard(x.device());
  RowPlan plan;
  RowProblem<4> problem;
  const bool inside = channels_inside(x);
  const bool evenly = make_rows(op, {x, y, Tensor(), Tensor()}, x.ndim() - 2, true, plan, problem);
  const int64_t channels = x.shape(2);
  if (evenly && inside && problem.run == problem.length && problem.run != channels)
    split_runs(plan, problem, channels);  // one group
  if (!evenly || problem.run != (inside ? channels : problem.length)) {
    const Tensor dense = x.contiguous(), result = Tensor::empty(x.shape(), x.dtype(), x.device());
    group_norm_rows(op, dense, gamma, beta, result, epsilon);
    core::copy_into(result, y);
    return;
  }
  const NormParameters parameters{epsilon,
                                  -0.0,
                                  false,
                                  {ParameterVector::of(gamma), ParameterVector::of(beta), x.shape(1), channels,
                                   inside ? 0 : problem.length / channels}};
  launch_norm<LayerNorm<Vectors::kChannels, false>>(op, plan, problem, parameters, x);
}

}  // namespace tenor::cuda
