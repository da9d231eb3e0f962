// layer_norm and rms_norm, alone and behind an addition, and group_norm, which is layer_norm of longer rows.
#include "src/ops/norm/norm_cuda.h"

#include <cfloat>

#include "src/core/output.h"
#include "src/cuda/row.cuh"
#include "src/ops/norm/affine_cuda.cuh"

namespace tenor::cuda {
namespace {

/// The tensors of a problem; 0 is x.
constexpr int kY = 1, kResidual = 2, kSum = 3;

struct NormParameters {
  double epsilon;
  double offset;
  bool add;
  Affine affine;
};

/// 1 / sqrt(mean_square + epsilon), rounded once; finite, so that a row of zeros stays zero under the smallest epsilon.
__device__ __forceinline__ float inverse_root(float mean_square, double epsilon) {
  const float root = __frsqrt_rn(mean_square + static_cast<float>(epsilon));
  return root > FLT_MAX ? FLT_MAX : root;  // NaN stays NaN
}
__device__ __forceinline__ double inverse_root(double mean_square, double epsilon) {
  const double root = 1.0 / sqrt(mean_square + epsilon);
  return root > DBL_MAX ? DBL_MAX : root;
}

struct LayerNorm {
  static constexpr int kTensors = 4;
  using Parameters = NormParameters;

  template <class Row, class C = typename Row::C>
  static __device__ void run(Row& row, const Parameters& p) {
    fetch_ahead(row, p.affine);
    if (p.add) row.add(kResidual, kSum);
    const C count = static_cast<C>(row.length());
    const C mean = row.sum([](C v) { return v; }) / count;
    // What the rounding and the summation of `mean` left over: rows around 10^6 keep full accuracy.
    const C shift = row.sum([=](C v) { return v - mean; }) / count;
    const C square = row.sum([=](C v) {
      const C e = v - mean - shift;
      return e * e;
    });
    const C inverse = inverse_root(square / count, p.epsilon);
    row.write(kY, [&](C (&values)[Row::kGroup], int64_t i, int64_t spacing) {
#pragma unroll
      for (C& v : values) v = (v - mean - shift) * inverse;
      scale_and_shift(row, p.affine, i, spacing, C(0), values);
    });
  }
};

struct RmsNorm {
  static constexpr int kTensors = 4;
  using Parameters = NormParameters;

  template <class Row, class C = typename Row::C>
  static __device__ void run(Row& row, const Parameters& p) {
    fetch_ahead(row, p.affine);
    if (p.add) row.add(kResidual, kSum);
    const C square = row.sum([](C v) { return v * v; });
    const C inverse = inverse_root(square / static_cast<C>(row.length()), p.epsilon);
    row.write(kY, [&](C (&values)[Row::kGroup], int64_t i, int64_t spacing) {
#pragma unroll
      for (C& v : values) v = v * inverse;
      scale_and_shift(row, p.affine, i, spacing, static_cast<C>(p.offset), values);
    });
  }
};

template <class Op>
void launch_norm(const char* op, RowPlan& plan, const RowProblem<4>& problem, NormParameters parameters, const Tensor& x) {
  parameters.affine.few_rows = problem.outer.count / plan.rows <= 4 * multiprocessors(x.device());
  plan.registers = plan.registers && (!plan.wide || parameters.affine.fits(kVectorBytes / static_cast<int>(item_size(x.dtype()))));
  core::visit_float(x.dtype(), [&]<class T>() { launch_rows<Op, T>(op, plan, problem, parameters, x.device()); });
}

template <class Op>
void norm_rows(const char* op, const NormTensors& t, double epsilon, double offset) {
  const DeviceGuard guard(t.x.device());
  RowPlan plan;
  RowProblem<4> problem;
  make_rows(op, {t.x, t.y, t.residual, t.sum}, 1, false, plan, problem);
  const NormParameters parameters{epsilon, offset, t.residual.defined(), {ParameterVector::of(t.gamma), ParameterVector::of(t.beta), 1, 0, 0}};
  launch_norm<Op>(op, plan, problem, parameters, t.x);
}

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

void layer_norm_rows(const char* op, const NormTensors& tensors, double epsilon) { norm_rows<LayerNorm>(op, tensors, epsilon, 0); }
void rms_norm_rows(const char* op, const NormTensors& tensors, double epsilon, double weight_offset) {
  norm_rows<RmsNorm>(op, tensors, epsilon, weight_offset);
}

void group_norm_rows(const char* op, const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& y, double epsilon) {
  const DeviceGuard guard(x.device());
  RowPlan plan;
  RowProblem<4> problem;
  const bool inside = channels_inside(x);
  const bool evenly = make_rows(op, {x, y, Tensor(), Tensor()}, x.ndim() - 2, true, plan, problem);
  const int64_t channels = x.shape(2);
  if (evenly && inside && problem.run == problem.length && problem.run != channels) split_runs(plan, problem, channels);  // one group
  if (!evenly || problem.run != (inside ? channels : problem.length)) {
    const Tensor dense = x.contiguous(), result = Tensor::empty(x.shape(), x.dtype(), x.device());
    group_norm_rows(op, dense, gamma, beta, result, epsilon);
    core::copy_into(result, y);
    return;
  }
  const NormParameters parameters{
      epsilon, 0, false, {ParameterVector::of(gamma), ParameterVector::of(beta), x.shape(1), channels, inside ? 0 : problem.length / channels}};
  launch_norm<LayerNorm>(op, plan, problem, parameters, x);
}

}  // namespace tenor::cuda
