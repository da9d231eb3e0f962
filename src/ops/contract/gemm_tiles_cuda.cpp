// The "tiles" candidate on CUDA: 16-bit products by the Hopper GEMM of src/cuda/gemm. Operands that it cannot read
// where they lie are copied, so that it takes every shape and stride: under batch_invariant() it alone serves these
// dtypes, and a row has the same bits alone and in any batch.
#include "src/core/output.h"
#include "src/cuda/gemm/sm90_gemm.h"
#include "src/cuda/runtime.h"
#include "src/ops/contract/gemm_cuda_candidates.h"
#include "src/ops/contract/gemm_kernels.h"

namespace tenor::contract {
namespace {

cuda::gemm::GemmProblem sm90_problem(const GemmProblem& p, bool b_outer) {
  cuda::gemm::GemmProblem out{p.a.data,
                              p.b.data,
                              p.c.data,
                              static_cast<int>(p.m),
                              static_cast<int>(p.n),
                              static_cast<int>(p.k),
                              p.a.row,
                              b_outer ? p.b.row : p.b.col,
                              p.c.row,
                              p.a.dtype == DType::kBFloat16};
  out.b_outer = b_outer, out.float_result = p.c.dtype == DType::kFloat32, out.column_c = p.c.col;
  for (size_t d = 0; d < p.batch.size(); ++d) {
    out.batch[d] = static_cast<int>(p.batch[d]);
    out.batch_a[d] = p.a.batch[d], out.batch_b[d] = p.b.batch[d], out.batch_c[d] = p.c.batch[d];
  }
  out.bias = p.bias, out.bias_float = p.bias_dtype == DType::kFloat32, out.bias_row = p.bias_row,
  out.bias_column = p.bias_col;
  return out;
}

}  // namespace

void cuda_tiles_run(const GemmProblem& problem) {
  const cuda::DeviceGuard guard(problem.device);
  TilesProblem t = tiles_problem(problem);
  GemmProblem& p = t.problem;
  const Tensor a = t.copy_a ? align_rows(p.a, p.batch, p.m, p.k, p.device) : Tensor();
  Matrix columns = turned(p.b);
  const Tensor b = t.copy_b ? align_rows(columns, p.batch, p.n, p.k, p.device) : Tensor();
  p.b = turned(columns);
  for_each_part(p, 2, [&](const GemmProblem& part) {
    cuda::gemm::GemmProblem sm90 = sm90_problem(part, t.b_outer);
    const cuda::gemm::GemmPlan plan = cuda::gemm::sm90_gemm_choice(sm90);
    const int64_t bytes = static_cast<int64_t>(cuda::gemm::sm90_gemm_workspace(sm90, plan));
    const Tensor workspace = bytes ? Tensor::empty({bytes}, uint8, p.device) : Tensor();
    sm90.workspace = bytes ? workspace.raw() : nullptr;
    cuda::check(cuda::gemm::sm90_gemm(sm90, plan, current_stream(p.device).handle), "matmul");
  });
}

}  // namespace tenor::contract
