// What layer_norm, rms_norm and group_norm share on CUDA: their parameters, vectors and launches.
#pragma once

#include <cfloat>

#include "src/cuda/row.cuh"
#include "src/ops/norm/affine_cuda.cuh"
#include "src/ops/norm/norm_cuda.h"

namespace tenor::cuda {

/// The tensors of a problem; 0 is x.
inline constexpr int kY = 1, kResidual = 2, kSum = 3;

struct NormParameters {
  double epsilon;
  double offset;  ///< of gamma; -0 where there is none: v + -0 is v
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
  kOwn,
  kChannels
};  ///< an entry an element; the same, dense and of the elements' own type; an entry a channel

/// Calls row.write with f(value, i), i counting this thread's elements, scaled and shifted.
template <Vectors kVectors, bool kReads = true, class Row, class Ahead, class F, class C = typename Row::C>
__device__ __forceinline__ void write_scaled(Row& row, const NormParameters& p, const Ahead& ahead, F f) {
  if constexpr (kVectors == Vectors::kOwn) ahead.wait();
  row.template write<kReads>(kY, [&](C(&values)[Row::kGroup], int64_t i, int64_t spacing, int k) {
#pragma unroll
    for (int j = 0; j < Row::kGroup; ++j) values[j] = f(values[j], k * Row::kGroup + j);
    if constexpr (kVectors == Vectors::kOwn)
      ahead.scale_and_shift(row, i, k, static_cast<C>(p.offset), values);
    else
      scale_and_shift<kVectors == Vectors::kChannels>(row, p.affine, i, spacing, static_cast<C>(p.offset), values);
  });
}

/// The vectors on their way before the row is here; kLate: only where that needs no registers.
template <Vectors kVectors, bool kShifts, bool kLate, class Row>
__device__ __forceinline__ auto fetch_vectors(Row& row, const Affine& a) {
  if constexpr (kVectors == Vectors::kOwn) {
    return OwnVectors<Row, kShifts, kLate>(row, a);
  } else {
    fetch_ahead(row, a);
    return 0;
  }
}

/// What norms prepare: the vectors on their way, and a factor that would cost a division once the row is here.
template <class Fetched, class C>
struct NormAhead {
  Fetched vectors;
  C per_element;  ///< 1 / length
};
template <Vectors kVectors, bool kShifts, bool kLate = false, class Row, class C = typename Row::C>
__device__ __forceinline__ auto prepare_norm(Row& row, const NormParameters& p) {
  auto vectors = fetch_vectors<kVectors, kShifts, kLate>(row, p.affine);
  return NormAhead<decltype(vectors), C>{vectors, C(1) / static_cast<C>(row.length())};
}

template <class Op>
void launch_norm(const char* op, RowPlan& plan, const RowProblem<4>& problem, NormParameters parameters,
                 const Tensor& x) {
  parameters.affine.few_rows = problem.outer.count / plan.rows <= 4 * multiprocessors(x.device());
  parameters.affine.in_vectors = parameters.affine.fits(kVectorBytes / static_cast<int>(item_size(x.dtype())));
  plan.aligned = plan.aligned && parameters.affine.in_vectors;
  core::visit_float(x.dtype(), [&]<class T>() { launch_rows<Op, T>(op, plan, problem, parameters, x.device()); });
}

/// Whether gamma is given, and it and beta, if that is given, lie densely in x's own type.
inline bool has_own_vectors(const RowPlan& plan, const NormTensors& t) {
  const auto is_own = [&](const Tensor& v) { return v.dtype() == t.x.dtype() && item_size(v.dtype()) <= 4; };
  return plan.registers && plan.aligned && !plan.columns && t.gamma.defined() && is_own(t.gamma) &&
         (!t.beta.defined() || is_own(t.beta));
}

/// Many rows of one block each, so large that two or three share a multiprocessor; of the largest, those that fill it.
inline bool in_large_blocks(const RowPlan& plan, const RowProblem<4>& problem, const Tensor& x) {
  const bool full = problem.length == int64_t{plan.threads} * plan.share;
  return item_size(x.dtype()) == 2 && !plan.split && plan.threads > kRowThreads * 2 / 3 &&
         (full || plan.threads < kRowThreads) && problem.outer.count > 4 * multiprocessors(x.device());
}

/// Operators that have a form of their own for those.
template <class Op>
void launch_own(const char* op, RowPlan& plan, const RowProblem<4>& problem, const NormParameters& parameters,
                const Tensor& x) {
  if constexpr (requires { typename Op::InLargeBlocks; })
    if (in_large_blocks(plan, problem, x))
      return launch_norm<typename Op::InLargeBlocks>(op, plan, problem, parameters, x);
  launch_norm<Op>(op, plan, problem, parameters, x);
}

template <template <Vectors, bool> class Op>
void norm_rows(const char* op, const NormTensors& t, double epsilon, double offset) {
  const DeviceGuard guard(t.x.device());
  RowPlan plan;
  RowProblem<4> problem;
  make_rows(op, {t.x, t.y, t.residual, t.sum}, 1, false, plan, problem);
  const bool adds = t.residual.defined();
  const NormParameters parameters{
      epsilon, offset == 0 ? -0.0 : offset, adds, {ParameterVector::of(t.gamma), ParameterVector::of(t.beta), 1, 0, 0}};
  if (!has_own_vectors(plan, t) || !parameters.affine.fits(kVectorBytes / static_cast<int>(item_size(t.x.dtype()))))
    launch_norm<Op<Vectors::kAny, true>>(op, plan, problem, parameters, t.x);
  else if (adds)
    launch_norm<Op<Vectors::kOwn, true>>(op, plan, problem, parameters, t.x);
  else
    launch_own<Op<Vectors::kOwn, false>>(op, plan, problem, parameters, t.x);
}

}  // namespace tenor::cuda
