// What the family's tests on a GPU share: every strategy beside the float64 reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "src/core/text.h"
#include "src/cuda/testing.h"
#include "src/ops/attention/attention_cuda.h"
#include "src/ops/attention/attention_reference.h"
#include "src/ops/attention/attention_testing.h"

namespace tenor::testing {

/// What a test of all kernels is run for: a dtype, and of 16-bit ones also the tensor-core kernel that Hopper does not
/// need.
struct AttentionKernel {
  DType dtype;
  bool portable;
};
class AttentionKernelTest : public CudaTest, public ::testing::WithParamInterface<AttentionKernel> {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (GetParam().portable) portable_.emplace();
  }
  static DType dtype() { return GetParam().dtype; }

 private:
  std::optional<attn::PortableFlash> portable_;
};
inline auto attention_kernels() {
  return ::testing::Values(AttentionKernel{float64, false}, AttentionKernel{float32, false},
                           AttentionKernel{float16, false}, AttentionKernel{bfloat16, false},
                           AttentionKernel{float16, true}, AttentionKernel{bfloat16, true});
}
inline std::string kernel_name(const ::testing::TestParamInfo<AttentionKernel>& info) {
  return core::text("{}{}", info.param.dtype, info.param.portable ? "_portable" : "");
}

struct Operands {
  Tensor q, k, v;
};
inline Operands draw(AttentionDraw& random, DType dtype, int64_t B, int64_t Hq, int64_t G, int64_t Sq, int64_t Sk,
                     int64_t D, int64_t Dv, bool any_layout = false) {
  const auto make = [&](const Dims& shape) {
    return any_layout ? random.view(shape, dtype) : random.dense(shape, dtype);
  };
  const Tensor q = make({B, Hq, Sq, D}), k = make({B, G, Sk, D});
  return {q, k, make({B, G, Sk, Dv})};
}

inline AttentionOptions on_gpu_too(AttentionOptions o) {
  o.mask = on_gpu(o.mask), o.bias = on_gpu(o.bias), o.sinks = on_gpu(o.sinks);
  return o;
}

/// sum_j p_j |v_j|, over which the rounding of weights to 16 bits is spread.
inline std::vector<double> mass(const Operands& x, const AttentionOptions& o) {
  std::vector<double> sizes = values(x.v);
  for (double& size : sizes) size = std::fabs(size);
  return reference::attention(x.q, x.k, tensor_of(x.v.shape(), float64, sizes), o).out;
}

/// Each within its own bound; NaN and infinities exact.
inline void expect_within(const Tensor& got, const std::vector<double>& want, const std::vector<double>& bound,
                          const std::string& what) {
  const std::vector<double> have = values(got);
  ASSERT_EQ(have.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i])   ? std::isnan(have[i])
        : std::isinf(want[i]) ? have[i] == want[i]
                              : std::fabs(have[i] - want[i]) <= bound[i])
      continue;
    FAIL() << what << ": element " << i << " is " << have[i] << ", expected " << want[i] << " within " << bound[i];
  }
}

/// What a strategy may be off by: one rounding of the result, and of the weights to 16 bits as well.
inline std::vector<double> bounds(const std::vector<double>& want, const std::vector<double>& mass, DType dtype,
                                  bool tensorcore) {
  std::vector<double> bound;
  const double weight = !tensorcore || dtype == float32 ? 0
                        : dtype == float16              ? 0x1p-11
                                                        : 0x1p-8,
               round = item_size(dtype) == 2 ? unit(dtype) / 2 : 2 * unit(dtype);
  for (size_t i = 0; i < want.size(); ++i)
    bound.push_back(round * std::fabs(want[i]) + weight * mass[i] + 4e-6 + (weight > 0 ? 1e-5 : 0));
  return bound;
}

/// The flash strategies that take heads of these sizes on this device: those of packed sequences.
inline std::vector<std::string> flash_strategies_for(DType dtype, int64_t dim, int64_t value_dim) {
  std::vector<std::string> names = {"flash_unit"};
  if (dtype != float64 && std::max(dim, value_dim) <= (dtype == float32 ? 128 : 256))
    names.emplace_back("flash_tensorcore");
  return names;
}
inline std::vector<std::string> flash_strategies_for(const Operands& x) {
  return flash_strategies_for(x.q.dtype(), x.q.shape(3), x.v.shape(3));
}
/// All strategies of a dense problem.
inline std::vector<std::string> strategies_for(DType dtype, int64_t dim, int64_t value_dim) {
  std::vector<std::string> names = flash_strategies_for(dtype, dim, value_dim);
  names.emplace_back("fallback");
  return names;
}
inline std::vector<std::string> strategies_for(const Operands& x) {
  return strategies_for(x.q.dtype(), x.q.shape(3), x.v.shape(3));
}

/// Every strategy, into poisoned memory, beside the reference.
inline void check(AttentionDraw& random, const Operands& x, AttentionOptions o) {
  const reference::Attention want = reference::attention(x.q, x.k, x.v, o);
  const std::vector<double> spread = mass(x, o);
  const Dims rows{x.q.shape(0), x.q.shape(1), x.q.shape(2)};
  Dims shape = rows;
  shape.push_back(x.v.shape(3));
  for (const std::string& strategy : strategies_for(x)) {
    AttentionOptions options = on_gpu_too(o);
    options.strategy = strategy, options.return_lse = true;
    options.out = on_gpu(random.coin() ? full(shape, x.q.dtype(), kNan) : random.poisoned(shape, x.q.dtype()));
    options.out_lse = on_gpu(random.coin() ? full(rows, float32, kNan) : random.poisoned(rows, float32));
    const AttentionResult got = attention(on_gpu(x.q), on_gpu(x.k), on_gpu(x.v), options);
    const bool tensorcore = strategy == "flash_tensorcore";
    expect_within(on_cpu(got.out), want.out, bounds(want.out, spread, x.q.dtype(), tensorcore), strategy + " out");
    expect_close(on_cpu(got.lse), want.lse, strategy + " lse", 2, tensorcore && x.q.dtype() != float32 ? 1e-5 : 4e-6);
  }
}

}  // namespace tenor::testing
