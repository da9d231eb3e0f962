// The "tiles" candidate on CUDA: 16-bit products by the Hopper GEMM of src/cuda/gemm. Operands that it cannot read
// where they lie are copied, so that it takes every shape and stride: under batch_invariant() it alone serves these
// dtypes, and a row has the same bits alone and in any batch.
#include "src/core/output.h"
#include "src/cuda/capability.h"
#include "src/cuda/gemm/sm90_gemm.h"
#include "src/cuda/runtime.h"
#include "src/ops/contract/gemm_cuda.h"
#include "src/ops/contract/gemm_kernels.h"

namespace tenor::contract {
namespace {

/// The problem as the Hopper GEMM takes it: a's rows contiguous along k, b's columns along k or its rows along n.
struct TilesProblem {
  GemmProblem problem;
  bool b_outer = false;                 ///< b's rows along n
  bool copy_a = false, copy_b = false;  ///< operands that do not lie so
};

Matrix turned(Matrix x) {
  std::swap(x.row, x.col);
  return x;
}

/// Whether rows of x are read where they lie: contiguous, aligned, no row inside another.
bool lies_well(const Matrix& x, int64_t rows, int64_t cols) {
  return rows_aligned(x, rows, cols) && (rows == 1 || x.row >= cols);
}

TilesProblem tiles_problem(const GemmProblem& p) {
  TilesProblem out{p};
  // Exchanging the operands puts b's contiguous k in a's place where a has none.
  if (!lies_well(p.a, p.m, p.k) && lies_well(turned(p.b), p.n, p.k)) out.problem = transposed(p);
  const GemmProblem& q = out.problem;
  out.copy_a = !lies_well(q.a, q.m, q.k);
  if (lies_well(turned(q.b), q.n, q.k)) return out;
  out.b_outer = lies_well(q.b, q.k, q.n);
  out.copy_b = !out.b_outer;
  return out;
}

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

std::string cuda_tiles_why_not(const GemmProblem& p) {
  if (p.compute != DType::kFloat32 || p.a.dtype != p.b.dtype || p.a.dtype == DType::kFloat32)
    return "takes bfloat16 and float16, not mixed";
  if (p.c.dtype != p.a.dtype && p.c.dtype != DType::kFloat32) return "writes the operands' dtype or float32";
  if (p.bias && p.bias_dtype != p.a.dtype && p.bias_dtype != DType::kFloat32)
    return "takes a bias of the operands' dtype or float32";
  constexpr int64_t kMaxSize = INT32_MAX - 512;
  const int64_t batch = product(p.batch);  // of which two dims go into one launch
  if (p.m > kMaxSize || p.n > kMaxSize || p.k > kMaxSize || batch > kMaxSize ||
      (p.m / 128 + 1) * (p.n / 64 + 1) > kMaxSize / batch)
    return "it has more than 2^31 tiles";
  return cuda::capability(p.device).hopper ? "" : "the device is no Hopper GPU, or this build has no code of sm_90a";
}

void cuda_tiles_run(const GemmProblem& problem) {
  const cuda::DeviceGuard guard(problem.device);
  TilesProblem t = tiles_problem(problem);
  GemmProblem& p = t.problem;
  const Tensor a = t.copy_a ? align_rows(p.a, p.batch, p.m, p.k, p.device) : Tensor();
  Matrix columns = turned(p.b);
  const Tensor b = t.copy_b ? align_rows(columns, p.batch, p.n, p.k, p.device) : Tensor();
  p.b = turned(columns);
  for_each_part(p, 2, [&](const GemmProblem& part) {
    cuda::check(cuda::gemm::sm90_gemm(sm90_problem(part, t.b_outer), current_stream(p.device).handle), "matmul");
  });
}

void cuda_tiles_state_copies(const GemmProblem& problem, std::vector<core::Copy>& copies) {
  const TilesProblem t = tiles_problem(problem);
  const GemmProblem& p = t.problem;
  const auto state = [&](const Matrix& x, const char* name, int64_t rows) {
    int64_t elements = rows * p.k;
    for (size_t d = 0; d < p.batch.size(); ++d) elements *= x.batch[d] == 0 ? 1 : p.batch[d];
    copies.push_back({name, elements * static_cast<int64_t>(item_size(x.dtype)),
                      "its rows do not start at multiples of 16 bytes, with k or n contiguous"});
  };
  if (t.copy_a) state(p.a, p.a.data == problem.a.data ? "x" : "other", p.m);
  if (t.copy_b) state(p.b, p.b.data == problem.b.data ? "other" : "x", p.n);
}

}  // namespace tenor::contract
