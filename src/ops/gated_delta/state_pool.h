// Sequences and where their states lie: what the gated delta rule and causal_conv1d ask of cu_seqlens, initial_state,
// state, state_indices and has_initial_state, and what they make of them.
#pragma once

#include <vector>

#include "src/core/check.h"
#include "src/ops/gated_delta/sequence.h"

namespace tenor::delta {

/// The options as given; undefined ones are absent.
struct StateOptions {
  const Tensor &cu_seqlens, &initial_state, &state, &state_indices, &has_initial_state;
};

/// The sequences that x [B, ..., T] holds.
inline int64_t sequence_count(const StateOptions& o, int64_t batch) {
  return o.cu_seqlens.defined() ? o.cu_seqlens.shape(0) - 1 : batch;
}

/// Checks everything but contents: `x` leads ([B, ..., T]), a state is one sequence's shape, its dtype is `dtype`.
/// @throws ShapeError, DTypeError, DeviceError, ValueError
void check_states(const char* op, const StateOptions& o, core::Named x, const Dims& state, DType dtype);

/// Every sequence, from contents that lie on the host. @throws ValueError, IndexError
std::vector<Sequence> read_sequences(const char* op, const StateOptions& o, int64_t batch, int64_t steps);

/// Zeros in out [B, ..., T, ...] where the steps (dim 2) are of no sequence, or of a skipped one.
void zero_unclaimed(const Tensor& out, const std::vector<Sequence>& sequences, bool packed);

/// x, copied where it shares memory with the pool that will be written.
Tensor apart_from_pool(const Tensor& x, const Tensor& pool);

}  // namespace tenor::delta
