#include "src/ops/gated_delta/gated_delta_launch.h"
#include "src/ops/gated_delta/recurrent_cuda.cuh"

namespace tenor::delta {
namespace {

/// Whether states are read by sixteen bytes.
bool has_wide_rows(const States& x) {
  return !x.data || (x.column == 1 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.row % 4 == 0 &&
                     x.head % 4 == 0 && x.place % 4 == 0);
}

/// Whether vectors of x's rows are read: elements side by side, everything a multiple of sixteen bytes apart.
bool has_wide_elements(const Rows& x, size_t item) {
  return x.dim == 1 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.batch * item % 16 == 0 &&
         x.head * item % 16 == 0 && x.step * item % 16 == 0;
}

template <class T, int kKeyDim, bool kByChannel, bool kMany>
void launch_for(const Problem& problem, const DeviceProblem& p) {
  // On a multiprocessor: more of them are bound by registers, fewer leave the memory idle.
  constexpr int kBlocks = kKeyDim > 128 ? 3 : kMany || sizeof(T) > 2 ? 6 : 7;
  const int64_t column_blocks = (p.value_dim + kStateColumns - 1) / kStateColumns;
  const unsigned blocks = blocks_of(problem.op, column_blocks, p.value_heads, p.sequences.count);
  const bool wide = has_wide_elements(p.query, sizeof(T)) && has_wide_elements(p.key, sizeof(T)) &&
                    has_wide_elements(p.value, sizeof(T)) && (!kByChannel || has_wide_elements(p.decay, sizeof(float)));
  if (blocks > 0)
    cuda::launch(problem.op, recurrent_kernel<T, kKeyDim, kByChannel, kMany, kBlocks>,
                 {dim3(blocks), dim3(kRecurrentThreads)}, problem.output.device(), p,
                 static_cast<unsigned>(column_blocks), wide);
}

template <class T, int kKeyDim, bool kByChannel>
void launch_for(const Problem& problem, const DeviceProblem& p) {
  return p.sequences.steps > 1 ? launch_for<T, kKeyDim, kByChannel, true>(problem, p)
                               : launch_for<T, kKeyDim, kByChannel, false>(problem, p);
}

template <class T, int kKeyDim>
void launch_for(const Problem& problem, const DeviceProblem& p) {
  return p.by_channel ? launch_for<T, kKeyDim, true>(problem, p) : launch_for<T, kKeyDim, false>(problem, p);
}

template <class T>
bool launch_type(const Problem& problem, const DeviceProblem& p) {
  if (p.key_dim == 128) return launch_for<T, 128>(problem, p), true;
  if (p.key_dim == 64) return launch_for<T, 64>(problem, p), true;
  if (p.key_dim == 256) return launch_for<T, 256>(problem, p), true;
  return false;
}

}  // namespace

bool launch_recurrent(const Problem& problem, const DeviceProblem& p) {
  if (!has_wide_rows(p.first) || !has_wide_rows(p.last) || p.value_dim % kFour != 0) return false;
  switch (problem.query.dtype()) {
    case DType::kBFloat16:
      return launch_type<BFloat16>(problem, p);
    case DType::kFloat16:
      return launch_type<Float16>(problem, p);
    case DType::kFloat32:
      return launch_type<float>(problem, p);
    default:
      return false;
  }
}

}  // namespace tenor::delta
