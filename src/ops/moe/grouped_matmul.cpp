// The contract of moe.grouped_matmul. Kernels: experts_cpu.cpp, grouped_cuda.cpp.
#include "src/core/backend.h"
#include "src/core/device_traits.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/sequences.h"
#include "src/ops/moe/moe_checks.h"
#include "src/ops/moe/moe_cuda.h"

namespace tenor::moe {
namespace {

using core::fail;
using core::OpClass;
using core::Step;

constexpr const char* kOp = "moe.grouped_matmul";

const core::OpRegistration kOps({
    {kOp, "moe", OpClass::kContraction,
     "x[M,K], weight[G,N,K], offsets[G+1] -> x[i] weight[g]^T for the rows i of each group g [M,N]"},
});

}  // namespace

Tensor grouped_matmul(const Tensor& x, const Tensor& weight, const Tensor& offsets,
                      const GroupedMatmulOptions& options) {
  core::check_float(kOp, {"x", x});
  core::check_ndim(kOp, {"x", x}, 2);
  core::check_ndim(kOp, {"weight", weight}, 3);
  core::check_same_dtype(kOp, {"x", x}, {"weight", weight});
  if (weight.shape(2) != x.shape(1))
    fail<ShapeError>("{}: weight must have x's K = {}, got shape {}", kOp, x.shape(1), weight.shape());
  core::check_cu_seqlens(kOp, {"offsets", offsets});
  core::check_shape(kOp, {"offsets", offsets}, {weight.shape(0) + 1});
  core::check_same_device(kOp, {{"x", x}, {"weight", weight}, {"offsets", offsets}});
  const int64_t M = x.shape(0), N = weight.shape(1), K = x.shape(1);
  if (M >= INT32_MAX) fail<ShapeError>("{}: x has {} rows, more than 2^31 - 2", kOp, M);
  Tensor at = offsets;
  if (!core::StepScope::shape_only(x) && !core::on_cuda(x)) {
    core::read_cu_seqlens(kOp, {"offsets", offsets}, M);
    at = offsets.to(int64).contiguous();
  }
  core::Output out(kOp, options.out, {M, N}, x.dtype(), x, {&x, &weight, &offsets}, {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    Step s{kOp,
           OpClass::kContraction,
           {x, weight, offsets},
           {out.target()},
           core::count_product(core::count_product(M, 2), core::count_product(N, K))};
    s.reads = {-1, core::count_product(std::min(M, weight.shape(0)), core::count_product(N, K)), -1};
    s.recipe =
        core::recipe([](const auto& in, const auto& outs) { grouped_matmul(in[0], in[1], in[2], {.out = outs[0]}); });
    state_dense_rows(s, "x", x);
    const bool tensor_cores = x.dtype() == float16 || x.dtype() == bfloat16;
    if (tensor_cores && core::runs_on(x.device()) == DeviceType::kCuda) state_unit_strides(s, "weight", weight);
    return s;
  });
  if (step.shape_only(out.target())) return out.target();
  write_dense(out.target(), [&](const Tensor& y) {
    if (y.numel() == 0) return;
    const GroupedRows p{kOp, dense_rows(x), weight, at, y};
    if constexpr (core::kHasCuda) {
      if (core::on_cuda(x)) return cuda::grouped_matmul(p);
    }
    grouped_matmul_cpu(p);
    clear_tail(kOp, at, y);
  });
  return out.finish();
}

}  // namespace tenor::moe
