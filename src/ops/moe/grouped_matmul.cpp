// The contract of moe.grouped_matmul. Kernels: experts_cpu.cpp, grouped_cuda.cpp.
#include "src/core/backend.h"
#include "src/core/output.h"
#include "src/core/registry.h"
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

/// @throws ValueError unless they rise from 0 to at most `rows`
void check_offsets(const Tensor& offsets, int64_t rows) {
  const int64_t* at = offsets.data<int64_t>();
  for (int64_t g = 0; g < offsets.shape(0); ++g) {
    const int64_t least = g == 0 ? 0 : at[g - 1], most = g == 0 ? 0 : rows;
    if (at[g] < least || at[g] > most)
      fail<ValueError>("{}: offsets must rise from 0 to at most {}, got {} at {}", kOp, rows, at[g], g);
  }
}

}  // namespace

Tensor grouped_matmul(const Tensor& x, const Tensor& weight, const Tensor& offsets,
                      const GroupedMatmulOptions& options) {
  core::check_float(kOp, {"x", x});
  core::check_ndim(kOp, {"x", x}, 2);
  core::check_ndim(kOp, {"weight", weight}, 3);
  core::check_same_dtype(kOp, {"x", x}, {"weight", weight});
  if (weight.shape(2) != x.shape(1))
    fail<ShapeError>("{}: weight must have x's K = {}, got shape {}", kOp, x.shape(1), weight.shape());
  core::check_given(kOp, {"offsets", offsets});
  if (offsets.dtype() != int32 && offsets.dtype() != int64)
    fail<DTypeError>("{}: offsets must be int32 or int64, got {}", kOp, offsets.dtype());
  core::check_shape(kOp, {"offsets", offsets}, {weight.shape(0) + 1});
  core::check_same_device(kOp, {{"x", x}, {"weight", weight}, {"offsets", offsets}});
  const int64_t M = x.shape(0), N = weight.shape(1), K = x.shape(1);
  if (M >= INT32_MAX) fail<ShapeError>("{}: x has {} rows, more than 2^31 - 2", kOp, M);
  Tensor at = offsets;
  if (!core::StepScope::shape_only(x) && !core::on_cuda(x)) {
    at = offsets.to(int64).contiguous();
    check_offsets(at, M);
  }
  core::Output out(kOp, options.out, {M, N}, x.dtype(), x, {&x, &weight, &offsets}, {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    Step s{kOp,
           OpClass::kContraction,
           {x, weight, offsets},
           {out.target()},
           core::count_product(core::count_product(M, 2), core::count_product(N, K))};
    s.reads = {-1, core::count_product(std::min(M, weight.shape(0)), core::count_product(N, K)), -1};
    state_dense_rows(s, "x", x);
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
