// Which kernel of flash_unit takes a problem.
#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/ops/attention/attention_cuda.h"
#include "src/ops/attention/flash_unit_cuda.cuh"

namespace tenor::attn {
namespace {

/// Whether every row of an operand is read in whole accesses of sixteen bytes.
bool reads_vectors(const Plane& x, int64_t columns) {
  const size_t item = item_size(x.dtype);
  const int64_t wide = cuda::kVectorBytes / static_cast<int64_t>(item);
  return x.col == 1 && columns % wide == 0 && cuda::is_aligned(x.data, x.row, item) &&
         cuda::is_aligned(x.data, x.head, item) && cuda::is_aligned(x.data, x.batch, item);
}

template <class U>
void launch(const Problem& problem, const DeviceProblem& p) {
  const int64_t chunks = std::max<int64_t>((p.value_dim + U::kColumns - 1) / U::kColumns, 1);
  const int64_t work = slots_of(p, U::kRows, p.group) * p.kv_heads * chunks;
  const UnitVectors vectors{reads_vectors(p.q, p.dim), reads_vectors(p.k, p.dim), reads_vectors(p.v, p.value_dim)};
  const cuda::Grid grid{dim3(static_cast<unsigned>(std::min<int64_t>(work, INT32_MAX))), dim3(U::kThreads),
                        sizeof(UnitShared<U>)};
  cuda::launch("attention", flash_unit_kernel<U>, grid, problem.device, p, vectors, work);
}

/// By the rows that can share a block, and the columns of the result; neither changes a bit of it.
template <class T>
void launch_for(const Problem& problem, const DeviceProblem& p) {
  constexpr bool kDouble = std::is_same_v<T, double>;
  if (p.queries * p.group <= 16) return launch<UnitConfig<T, 1, 8>>(problem, p);
  if (p.value_dim <= 64 || kDouble) return launch<UnitConfig<T, kDouble ? 4 : 8, 8>>(problem, p);
  if constexpr (!kDouble) launch<UnitConfig<T, 8, 16>>(problem, p);
}

}  // namespace

void run_flash_unit(const Problem& problem) {
  const DeviceProblem p = device_problem(problem);
  if (p.queries == 0 || problem.heads == 0 || p.sequences == 0) return;
  const cuda::DeviceGuard guard(problem.device);
  core::visit_float(problem.q.dtype, [&]<class T>() { launch_for<T>(problem, p); });
}

}  // namespace tenor::attn
