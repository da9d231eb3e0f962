// What the family's tests share: random problems and comparisons with the reference, on any device.
#pragma once

#include <numeric>

#include "src/core/output.h"
#include "src/core/testing.h"
#include "src/core/text.h"
#include "src/ops/moe/moe_reference.h"
#include "tenor/modes.h"
#include "tenor/moe.h"

namespace tenor::testing {

using moe::RoutingPlan;
using moe::SwiGluExperts;

class MoeDraw : public Draw {
 public:
  MoeDraw(uint32_t seed, Device device) : Draw(seed), device_(device) {}
  Device device() const { return device_; }
  int64_t between(int64_t low, int64_t high) { return low + upto(high - low); }

  /// Those numbers under any layout, on the device.
  Tensor placed(const Dims& shape, DType dtype, const std::vector<double>& elements, bool any = true) {
    const Tensor host = tensor_of(shape, dtype, elements);
    if (!any) return host.to(device_);
    const Tensor there = any_layout(shape, dtype);
    assign(there, elements);
    if (device_ == kCpu || there.numel() == 0) return there.to(device_);
    int64_t reach = 1;  // gaps included
    for (int d = 0; d < there.ndim(); ++d) reach += (there.shape(d) - 1) * there.stride(d);
    return there.with_layout({there.offset() + reach}, {1}, 0)
        .to(device_)
        .with_layout(shape, there.strides(), there.offset());
  }
  Tensor normal(const Dims& shape, DType dtype, double scale = 1, bool any = true) {
    std::vector<double> elements = normals(product(shape));
    for (double& e : elements) e *= scale;
    return placed(shape, dtype, elements, any);
  }
  /// A plan of the caller's own: any expert any number of times, some slots -1, a share of them on expert 0.
  RoutingPlan plan(int64_t T, int64_t K, int64_t E, DType dtype, bool skewed = false) {
    std::vector<double> ids(static_cast<size_t>(T * K));
    for (double& e : ids) e = upto(9) == 0 ? -1 : skewed && upto(3) > 0 ? 0 : static_cast<double>(upto(E - 1));
    return RoutingPlan(placed({T, K}, int32, ids), normal({T, K}, dtype), E);
  }

 private:
  Device device_;
};

inline std::vector<double> on_host(const Tensor& x) { return values(x.to(kCpu)); }

inline std::vector<double> row_of(const std::vector<double>& x, int64_t row, int64_t width) {
  return {x.begin() + row * width, x.begin() + (row + 1) * width};
}

/// ids and weights of a plan, row by row, against choice(row). Scores that float32 cannot tell apart may stand in
/// either order, unless `exactly`.
template <class Choice>
void expect_routes(const RoutingPlan& plan, DType dtype, bool exactly, Choice&& choice, const std::string& what) {
  const std::vector<double> ids = on_host(plan.expert_indices(int32)), weights = on_host(plan.weights());
  const bool wide = dtype == float64;
  const double relative = dtype == bfloat16 ? 0.005 : dtype == float16 ? 0.0006 : wide ? 1e-13 : 4e-6;
  const double absolute = wide ? 1e-16 : 1e-7;
  for (int64_t t = 0; t < plan.tokens(); ++t) {
    const moe::reference::Choice want = choice(t);
    for (int64_t k = 0; k < plan.top_k(); ++k) {
      const double weight = weights[t * plan.top_k() + k];
      if (exactly) {
        ASSERT_EQ(ids[t * plan.top_k() + k], want.ids[k]) << what << " row " << t << " slot " << k;
      }
      if (std::isnan(want.weights[k])) {
        ASSERT_TRUE(std::isnan(weight)) << what << " row " << t;
      } else {
        ASSERT_NEAR(weight, want.weights[k], relative * std::abs(want.weights[k]) + absolute)
            << what << " row " << t << " slot " << k;
      }
    }
  }
}

/// What a plan says of the order of its slots.
struct Order {
  std::vector<int64_t> slots;    ///< dispatched ones, t * K + k, by row
  std::vector<int64_t> offsets;  ///< [E + 1]
};
inline Order order_of(const RoutingPlan& plan) {
  const std::vector<double> ids = on_host(plan.expert_indices(int32));
  Order o;
  for (int64_t i = 0; i < static_cast<int64_t>(ids.size()); ++i)
    if (ids[i] >= 0) o.slots.push_back(i);
  std::stable_sort(o.slots.begin(), o.slots.end(), [&](int64_t a, int64_t b) { return ids[a] < ids[b]; });
  for (int64_t e = 0; e <= plan.experts(); ++e)
    o.offsets.push_back(
        std::count_if(ids.begin(), ids.end(), [&](double id) { return id >= 0 && id < static_cast<double>(e); }));
  return o;
}

/// Rows through their experts in float64, [R,H], R rows of x [R,H] with offsets.
inline std::vector<double> experts_reference(const SwiGluExperts& e, const Tensor& x,
                                             const std::vector<int64_t>& offsets) {
  const int64_t E = e.gate().shape(0), I = e.gate().shape(1), H = e.gate().shape(2);
  const std::vector<double> g = on_host(e.gate()), u = on_host(e.up()), d = on_host(e.down()), rows = on_host(x);
  std::vector<double> out(rows.size(), 0.0);
  const auto round = [&](double v) {
    return core::visit_float(x.dtype(), [&]<class T>() { return static_cast<double>(core::widen(core::cast<T>(v))); });
  };
  for (int64_t n = 0; n < E; ++n)
    for (int64_t r = offsets[n]; r < offsets[n + 1]; ++r) {
      const auto y = moe::reference::expert(g.data() + n * I * H, u.data() + n * I * H, d.data() + n * I * H,
                                            rows.data() + r * H, I, H, round);
      std::copy(y.begin(), y.end(), out.begin() + r * H);
    }
  return out;
}

/// Relative error by Frobenius norms; infinite where one is NaN.
inline double relative_error(const std::vector<double>& have, const std::vector<double>& want) {
  double error = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i)
    error += (have[i] - want[i]) * (have[i] - want[i]), size += want[i] * want[i];
  const double ratio = std::sqrt(error / (size > 0 ? size : 1));
  return std::isnan(ratio) ? kInf : ratio;
}
inline double allowed_error(DType dtype) {
  return dtype == bfloat16 ? 1.0 / 256 : dtype == float16 ? 1.0 / 2048 : dtype == float32 ? 1e-5 : 1e-12;
}

/// A result's memory, poisoned.
inline Tensor poisoned(const Dims& shape, DType dtype, Device device) { return full(shape, dtype, kNan).to(device); }

/// Sum over slots of weight * y + shared, in float64.
inline std::vector<double> combine_reference(const RoutingPlan& plan, const std::vector<double>& y, int64_t H,
                                             const Tensor& shared = {}) {
  const Order o = order_of(plan);
  const std::vector<double> weights = on_host(plan.weights());
  std::vector<double> out =
      shared.defined() ? on_host(shared) : std::vector<double>(static_cast<size_t>(plan.tokens() * H));
  for (size_t row = 0; row < o.slots.size(); ++row)
    for (int64_t h = 0; h < H; ++h)
      out[o.slots[row] / plan.top_k() * H + h] += weights[o.slots[row]] * y[static_cast<int64_t>(row) * H + h];
  return out;
}

}  // namespace tenor::testing
