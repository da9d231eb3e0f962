// softmax and log_softmax.
#include <cmath>

#include "src/cuda/ptx/float.cuh"
#include "src/cuda/row.cuh"
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

/// Joins the maxima of parts of a row and the sums of exponentials about them. A part without a maximum has the sum 0,
/// or NaN.
template <class T, class C = core::Compute<T>>
struct JoinExponentials {
  template <class Parts>
  __device__ __forceinline__ Pack<C, 2> operator()(const Parts& parts) const {
    Pack<C, 1> top{C(-INFINITY)};
    parts.each([&](const Pack<C, 2>& part) { top.at[0] = Max()(top.at[0], part.at[0]); });
    top = parts.combined(top, Each<Max>());
    const C about = finite_or_zero(top.at[0]);
    Pack<C, 1> sum{};
    parts.each([&](const Pack<C, 2>& part) { sum.at[0] += part.at[1] * exponential<T>(part.at[0] - about); });
    return {top.at[0], parts.combined(sum, Each<Sum>()).at[0]};
  }
  /// What exponentials are taken about where the maximum is -inf, so that they are 0 and not NaN.
  static __device__ __forceinline__ C finite_or_zero(C top) { return top == C(-INFINITY) ? C(0) : top; }
};

/// A NaN is passed over by the maximum; then it makes the sum NaN, and with it the row.
template <bool kLog>
struct Softmax {
  static constexpr int kTensors = 2;
  struct Parameters {};

  template <class Row>
  static __device__ int prepare(Row&, const Parameters&) {
    return 0;
  }
  template <class Row, class C = typename Row::C, class T = typename Row::Element>
  static __device__ void run(Row& row, const Parameters&, int) {
    constexpr bool kScales = sizeof(T) < 8;                   // by the sum's reciprocal
    constexpr bool kKeeps = !kLog && kScales && Row::kDense;  // the exponentials, until the sum is known
    C kept[kKeeps ? Row::kPacks * Row::kGroup : 1];
    const Pack<C, 1> own{row.own_combine(
        C(-INFINITY), [](C v) { return v; }, Max())};
    // About the maximum of this thread's near group first.
    const C near_top = row.near(own, Each<Max>()).at[0], about = JoinExponentials<T>::finite_or_zero(near_top);
    const Pack<C, 1> near_sum = row.near(row.template own_sums<1>([&](C v, C(&part)[1], int i) {
      const C e = exponential<T>(v - about);
      if constexpr (kKeeps) kept[i] = e;
      part[0] += e;
    }),
                                         Each<Sum>());
    const Pack<C, 2> all = row.join(Pack<C, 2>{near_top, near_sum.at[0]}, JoinExponentials<T>());
    const C top = all.at[0], sum = all.at[1], log_sum = kLog ? logarithm(sum) : C(0);
    // A group without a maximum has exponentials of 0, or NaN, which no scale changes.
    const C scale = (near_top == C(-INFINITY) ? C(1) : exponential<T>(about - top)) / sum;
    row.template write<!kKeeps>(1, [&](C(&values)[Row::kGroup], int64_t, int64_t, int k) {
#pragma unroll
      for (int j = 0; j < Row::kGroup; ++j) {
        if constexpr (kLog)
          values[j] = values[j] - top - log_sum;
        else if constexpr (kKeeps)
          values[j] = kept[k * Row::kGroup + j] * scale;
        else if constexpr (kScales)
          values[j] = exponential<T>(values[j] - about) * scale;
        else
          values[j] = exponential<T>(values[j] - top) / sum;
      }
    });
  }
};

}  // namespace

void softmax_rows(const char* op, const Tensor& x, const Tensor& y, bool log) {
  const DeviceGuard guard(x.device());
  RowPlan plan;
  RowProblem<2> problem;
  make_rows(op, {x, y}, 1, false, plan, problem);
  core::visit_float(x.dtype(), [&]<class T>() {
    log ? launch_rows<Softmax<true>, T>(op, plan, problem, {}, x.device())
        : launch_rows<Softmax<false>, T>(op, plan, problem, {}, x.device());
  });
}

}  // namespace tenor::cuda
