// A checked call of the gated delta rule, as its kernels take it.
#pragma once

#include <string>
#include <vector>

#include "src/ops/gated_delta/sequence.h"
#include "tenor/tensor.h"

namespace tenor::delta {

struct Problem {
  const char* op;
  Tensor query, key, value, beta, decay;  // decay [B, Hv, T] or [B, Hv, T, K]
  Tensor first, last;                     // states read and written, [places, Hv, K, V]; `first` may be undefined
  Tensor output;
  Tensor cu_seqlens, state_indices, has_initial;
  int64_t batch, heads, value_heads, steps, key_dim, value_dim, sequences;
  double scale;
  bool normalize;
  int64_t chunk;                 // 0: step by step
  Device device;                 // what the tensors are on, or stand for
  std::vector<Sequence> on_cpu;  // on CUDA none: only kernels read the contents of arrays

  bool by_channel() const { return decay.ndim() == 4; }
  int64_t group() const { return value_heads / heads; }
};

inline constexpr double kNormalizeEpsilon = 1e-6;  // joins the sum of squares

}  // namespace tenor::delta
