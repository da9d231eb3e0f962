// The one problem that every contraction comes down to, and the ways of computing it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "src/core/candidates.h"
#include "src/core/step.h"
#include "tenor/dtype.h"
#include "tenor/tensor.h"

namespace tenor::contract {

/// A batch of matrices as it lies in memory. Strides count elements; those of size-1 dims carry no meaning.
struct Matrix {
  char* data = nullptr;  ///< the first element; written only through `c`
  DType dtype = DType::kFloat32;
  int64_t row = 0, col = 0;
  Dims batch = {};             ///< a stride for each dim of the batch, 0 where the matrix is shared
  const char* argument = "x";  ///< what the operator calls it
};

/// c[b] = a[b] @ b[b] + bias, rounded once to c's dtype.
struct GemmProblem {
  int64_t m = 0, n = 0, k = 0;
  Dims batch = {};
  Matrix a, b, c;                      ///< [m, k], [k, n], [m, n]
  DType compute = DType::kFloat32;     ///< what is multiplied and added: float32, float64, an integer or bool
  const void* bias = nullptr;          ///< element (i, j) gets bias[i * bias_row + j * bias_col]
  DType bias_dtype = DType::kFloat32;  ///< the compute dtype; on CUDA c's dtype too
  int64_t bias_row = 0, bias_col = 0;
  Device device = {};            ///< where the matrices are; of traced shapes, the described device's candidates speak
  bool batch_invariant = false;  ///< each output's bits may depend on its row, its column and k alone
  std::vector<Matrix> operands = {};  ///< of an epilogue (epilogue.h): [m, n], a stride of 0 where one repeats
};

using GemmCandidate = core::Candidate<GemmProblem>;

/// A device's candidates in order of preference; the last one takes every problem. In a build without CUDA its
/// candidates can be asked, not run.
std::span<const GemmCandidate> gemm_candidates(DeviceType device = DeviceType::kCpu);
/// That normalised problem's, on its device: of middle sizes oneDNN comes before the AMX tiles.
std::span<const GemmCandidate> gemm_candidates(const GemmProblem& p);
/// Their names.
std::vector<std::string> gemm_strategies(DeviceType device = DeviceType::kCpu);
/// The names on every device of this build, for the registry.
std::vector<std::string> all_gemm_strategies();

/// The same problem in the form that the candidates expect: batch dims of size 1 dropped and neighbours merged, batches
/// that only lengthen m or n folded into it, and c row-major where either order will do.
GemmProblem normalized(GemmProblem problem);

/// The roles of a and b exchanged: c^T = b^T a^T. The bits stay, since a product commutes.
GemmProblem transposed(GemmProblem problem);

/// Calls fn with problems of at most `dims` batch dims (the largest) that make up this one.
void for_each_part(const GemmProblem& problem, size_t dims, const std::function<void(const GemmProblem&)>& fn);

/// Runs it (normalises it first). Nothing to do for an empty c.
void run_gemm(const GemmProblem& problem);
/// The candidate that run_gemm would take and why others decline: Step::strategy. States the copies that it would make.
std::string explain_gemm(const GemmProblem& problem, std::vector<core::Copy>* copies = nullptr);

/// While it lives, run_gemm on this thread takes the candidate of that name ("auto": the usual choice). For tests.
class StrategyGuard {
 public:
  explicit StrategyGuard(std::string_view strategy);
  ~StrategyGuard();
  StrategyGuard(const StrategyGuard&) = delete;
  StrategyGuard& operator=(const StrategyGuard&) = delete;

 private:
  std::string previous_;
};

/// Calls fn(a, b, c) with the data of each matrix of the batch in [first, last), counted row-major.
template <class F>
void for_each_matrix(const GemmProblem& p, int64_t first, int64_t last, F&& fn) {
  const int64_t sa = static_cast<int64_t>(item_size(p.a.dtype)), sb = static_cast<int64_t>(item_size(p.b.dtype)),
                sc = static_cast<int64_t>(item_size(p.c.dtype));
  for (int64_t i = first; i < last; ++i) {
    int64_t rest = i, a = 0, b = 0, c = 0;
    for (size_t d = p.batch.size(); d-- > 0;) {
      const int64_t at = rest % p.batch[d];
      rest /= p.batch[d];
      a += at * p.a.batch[d], b += at * p.b.batch[d], c += at * p.c.batch[d];
    }
    fn(p.a.data + a * sa, p.b.data + b * sb, p.c.data + c * sc);
  }
}

/// Whether a float32 problem's operand dtypes are those that the float kernels widen as they read.
inline bool reads_as_float(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

}  // namespace tenor::contract
