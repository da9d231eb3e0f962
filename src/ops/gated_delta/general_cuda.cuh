// What the kernels for any dtype, strides and sizes share: a block works on 32 value columns of one head with the state
// in shared memory, or in memory of its own where that is too small.
#pragma once

#include "src/ops/gated_delta/gated_delta_device.cuh"

namespace tenor::delta {

inline constexpr int kGeneralColumns = 32, kGeneralGroups = 8;
inline constexpr int kGeneralThreads = kGeneralColumns * kGeneralGroups;
inline constexpr double kGeneralLeast = -750;  // a decay below is 0 in float64 as well

#ifdef __CUDACC__
/// One block's task.
struct GeneralBlock {
  int64_t head, n, first, column;
  int group;
  bool inside;
  __device__ GeneralBlock(const DeviceProblem& p, unsigned column_blocks) {
    const unsigned rest = blockIdx.x / column_blocks;
    first = int64_t{blockIdx.x % column_blocks} * kGeneralColumns;
    head = rest % static_cast<unsigned>(p.value_heads), n = rest / static_cast<unsigned>(p.value_heads);
    column = first + threadIdx.x % kGeneralColumns, group = threadIdx.x / kGeneralColumns;
    inside = column < p.value_dim;
  }
};

/// state[c * 32 + column] = S, or back.
template <class C>
__device__ void read_columns(const DeviceProblem& p, const GeneralBlock& b, int64_t place, C* state) {
  const bool there = b.inside && starts_from_state(p.sequences, b.n);
  for (int64_t c = b.group; c < p.key_dim; c += kGeneralGroups)
    state[c * kGeneralColumns + threadIdx.x % kGeneralColumns] =
        there ? static_cast<C>(state_of(p.first, place, b.head)[c * p.first.row + b.column * p.first.column]) : C(0);
}
template <class C>
__device__ void write_columns(const DeviceProblem& p, const GeneralBlock& b, int64_t place, const C* state) {
  for (int64_t c = b.group; b.inside && c < p.key_dim; c += kGeneralGroups)
    state_of(p.last, place, b.head)[c * p.last.row + b.column * p.last.column] =
        static_cast<float>(state[c * kGeneralColumns + threadIdx.x % kGeneralColumns]);
}

template <class T, class C = core::Compute<T>>
__device__ __forceinline__ C beta_of(const DeviceProblem& p, const DeviceSequence& s, int64_t head, int64_t step) {
  return p.beta_float ? static_cast<C>(row_of<float>(p.beta, s, head, step)[0])
                      : static_cast<C>(cuda::widen(row_of<T>(p.beta, s, head, step)[0]));
}
__device__ __forceinline__ double decay_of(const DeviceProblem& p, const DeviceSequence& s, int64_t head, int64_t step,
                                           int64_t c) {
  const double g = row_of<float>(p.decay, s, head, step)[p.by_channel ? c * p.decay.dim : 0];
  return g < kGeneralLeast ? kGeneralLeast : g;  // NaN stays
}
template <class C>
__device__ __forceinline__ C inverse_norm(C square) {
  return C(1) / sqrt(square + static_cast<C>(1e-6));
}
#endif

}  // namespace tenor::delta
