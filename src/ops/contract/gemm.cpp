#include "src/ops/contract/gemm.h"

#include <algorithm>

#include "src/core/backend.h"
#include "src/ops/contract/gemm_kernels.h"

namespace tenor::contract {
namespace {

thread_local std::string forced_strategy = "auto";

constexpr GemmCandidate kCandidates[] = {
    {"integer", integer_why_not, integer_run},
    {"tiles", tiles_why_not, tiles_run},
    {"rows", rows_why_not, rows_run},
    {"vendor", vendor_why_not, vendor_run},
    {"blocked", blocked_why_not, blocked_run},
    {"reference", core::always<GemmProblem>, reference_run, core::kNeverTuned},
};

// Of sizes at which oneDNN was measured to be faster than the AMX tiles, where it takes them.
constexpr GemmCandidate kMiddleCandidates[] = {
    {"integer", integer_why_not, integer_run},
    {"vendor", vendor_why_not, vendor_run},
    {"tiles", tiles_why_not, tiles_run},
    {"rows", rows_why_not, rows_run},
    {"blocked", blocked_why_not, blocked_run},
    {"reference", core::always<GemmProblem>, reference_run, core::kNeverTuned},
};

/// The tiles win where memory counts (few rows, and large matrices, whose packed panels are met by many others) and
/// where a call's start does.
bool is_middling(const GemmProblem& p) {
  constexpr double kStart = 1 << 20, kLarge = 1 << 30, kLargeOfShortSums = 0x1p33;  // multiply-adds
  const auto matrices = static_cast<double>(product(p.batch));
  const double each = static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  return std::min(p.m, p.n) > (matrices > 1 ? 16 : 32) && matrices * each >= kStart &&
         each < (p.k < 1024 ? kLargeOfShortSums : kLarge);
}

// A build without CUDA states what they take, for `explain`.
#if TENOR_HAS_CUDA
#define TENOR_IN_CUDA(run) run
#else
#define TENOR_IN_CUDA(run) nullptr
#endif
constexpr GemmCandidate kCudaCandidates[] = {
    {"rows", cuda_rows_why_not, TENOR_IN_CUDA(cuda_rows_run)},
    {"vendor", cuda_vendor_why_not, TENOR_IN_CUDA(cuda_vendor_run)},
    {"tiles", cuda_tiles_why_not, TENOR_IN_CUDA(cuda_tiles_run)},
    {"simple", core::always<GemmProblem>, TENOR_IN_CUDA(cuda_simple_run), core::kNeverTuned},
};
#undef TENOR_IN_CUDA

void append(std::string& text, const char* name, const Matrix& x) {
  text += core::text(" {}={}[{},{}", name, tenor::name(x.dtype), x.row, x.col);
  for (int64_t s : x.batch) text += core::text(",{}", s);
  text += "]";
}

/// The problem in words, for the tuning store.
std::string key_of(const GemmProblem& p) {
  std::string key = core::text("{}x{}x{}", p.m, p.k, p.n);
  for (int64_t size : p.batch) key = core::text("{} of {}", size, key);
  append(key, "a", p.a);
  append(key, "b", p.b);
  append(key, "c", p.c);
  if (p.bias) key += core::text(" bias=[{},{}]", p.bias_row, p.bias_col);
  if (core::runs_on(p.device) != DeviceType::kCuda) return key;
  if (p.bias && p.bias_dtype != p.compute) key += core::text(" of {}", tenor::name(p.bias_dtype));
  if (core::tf32_allowed() && p.a.dtype == DType::kFloat32) key += " tf32";
  // cuBLASLt's algorithms and the copies of "tiles" depend on where the data starts.
  uintptr_t starts = 0;
  for (const Matrix* x : {&p.a, &p.b, &p.c}) starts |= reinterpret_cast<uintptr_t>(x->data);
  if (starts % 16 != 0) key += " unaligned";
  return key;
}

/// As choose_tuned has it; without `may_run` nothing is measured.
const GemmCandidate& chosen(const GemmProblem& p, bool may_run) {
  const std::span<const GemmCandidate> list = gemm_candidates(p);
  return core::choose_tuned<GemmProblem>("matmul", list, p, p.device, forced_strategy, may_run,
                                         [&] { return key_of(p); });
}

/// fn of c and of the matrices that lie beside it.
template <class F>
void each_result(GemmProblem& p, F&& fn) {
  fn(p.c);
  for (Matrix& x : p.operands) fn(x);
}
template <class F>
void each_matrix(GemmProblem& p, F&& fn) {
  fn(p.a), fn(p.b);
  each_result(p, fn);
}

void drop_batch_dim(GemmProblem& p, size_t d) {
  p.batch.erase(d);
  each_matrix(p, [&](Matrix& x) { x.batch.erase(d); });
}

/// Merges batch dims d, d + 1 where every operand walks both with one stride.
bool merge_batch_dims(GemmProblem& p, size_t d) {
  bool one_stride = true;
  each_matrix(p, [&](Matrix& x) { one_stride = one_stride && x.batch[d] == x.batch[d + 1] * p.batch[d + 1]; });
  if (!one_stride) return false;
  p.batch[d + 1] *= p.batch[d];
  drop_batch_dim(p, d);
  return true;
}

/// Folds batch dim d into the rows where b is shared and the rows of a and c go on at one stride.
bool fold_into_rows(GemmProblem& p, size_t d) {
  if (p.b.batch[d] != 0 || p.bias_row != 0) return false;
  bool goes_on = p.m == 1 || p.a.batch[d] == p.m * p.a.row;
  each_result(p, [&](Matrix& x) { goes_on = goes_on && (p.m == 1 || x.batch[d] == p.m * x.row); });
  if (!goes_on) return false;
  if (p.m == 1) {
    p.a.row = p.a.batch[d];
    each_result(p, [&](Matrix& x) { x.row = x.batch[d]; });
  }
  p.m *= p.batch[d];
  drop_batch_dim(p, d);
  return true;
}

void simplify_batch(GemmProblem& p) {
  for (size_t d = p.batch.size(); d-- > 0;) {
    if (p.batch[d] == 1)
      drop_batch_dim(p, d);
    else if (d + 1 < p.batch.size())
      merge_batch_dims(p, d);
  }
  for (size_t d = p.batch.size(); d-- > 0;) {
    if (fold_into_rows(p, d)) continue;
    p = transposed(std::move(p));
    fold_into_rows(p, d);
    p = transposed(std::move(p));
  }
}

}  // namespace

GemmProblem transposed(GemmProblem p) {
  std::swap(p.a, p.b);
  std::swap(p.m, p.n);
  std::swap(p.bias_row, p.bias_col);
  each_matrix(p, [](Matrix& x) { std::swap(x.row, x.col); });
  return p;
}

void for_each_part(const GemmProblem& p, size_t dims, const std::function<void(const GemmProblem&)>& fn) {
  if (p.batch.size() <= dims) return fn(p);
  const size_t d = static_cast<size_t>(std::min_element(p.batch.begin(), p.batch.end()) - p.batch.begin());
  GemmProblem part = p;
  Dims steps;
  each_matrix(part, [&](Matrix& x) { steps.push_back(x.batch[d]); });
  drop_batch_dim(part, d);
  for (int64_t i = 0; i < p.batch[d]; ++i) {
    for_each_part(part, dims, fn);
    size_t at = 0;
    each_matrix(part, [&](Matrix& x) { x.data += steps[at++] * static_cast<int64_t>(item_size(x.dtype)); });
  }
}

GemmProblem normalized(GemmProblem p) {
  simplify_batch(p);
  // A unit stride for c's columns, and never a lone column where there are rows to vectorise over.
  const bool by_columns = p.c.col != 1 && p.c.row == 1 && p.m > 1;
  if (by_columns || (p.n == 1 && p.c.row == 1)) p = transposed(std::move(p));
  if (p.m == 1) p.a.row = p.k, p.c.row = p.n;
  if (p.n == 1) p.b.col = 1, p.c.col = 1;
  if (p.k == 1) p.a.col = 1, p.b.row = p.n;
  return p;
}

std::span<const GemmCandidate> gemm_candidates(DeviceType device) {
  if (device == DeviceType::kCuda) return kCudaCandidates;
  return kCandidates;
}

std::span<const GemmCandidate> gemm_candidates(const GemmProblem& p) {
  const DeviceType device = core::runs_on(p.device);
  if (device != DeviceType::kCuda && is_middling(p)) return kMiddleCandidates;
  return gemm_candidates(device);
}

std::vector<std::string> gemm_strategies(DeviceType device) {
  std::vector<std::string> names;
  for (const GemmCandidate& c : gemm_candidates(device)) names.push_back(c.name);
  return names;
}

std::vector<std::string> all_gemm_strategies() {
  std::vector<std::string> names = gemm_strategies();
  if constexpr (!core::kHasCuda) return names;
  for (const std::string& name : gemm_strategies(DeviceType::kCuda))
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return names;
}

void run_gemm(const GemmProblem& problem) {
  if (problem.m == 0 || problem.n == 0 || product(problem.batch) == 0) return;
  if (problem.k == 0) return gemm_candidates(problem.device.type).back().run(problem);
  const GemmProblem p = normalized(problem);
  chosen(p, true).run(p);
}

std::string explain_gemm(const GemmProblem& problem, std::vector<core::Copy>* copies) {
  if (problem.m == 0 || problem.n == 0 || product(problem.batch) == 0)
    return {};  // nothing runs, and candidates divide by sizes
  if (problem.k == 0) return gemm_candidates(problem).back().name;
  const GemmProblem p = normalized(problem);
  const GemmCandidate& taken = chosen(p, false);
  if (copies && taken.why_not == cuda_tiles_why_not) cuda_tiles_state_copies(p, *copies);
  return std::string(taken.name) + "\n" + core::declined(gemm_candidates(p), p);
}

StrategyGuard::StrategyGuard(std::string_view strategy) : previous_(forced_strategy) { forced_strategy = strategy; }
StrategyGuard::~StrategyGuard() { forced_strategy = previous_; }

}  // namespace tenor::contract
