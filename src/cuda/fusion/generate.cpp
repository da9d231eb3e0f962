#include "src/cuda/fusion/generate.h"

#include <algorithm>

#include "src/cuda/fusion/kernels.h"
#include "src/cuda/fusion/log_sums.h"
#include "src/cuda/fusion/writer.h"

namespace tenor::cuda {
namespace {

using fusion::Instruction;
using fusion::Program;

/// Elements from which on reading across memory costs more than the kernels saved: those of the eager operators turn it
/// in shared memory first.
constexpr int64_t kSmall = int64_t{1} << 16;

bool reduces(const Program& program) {
  return std::any_of(program.code.begin(), program.code.end(),
                     [](const Instruction& in) { return in.kind == Instruction::Kind::kReduce; });
}

/// Whether some thread may read an element after another has written it: one that is written in place once, and that
/// all places along some dim read.
bool races(const Walk& walk) {
  const auto begin = walk.arrays.begin(), stores = begin + walk.loads;
  return std::any_of(stores, walk.arrays.end(), [&](const WalkArray& store) {
    if (std::find(store.stride.begin(), store.stride.end(), 0) == store.stride.end()) return false;
    return std::any_of(begin, stores, [&](const WalkArray& load) { return load.argument == store.argument; });
  });
}

std::string why_no_loop_kernel(const Program& program) {
  const Walk walk = walk_of(program);
  if (races(walk)) return "an in-place step writes an element that other threads of the kernel read";
  if (walk.rows() * walk.length() <= kSmall) return {};
  for (const WalkArray& a : walk.arrays)
    if (a.stride.back() != 0 && a.stride.back() != 1 &&
        std::find(a.stride.begin(), a.stride.end(), 1) != a.stride.end())
      return "an array lies across the others in memory";
  return {};
}

}  // namespace

std::string why_not_fused(const Program& given) {
  const Program program = without_log_sums(given);
  constexpr int kMostDims = 12;
  if (walk_of(program).ndim() > kMostDims) return "its arrays have more than 12 dims that do not merge";
  if (!reduces(program)) return why_no_loop_kernel(program);
  const std::string why = why_no_row_kernel(program);
  return why.empty() || why_no_column_kernel(program).empty() ? "" : why;
}

size_t parameter_bytes(const Program& given) {
  const Program program = without_log_sums(given);
  const Walk walk = walk_of(program);
  return Writer(program, walk).parameters({}).size();
}

FusedKernel generate_kernel(const Program& given, const FusedOptions& options) {
  const Program program = without_log_sums(given);
  if (!reduces(program)) return loop_kernel(program, options);
  return why_no_row_kernel(program).empty() ? row_kernel(program, options) : column_kernel(program, options);
}

}  // namespace tenor::cuda
