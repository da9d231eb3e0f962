// What each CUDA candidate takes, and the copies that it makes. Of a traced problem the described device is asked
// (src/core/device_traits.h); what cuBLASLt itself finds only a device at hand can say.
#include "src/ops/contract/gemm_cuda_candidates.h"

#include <algorithm>
#include <cmath>

#include "src/core/backend.h"
#include "src/core/compute_capability.h"
#include "src/ops/contract/epilogue.h"
#include "src/ops/contract/gemm_cuda.h"
#include "src/ops/contract/gemm_kernels.h"

namespace tenor::contract {
namespace {

constexpr int64_t kLeastInner = 256;  // of "rows", whose blocks split k over their warps
constexpr int64_t kMaxParts = 64;     // of "vendor": matrices beyond one batch dim are calls of their own
using core::kHopper;

/// Whether rows of x are read where they lie: contiguous, aligned, no row inside another.
bool lies_well(const Matrix& x, int64_t rows, int64_t cols) {
  return rows_aligned(x, rows, cols) && (rows == 1 || x.row >= cols);
}

/// Whether y / s is y * (1 / s) but for roundings: also where s is 0, infinite or NaN.
bool multiplies_instead(float s) { return s == 0 || !std::isfinite(s) || std::isnormal(1 / s); }

bool vendor_takes_dtypes(const GemmProblem& p) {
  if (p.a.dtype != p.b.dtype || !is_float(p.compute)) return false;
  if (p.compute == DType::kFloat64) return p.a.dtype == DType::kFloat64 && p.c.dtype == DType::kFloat64;
  return p.c.dtype == p.a.dtype || p.c.dtype == DType::kFloat32;
}

std::string vendor_strides_why_not(const GemmProblem& p) {
  constexpr int64_t kMaxSize = INT32_MAX;
  if (p.m > kMaxSize || p.n > kMaxSize || p.k > kMaxSize || batch_of(p) > kMaxSize)
    return "a dim has more than 2^31 - 1 elements";
  if (!operand_of(p.a, p.m, p.k).readable || !operand_of(p.b, p.k, p.n).readable)
    return "an operand has no dim of unit stride, or its rows overlap";
  const Operand c = operand_of(p.c, p.m, p.n);
  if (!c.readable || c.transposed) return "the result has no dim of unit stride";
  return {};
}

}  // namespace

bool rows_aligned(const Matrix& x, int64_t rows, int64_t cols) {
  const int64_t unit = 16 / static_cast<int64_t>(item_size(x.dtype));
  bool aligned =
      (x.col == 1 || cols == 1) && reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && (rows == 1 || x.row % unit == 0);
  for (int64_t step : x.batch) aligned = aligned && step % unit == 0;
  return aligned;
}

std::string cuda_rows_why_not(const GemmProblem& problem) {
  if (problem.batch_invariant) return "its order over k is not that of many rows";
  if (problem.compute != DType::kFloat32 && problem.compute != DType::kFloat64)
    return "takes float32, float64, bfloat16 and float16";
  if (problem.a.dtype != problem.b.dtype) return "the operands' dtypes differ";
  if (problem.compute == DType::kFloat64 && (problem.a.dtype != DType::kFloat64 || problem.c.dtype != DType::kFloat64))
    return "takes float64 operands alone to a float64 result";
  const GemmProblem p = with_few_rows(problem);
  const FewRows few = few_rows_of(p.a.dtype);
  const bool dots = p.b.row == 1, streams = dots && cuda_tiles_streams(p);
  if (p.m > (streams ? kMostStreamed : std::max(few.dots, few.sums)))
    return "takes at most 16 rows or columns, of float32 4 or 8, of float64 1";
  if (dots && !streams && p.m > few.dots)
    return few.dots == 8 ? "takes more than 8 rows only of 6144 contiguous columns and more"
                         : "takes more than 4 rows of float32 only where the matrix's rows are contiguous";
  if (p.k < kLeastInner) return "k is below 256: too short a sum to be split";
  return p.b.row == 1 || p.b.col == 1 ? "" : "the matrix has no dim of unit stride";
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
  return core::device_traits(p.device).capability == kHopper
             ? ""
             : "the device is no Hopper GPU, or this build has no code of sm_90a";
}

bool cuda_tiles_streams(const GemmProblem& p) {
  // Below that, too few columns a multiprocessor for one chain over k each to keep pace with the memory.
  constexpr int64_t kLeastColumns = 6144;
  return p.a.dtype != DType::kFloat32 && p.n * product(p.batch) >= kLeastColumns && p.b.row == 1 &&
         lies_well(turned(p.b), p.n, p.k) && cuda_tiles_why_not(p).empty();
}

std::string cuda_epilogue_why_not(const GemmProblem& p, const Epilogue& epilogue) {
  constexpr int64_t kStreamed = 64;  // rows or columns that a kernel without takes, at the memory's pace
  if (std::string why = cuda_tiles_why_not(p); !why.empty()) return why;
  if (p.batch_invariant)
    return "on CUDA under batch_invariant() an epilogue would give a row other bits than it has among 64 or fewer, "
           "which run without";
  if (p.c.dtype != p.a.dtype) return "on CUDA it stores the operands' dtype";
  if (std::min(p.m, p.n) <= kStreamed) return "few rows or columns run at the memory's pace by a kernel without";
  if (p.operands.size() > kEpilogueOperands || epilogue.steps.size() > kEpilogueSteps)
    return "on CUDA it has at most 6 steps and 3 arrays";
  for (const Matrix& x : p.operands)
    if (x.dtype != p.a.dtype && x.dtype != DType::kFloat32) return "an array has another dtype than the operands";
  // Measured: beside a function of every element, or another such array, an array of the result's size costs the
  // product more than a kernel of their own costs.
  const auto whole =
      std::count_if(p.operands.begin(), p.operands.end(), [](const Matrix& x) { return x.row != 0 && x.col != 0; });
  constexpr int64_t kTileRows = 128, kTileCols = 256;
  const int64_t tiles = (p.m + kTileRows - 1) / kTileRows * ((p.n + kTileCols - 1) / kTileCols) * product(p.batch);
  if (tiles < least_epilogue_tiles())
    return "on CUDA a product of fewer than 64 tiles of 128 x 256 is faster by a kernel without, and what follows by "
           "its own";
  const bool gelu = std::any_of(epilogue.steps.begin(), epilogue.steps.end(), [](const EpilogueStep& step) {
    return step.op == elementwise::Op::kGelu || step.op == elementwise::Op::kGeluTanh;
  });
  if (gelu && !p.bias)
    return "on CUDA cuBLASLt takes a product without linear's bias, and gelu is faster in a kernel of its own";
  const auto functions = std::count_if(epilogue.steps.begin(), epilogue.steps.end(), [](const EpilogueStep& step) {
    return step.alone && step.op != elementwise::Op::kRelu && step.op != elementwise::Op::kNeg;
  });
  if (whole > 1 || (whole == 1 && functions > 0))
    return "on CUDA an array of the result's size beside a function, or two of them, are faster in a kernel of their "
           "own";
  for (const EpilogueStep& step : epilogue.steps) {
    using elementwise::Op;
    const bool divides = step.op == Op::kDiv && (step.reversed || step.operand >= 0);
    if (divides || step.op == Op::kMaximum || step.op == Op::kMinimum)
      return "on CUDA it divides by numbers only, and has no maximum and minimum";
    if (step.op == Op::kDiv && !multiplies_instead(step.scalar))
      return "on CUDA it divides by multiplying, and the divisor's reciprocal is no normal number";
  }
  return {};
}

void cuda_tiles_state_copies(const GemmProblem& problem, std::vector<core::Copy>& copies) {
  const TilesProblem t = tiles_problem(problem);
  const GemmProblem& p = t.problem;
  const auto state = [&](const Matrix& x, int64_t rows) {
    int64_t elements = rows * p.k;
    for (size_t d = 0; d < p.batch.size(); ++d) elements *= x.batch[d] == 0 ? 1 : p.batch[d];
    copies.push_back({x.argument, elements * static_cast<int64_t>(item_size(x.dtype)),
                      "its rows do not start at multiples of 16 bytes, with k or n contiguous"});
  };
  if (t.copy_a) state(p.a, p.m);
  if (t.copy_b) state(p.b, p.n);
}

Operand operand_of(const Matrix& x, int64_t rows, int64_t cols) {
  const int64_t row = rows == 1 ? cols : x.row, col = cols == 1 ? rows : x.col;
  if ((x.col == 1 || cols == 1) && row >= cols) return {true, false, row};
  if ((x.row == 1 || rows == 1) && col >= rows) return {true, true, col};
  return {};
}

std::string cuda_vendor_why_not(const GemmProblem& p) {
  if (p.batch_invariant) return "cuBLASLt's order over k may depend on the batch";
  if (!vendor_takes_dtypes(p))
    return "takes float64, float32, bfloat16 and float16, not mixed, and writes theirs or float32";
  if (std::string reason = vendor_strides_why_not(p); !reason.empty()) return reason;
  if (p.bias && (p.bias_row != 0 || p.bias_col != 1)) return "the bias runs along the rows";
  if (p.bias && p.c.dtype != p.compute) return "cuBLASLt may round a 16-bit result before it adds the bias";
  if (!p.batch.empty() && product(p.batch) / *std::max_element(p.batch.begin(), p.batch.end()) > kMaxParts)
    return "more than 64 batches that do not merge";
  if constexpr (core::kHasCuda) {
    if (p.device.type == DeviceType::kCuda) return cublaslt_why_not(p);
  }
  return {};
}

}  // namespace tenor::contract
