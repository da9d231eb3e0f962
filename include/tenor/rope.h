// Rotary position embedding, and the tables it reads.
#pragma once

#include <optional>
#include <string>

#include "tenor/tensor.h"

namespace tenor {

struct RopeOptions {
  bool interleaved = false;                ///< pairs (2i, 2i+1) instead of (i, i + rotary_dim/2)
  std::optional<int64_t> rotary_dim = {};  ///< even, 2..D; none: D. The rest of the head passes through
  Tensor positions = {};  ///< integers, [S] or broadcast to [..., S], in 0..maxpos-1; undefined: 0..S-1
  Tensor out = {};
};
/// Turns each pair (a, b) of a head by its position's angle: (a cos - b sin, b cos + a sin).
/// x[..., S, H, D], float16 to float64; cos, sin [maxpos, rotary_dim/2], float32 or x's dtype. Computed in float32
/// (float64 for float64), one rounding. Class 2, one pass; the tables are read once a position.
/// @throws ShapeError for sizes, ValueError for rotary_dim, IndexError for a position out of range, DTypeError.
/// Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding".
Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin, const RopeOptions& options = {});

/// How frequencies are stretched for contexts longer than those trained on; fields as in model configurations.
struct RopeScaling {
  std::string type = "default";                          ///< "default", "linear", "llama3" or "yarn"
  double factor = 1.0;                                   ///< >= 1
  double original_max_position_embeddings = 0;           ///< llama3, yarn: required
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  ///< llama3
  double beta_fast = 32.0, beta_slow = 1.0;  ///< yarn: turns over the original context where the ramp begins and ends
  std::optional<double> attention_factor =
      {};                                 ///< yarn: multiplies both tables; none: 0.1 ln(factor) + 1, or from mscale
  double mscale = 0, mscale_all_dim = 0;  ///< yarn: both non-zero: their ratio gives the attention factor
  bool truncate = true;                   ///< yarn: whether the ramp's ends are whole dims
};

struct RopeTables {
  Tensor cos, sin;
};
struct RopeTablesOptions {
  double theta = 1e4;  ///< finite, > 0
  RopeScaling scaling = {};
  Device device = kCpu;
  RopeTables out = {};
};
/// cos and sin [maxpos, rotary_dim/2] of position * theta^(-2i/rotary_dim), scaled; computed in float64, stored
/// float32.
/// @throws ValueError for maxpos < 0, rotary_dim odd or < 2, and for option values.
/// Sources: Peng et al. 2023, "YaRN"; Chen et al. 2023, "Extending Context Window via Positional Interpolation"
/// (linear).
RopeTables rope_tables(int64_t maxpos, int64_t rotary_dim, const RopeTablesOptions& options = {});

}  // namespace tenor
