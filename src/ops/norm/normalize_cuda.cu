// normalize.
#include <cmath>
#include <limits>

#include "src/cuda/row.cuh"
#include "src/ops/norm/norm_cuda.h"

namespace tenor::cuda {
namespace {

enum class Order : int { kTwo, kOne, kGreatest, kLeast, kCount, kAny };

Order order_of(double p) {
  if (p == 2) return Order::kTwo;
  if (p == 1) return Order::kOne;
  if (std::isinf(p)) return p > 0 ? Order::kGreatest : Order::kLeast;
  return p == 0 ? Order::kCount : Order::kAny;
}

/// The greater (smaller) of two, NaN when either is.
template <bool kGreatest>
struct Extreme {
  template <class C>
  __device__ C operator()(C a, C b) const {
    if (a != a) return a;
    if (b != b) return b;
    return (kGreatest ? a > b : a < b) ? a : b;
  }
};

template <class C>
__device__ C power(C v, double p) {
  if constexpr (sizeof(C) == 4) return powf(v, static_cast<float>(p));
  return pow(v, p);
}

struct Normalize {
  static constexpr int kTensors = 2;
  struct Parameters {
    Order order;
    double p;
    double least;
  };

  template <class Row, class C = typename Row::C>
  static __device__ C norm(Row& row, const Parameters& p) {
    const auto magnitude = [](C v) { return v < C(0) ? -v : v; };
    switch (p.order) {
      case Order::kTwo:
        return sqrt(row.sum([](C v, C& part) { part = fma(v, v, part); }));
      case Order::kOne:
        return row.sum([=](C v, C& part) { part += magnitude(v); });
      case Order::kGreatest:
        return row.combine(C(0), magnitude, Extreme<true>());
      case Order::kLeast:
        return row.combine(std::numeric_limits<C>::infinity(), magnitude, Extreme<false>());
      case Order::kCount:
        return row.sum([](C v, C& part) { part += v == C(0) ? C(0) : C(1); });
      default:
        return power(row.sum([&](C v, C& part) { part += power(magnitude(v), p.p); }), 1 / p.p);
    }
  }

  template <class Row>
  static __device__ int prepare(Row&, const Parameters&) {
    return 0;
  }
  template <class Row, class C = typename Row::C>
  static __device__ void run(Row& row, const Parameters& p, int) {
    // An epsilon below C's range still keeps a row of zeros at zero.
    const C epsilon = static_cast<C>(p.least);
    const C least = p.least > 0 && epsilon == C(0) ? std::numeric_limits<C>::denorm_min() : epsilon;
    const C size = norm(row, p);
    const C divisor = size < least ? least : size;  // NaN stays
    row.write(1, [=](C(&values)[Row::kGroup], int64_t, int64_t, int) {
#pragma unroll
      for (C& v : values) v = v / divisor;
    });
  }
};

}  // namespace

void normalize_rows(const Tensor& x, const Tensor& y, double p, double epsilon) {
  const DeviceGuard guard(x.device());
  RowPlan plan;
  RowProblem<2> problem;
  make_rows("normalize", {x, y}, 1, false, plan, problem);
  core::visit_float(x.dtype(), [&]<class T>() {
    launch_rows<Normalize, T>("normalize", plan, problem, {order_of(p), p, epsilon}, x.device());
  });
}

}  // namespace tenor::cuda
