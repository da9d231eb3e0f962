// Entry points of the kernels around the gated delta rule, on both devices.
#pragma once

#include <vector>

#include "src/cpu/rows.h"
#include "src/ops/gated_delta/sequence.h"
#include "tenor/tensor.h"

namespace tenor::delta {

/// A checked gated_delta_gate. a and out [B, Hv, T] or [B, Hv, T, K]; dt_bias [Hv] or [Hv, K].
struct Gate {
  Tensor a, a_log, bias, out;
  bool bounded;
  double lower_bound;
};

/// A checked causal_conv1d.
struct Conv {
  Tensor x, weight, bias, y;
  Tensor first, last;  // states read and written, [places, C, W - 1]; `first` may be undefined
  Tensor cu_seqlens, state_indices, has_initial;
  int64_t batch, channels, steps, taps, sequences;
  bool silu;
  std::vector<Sequence> on_cpu;  // on CUDA none

  bool packed() const { return cu_seqlens.defined(); }
};

}  // namespace tenor::delta

namespace tenor::cpu {

void delta_gate(const delta::Gate& gate);
void causal_conv(const delta::Conv& conv);

/// One row of a gate: `bias` holds one number, or one an element where `vector`.
struct GateRow {
  double rate;  // exp(A_log)
  const void* bias;
  bool vector, bounded;
  double lower_bound;
};

struct GatedNormParameters {
  DType dtype;
  const void* gamma;  // dense, of the compute type
  double epsilon;
};
/// Operands x, gate, y.
void gated_rms_norm_rows(const RowBlock& block, const GatedNormParameters& p);

}  // namespace tenor::cpu

namespace tenor::delta {

void gate_cuda(const Gate& gate);
void conv_cuda(const Conv& conv);
void gated_rms_norm_cuda(const Tensor& x, const Tensor& gate, const Tensor& gamma, double epsilon, const Tensor& y);

}  // namespace tenor::delta
