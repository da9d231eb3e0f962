#include "src/ops/gated_delta/gated_delta_launch.h"
#include "src/ops/gated_delta/recurrent_cuda.cuh"

namespace tenor::delta {
namespace {

constexpr int kColumns = 32;  // of a block: the least that keeps a state's rows in whole lines

/// Whether states are read by sixteen bytes.
bool has_wide_rows(const States& x) {
  return !x.data || (x.column == 1 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.row % 4 == 0 &&
                     x.head % 4 == 0 && x.place % 4 == 0);
}

template <class T, int kKeyDim, bool kByChannel>
void launch_for(const Problem& problem, const DeviceProblem& p) {
  constexpr int kBlocks = kKeyDim <= 128 ? 8 : 4;  // on a multiprocessor
  const int64_t column_blocks = (p.value_dim + kColumns - 1) / kColumns;
  const unsigned blocks = blocks_of(problem.op, column_blocks, p.value_heads, p.sequences.count);
  if (blocks > 0)
    cuda::launch(problem.op, recurrent_kernel<T, kKeyDim, kColumns, kByChannel, kBlocks>,
                 {dim3(blocks), dim3(kRowGroups * kColumns / kFour)}, problem.output.device(), p,
                 static_cast<unsigned>(column_blocks));
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
