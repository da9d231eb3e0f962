// layer_norm and rms_norm, alone and behind an addition, and group_norm, which is layer_norm of longer rows.
#include <cfloat>

#include "src/core/output.h"
#include "src/cuda/row.cuh"
#include "src/ops/norm/affine_cuda.cuh"
#include "src/ops/norm/norm_cuda.h"

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

/// Where gamma and beta come from.
enum class Vectors {
  kAny,
  kShort,
  kChannels
};  ///< an entry an element; the same, of the elements' own 16 bits; an entry a channel

/// Calls row.write with f(values), scaled and shifted.
template <Vectors kVectors, class Row, class Ahead, class F, class C = typename Row::C>
__device__ __forceinline__ void write_scaled(Row& row, const NormParameters& p, const Ahead& ahead, F f) {
  row.write(kY, [&](C(&values)[Row::kGroup], int64_t i, int64_t spacing, int k) {
#pragma unroll
    for (C& v : values) v = f(v);
    if constexpr (kVectors == Vectors::kShort)
      ahead.scale_and_shift(i, k, static_cast<C>(p.offset), values);
    else
      scale_and_shift<kVectors == Vectors::kChannels>(row, p.affine, i, spacing, static_cast<C>(p.offset), values);
  });
}

/// The vectors on their way before the row is here.
template <Vectors kVectors, class Row>
__device__ __forceinline__ auto fetch_vectors(const Row& row, const Affine& a) {
  if constexpr (kVectors == Vectors::kShort) {
    return ShortGamma<Row>(row, a);
  } else {
    fetch_ahead(row, a);
    return 0;
  }
}

template <Vectors kVectors>
struct LayerNorm {
  static constexpr int kTensors = 4;
  static constexpr bool kWideOnly = kVectors == Vectors::kShort;
  using Parameters = NormParameters;

  template <class Row, class C = typename Row::C>
  static __device__ void run(Row& row, const Parameters& p) {
    const auto ahead = fetch_vectors<kVectors>(row, p.affine);
    if (p.add) row.add(kResidual, kSum);
    const C count = static_cast<C>(row.length());
    const C mean = row.sum([](C v) { return v; }) / count;
    // Deviations from `mean`, and their squares. The first sum is what rounding and summation left over of the mean:
    // rows around 10^6 keep full accuracy. The second is larger than that about the corrected mean by shift^2 an
    // element (Chan, Golub, LeVeque).
    const Pack<C, 2> apart = row.template sums<2>([=](C v, C(&out)[2]) {
      out[0] = v - mean;
      out[1] = out[0] * out[0];
    });
    const C shift = apart.at[0] / count;
    const C square = fmax(apart.at[1] - apart.at[0] * shift, apart.at[1] * C(0));  // not below 0; NaN stays
    const C inverse = inverse_root(square / count, p.epsilon);
    write_scaled<kVectors>(row, p, ahead, [=](C v) { return (v - mean - shift) * inverse; });
  }
};

template <Vectors kVectors>
struct RmsNorm {
  static constexpr int kTensors = 4;
  static constexpr bool kWideOnly = kVectors == Vectors::kShort;
  using Parameters = NormParameters;

  template <class Row, class C = typename Row::C>
  static __device__ void run(Row& row, const Parameters& p) {
    const auto ahead = fetch_vectors<kVectors>(row, p.affine);
    if (p.add) row.add(kResidual, kSum);
    const C square = row.sum([](C v) { return v * v; });
    const C inverse = inverse_root(square / static_cast<C>(row.length()), p.epsilon);
    write_scaled<kVectors>(row, p, ahead, [=](C v) { return v * inverse; });
  }
};

template <class Op>
void launch_norm(const char* op, RowPlan& plan, const RowProblem<4>& problem, NormParameters parameters,
                 const Tensor& x) {
  parameters.affine.few_rows = problem.outer.count / plan.rows <= 4 * multiprocessors(x.device());
  plan.registers =
      plan.registers && (!plan.wide || parameters.affine.fits(kVectorBytes / static_cast<int>(item_size(x.dtype()))));
  core::visit_float(x.dtype(), [&]<class T>() { launch_rows<Op, T>(op, plan, problem, parameters, x.device()); });
}

/// Whether gamma is given, and it and beta, if that is given, lie densely in x's own 16-bit type.
bool has_short_vectors(const RowPlan& plan, const NormTensors& t) {
  const auto is_short = [&](const Tensor& v) { return v.dtype() == t.x.dtype() && item_size(v.dtype()) == 2; };
  return plan.registers && plan.wide && t.gamma.defined() && is_short(t.gamma) &&
         (!t.beta.defined() || is_short(t.beta));
}

template <template <Vectors> class Op>
void norm_rows(const char* op, const NormTensors& t, double epsilon, double offset) {
  const DeviceGuard guard(t.x.device());
  RowPlan plan;
  RowProblem<4> problem;
  make_rows(op, {t.x, t.y, t.residual, t.sum}, 1, false, plan, problem);
  const NormParameters parameters{
      epsilon, offset, t.residual.defined(), {ParameterVector::of(t.gamma), ParameterVector::of(t.beta), 1, 0, 0}};
  if (has_short_vectors(plan, t) && parameters.affine.fits(kVectorBytes / 2))
    return launch_norm<Op<Vectors::kShort>>(op, plan, problem, parameters, t.x);
  launch_norm<Op<Vectors::kAny>>(op, plan, problem, parameters, t.x);
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

void layer_norm_rows(const char* op, const NormTensors& tensors, double epsilon) {
  norm_rows<LayerNorm>(op, tensors, epsilon, 0);
}
void rms_norm_rows(const char* op, const NormTensors& tensors, double epsilon, double weight_offset) {
  norm_rows<RmsNorm>(op, tensors, epsilon, weight_offset);
}

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
                                  0,
                                  false,
                                  {ParameterVector::of(gamma), ParameterVector::of(beta), x.shape(1), channels,
                                   inside ? 0 : problem.length / channels}};
  launch_norm<LayerNorm<Vectors::kChannels>>(op, plan, problem, parameters, x);
}

}  // namespace tenor::cuda
