// softmax and log_softmax.
#include <cmath>

#include "src/cuda/row.cuh"
#include "src/cuda/ptx/float.cuh"
#include "src/ops/norm/norm_cuda.h"

namespace tenor::cuda {
namespace {

/// e^v. For results that are rounded to 16 bits, by the hardware's 2^v, whose error grows to 2^-17 where e^v nears 0.
template <class T>
__device__ __forceinline__ core::Compute<T> exponential(core::Compute<T> v) {
  if constexpr (sizeof(T) == 2) {
    return ptx::exp2_approximate(v * 1.4426950408889634f);
  } else if constexpr (sizeof(T) == 4) {
    return expf(v);
  } else {
    return exp(v);
  }
}
__device__ __forceinline__ float logarithm(float v) { return logf(v); }
__device__ __forceinline__ double logarithm(double v) { return log(v); }

/// The maximum and the sum of exponentials about it, of two parts of a row. A part without a maximum has the sum 0, or
/// NaN.
template <class T, class C = core::Compute<T>>
struct JoinExponentials {
  __device__ __forceinline__ Pack<C, 2> operator()(const Pack<C, 2>& a, const Pack<C, 2>& b) const {
    const C top = Max()(a.at[0], b.at[0]), about = finite_or_zero(top);
    return {top, a.at[1] * exponential<T>(a.at[0] - about) + b.at[1] * exponential<T>(b.at[0] - about)};
  }
  /// What exponentials are taken about where the maximum is -inf, so that they are 0 and not NaN.
  static __device__ __forceinline__ C finite_or_zero(C top) { return top == C(-INFINITY) ? C(0) : top; }
};

/// A NaN is passed over by the maximum; then it makes the sum NaN, and with it the row.
struct Softmax {
  static constexpr int kTensors = 2;
  struct Parameters {
    bool log;
  };

  template <class Row, class C = typename Row::C, class T = typename Row::Element>
  static __device__ void run(Row& row, const Parameters& p) {
    const auto itself = [](C v) { return v; };
    C top, sum;
    if (row.meets_late()) {
      using Join = JoinExponentials<T>;
      top = row.own_combine(C(-INFINITY), itself, Max());
      const C about = Join::finite_or_zero(top);
      sum = row.template own_sums<1>([=](C v, C(&out)[1]) { out[0] = exponential<T>(v - about); }).at[0];
      const Pack<C, 2> all = row.meet(Pack<C, 2>{top, sum}, Pack<C, 2>{C(-INFINITY), C(0)}, Join());
      top = all.at[0], sum = all.at[1];
    } else {
      top = row.combine(C(-INFINITY), itself, Max());
      sum = row.sum([=](C v) { return exponential<T>(v - top); });
    }
    if (p.log) {
      const C log_sum = logarithm(sum);
      row.write(1, [=](C(&values)[Row::kGroup], int64_t, int64_t, int) {
#pragma unroll
        for (C& v : values) v = v - top - log_sum;
      });
    } else {
      const C inverse = C(1) / sum;
      row.write(1, [=](C(&values)[Row::kGroup], int64_t, int64_t, int) {
#pragma unroll
        for (C& v : values) v = sizeof(T) == 2 ? exponential<T>(v - top) * inverse : exponential<T>(v - top) / sum;
      });
    }
  }
};

}  // namespace

void softmax_rows(const char* op, const Tensor& x, const Tensor& y, bool log) {
  const DeviceGuard guard(x.device());
  RowPlan plan;
  RowProblem<2> problem;
  make_rows(op, {x, y}, 1, false, plan, problem);
  core::visit_float(x.dtype(), [&]<class T>() { launch_rows<Softmax, T>(op, plan, problem, {log}, x.device()); });
}

}  // namespace tenor::cuda
