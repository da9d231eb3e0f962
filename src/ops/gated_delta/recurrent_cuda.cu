#include "src/ops/gated_delta/decode_cuda.cuh"
#include "src/ops/gated_delta/gated_delta_launch.h"

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

/// Whether p is one step of each sequence with everything as decode_kernel takes it.
bool is_decoding(const DeviceProblem& p, bool wide) {
  const auto dense = [&](const States& x) { return !x.data || (x.row == p.value_dim && x.column == 1); };
  constexpr int64_t kMostBlocks = 65535;  // of a grid's second and third dims
  return p.value_heads <= kMostBlocks && p.sequences.count <= kMostBlocks && wide && p.sequences.steps == 1 &&
         !p.sequences.starts.data && p.value_dim % kDecodeColumns == 0 && dense(p.first) && dense(p.last);
}

/// Zeros what is skipped, too.
template <class T, int kKeyDim, bool kByChannel, bool kPool>
void launch_decode(const Problem& problem, const DeviceProblem& p) {
  const Device device = problem.output.device();
  const dim3 grid(blocks_of(problem.op, p.value_dim / kDecodeColumns, 1, 1), static_cast<unsigned>(p.value_heads),
                  static_cast<unsigned>(p.sequences.count));
  // Three quarters of what is resident: half takes longer than none, all of it a fifth longer.
  const int ahead = p.sequences.has_first ? cuda::multiprocessors(device) * kDecodeBlocks * 3 / 4 : 0;
  if (grid.x > 0 && grid.y > 0 && grid.z > 0)
    cuda::launch(problem.op, decode_kernel<T, kKeyDim, kByChannel, kPool>, {grid, dim3(kDecodeThreads)}, device, p,
                 static_cast<unsigned>(ahead));
}

template <class T, int kKeyDim, bool kByChannel, bool kMany>
void launch_for(const Problem& problem, const DeviceProblem& p) {
  // On a multiprocessor: more of them are bound by registers, fewer leave the memory idle.
  constexpr int kBlocks = kKeyDim > 128 ? 3 : kMany || sizeof(T) > 2 ? 6 : 7;
  const int64_t column_blocks = (p.value_dim + kStateColumns - 1) / kStateColumns;
  const unsigned blocks = blocks_of(problem.op, column_blocks, p.value_heads, p.sequences.count);
  const bool wide = has_wide_elements(p.query, sizeof(T)) && has_wide_elements(p.key, sizeof(T)) &&
                    has_wide_elements(p.value, sizeof(T)) && (!kByChannel || has_wide_elements(p.decay, sizeof(float)));
  if constexpr (!kMany && kKeyDim <= 128)
    if (is_decoding(p, wide))
      return p.sequences.slots.data ? launch_decode<T, kKeyDim, kByChannel, true>(problem, p)
                                    : launch_decode<T, kKeyDim, kByChannel, false>(problem, p);
  zero_unclaimed_cuda(problem.op, p.sequences, problem.output, problem.value_heads);
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
