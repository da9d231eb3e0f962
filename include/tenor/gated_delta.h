// The gated delta rule, a linear attention whose state is a matrix a head that each step decays, corrects and reads,
// and what models put around it. S [K, V] is the state of one value head; a step with query q, key k, value v, beta and
// log_decay g computes
//     S = exp(g) S;   e = beta (v - S^T k);   S = S + k e^T;   o = S^T (scale q).
// A decay of one number a step scales all of S (Gated DeltaNet, arXiv 2412.06464), one of K numbers its rows (Kimi
// Delta Attention, arXiv 2510.26692). Operands are float64, float32, float16 or bfloat16 of any strides; 16-bit
// operands are computed in float32, the rule's states are float32 always, and an output is rounded once.
#pragma once

#include <optional>
#include <string>

#include "tenor/tensor.h"

namespace tenor {

/// output [B, Hv, T, V], query's dtype; final_state float32 [B or N, Hv, K, V], or the pool that was given.
struct GatedDeltaResult {
  Tensor output, final_state;
};

struct GatedDeltaOptions {
  Tensor initial_state = {};               ///< float32 [B or N, Hv, K, V]; undefined: zeros. Never overwritten
  std::optional<double> query_scale = {};  ///< finite; none is K^-1/2
  Tensor cu_seqlens = {};                  ///< [N + 1], int32 or int64, with B = 1: packed sequences
  Tensor state = {};                       ///< float32 [slots, Hv, K, V], updated in place, instead of initial_state
  Tensor state_indices = {};               ///< [B or N], integers: each sequence's slot of `state`; -1 skips it
  Tensor has_initial_state = {};           ///< bool [B or N]: false starts from zeros, whatever the state holds
  bool qk_normalize = false;               ///< query and key become x * rsqrt(sum x^2 + 1e-6)
  GatedDeltaResult out = {};               ///< both, or with `state` the output alone
};

struct ChunkGatedDeltaOptions {
  Tensor initial_state = {};
  std::optional<double> query_scale = {};
  int64_t chunk_size = 64;  ///< > 0: steps that "general" computes together; "tensorcore" always takes 64
  Tensor cu_seqlens = {};
  Tensor state = {};
  Tensor state_indices = {};
  Tensor has_initial_state = {};
  bool qk_normalize = false;
  std::string strategy = "auto";  ///< "tensorcore" (Hopper, 16-bit and float32 operands), "general"
  GatedDeltaResult out = {};
};

/// The rule step by step: decoding, a few tokens a call. query, key [B, H, T, K]; value [B, Hv, T, V], one dtype; beta
/// [B, Hv, T], theirs or float32; log_decay float32 [B, Hv, T] or [B, Hv, T, K]. Hv is a multiple of H: value head j
/// reads query and key head j / (Hv / H). With cu_seqlens [0, ..., n_N] sequence i is the steps from n_i to n_(i+1) and
/// has a state of its own; one without steps hands its state on, and steps past n_N give 0. A pool row skipped by
/// state_indices gives 0 and touches no slot. An output depends on the steps up to its own alone, bit for bit, and on
/// no other row. Cost: 7 K V FLOPs a step and value head; a state is read once and written once.
/// @throws ShapeError, DTypeError, DeviceError; IndexError for a slot out of range; ValueError for a slot named twice,
/// cu_seqlens that do not rise from 0 to at most T, a query_scale that is not finite, options that exclude each other
GatedDeltaResult gated_delta_rule(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& beta,
                                  const Tensor& log_decay, const GatedDeltaOptions& options = {});

/// The same function, many steps at once: prefill. With G the running sum of log_decay in a chunk, L_ij = beta_i
/// exp(G_i - G_j) k_i . k_j below the diagonal and R = V - exp(G) K S,
///     N = (I + L)^-1 beta R;   O = scale (exp(G) Q S + tril(exp(G_i - G_j) Q K^T) N);
///     S = exp(G_C) S + (exp(G_C - G) K)^T N.
/// Every exponent that is not masked is a sum of log decays, so that no decay, however strong, overflows. "tensorcore"
/// computes 64 steps at once whatever chunk_size is, which explain() says; "general" computes chunk_size. On Hopper's
/// tensor cores bfloat16 rounds factors of products to bfloat16, R and N in the triangular ones to two of them (root
/// mean square error below 2^-8 over 16384 steps), float16 to eleven bits with float32's range, float32 to two parts of
/// eleven bits. There a long sequence of few heads is cut into segments, on whose number bits depend, but not
/// under batch_invariant(). Cost as stated: that of the rule.
/// @throws as gated_delta_rule; ValueError for chunk_size < 1 or an unknown strategy; UnsupportedError for a strategy
/// that cannot do it, and on CUDA where the triangular workspace of 4 (chunk_size^2 + chunk_size) bytes exceeds a
/// block's shared memory
GatedDeltaResult chunk_gated_delta_rule(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& beta,
                                        const Tensor& log_decay, const ChunkGatedDeltaOptions& options = {});

struct GatedDeltaGateOptions {
  std::optional<double> lower_bound = {};  ///< finite, < 0: the bounded gate
  Tensor out = {};
};
/// log_decay, float32, from a [B, Hv, T] or [B, Hv, T, K]: -exp(A_log) softplus(a + dt_bias), and with lower_bound
/// lower_bound * sigmoid(exp(A_log) (a + dt_bias)). A_log [Hv]; dt_bias [Hv], or [Hv, K] where a has K; both float32 or
/// a's dtype. Source: arXiv 2412.06464 and 2510.26692. Cost: 1 FLOP an element.
/// @throws ShapeError, DTypeError, DeviceError; ValueError for a lower_bound that is not finite and < 0
Tensor gated_delta_gate(const Tensor& a, const Tensor& A_log, const Tensor& dt_bias,
                        const GatedDeltaGateOptions& options = {});

/// y [B, C, T] and final_state [B or N, C, W - 1], the last inputs of each sequence, oldest first; x's dtype.
struct CausalConvResult {
  Tensor y, final_state;
};
struct CausalConvOptions {
  Tensor bias = {};                 ///< [C]
  Tensor initial_state = {};        ///< [B or N, C, W - 1], x's dtype: the inputs before the first; undefined: zeros
  std::string activation = "none";  ///< "none" or "silu"
  Tensor cu_seqlens = {};           ///< as for gated_delta_rule, as are the next three
  Tensor state = {};                ///< [slots, C, W - 1], x's dtype
  Tensor state_indices = {};
  Tensor has_initial_state = {};
  CausalConvResult out = {};
};
/// A convolution along T of each channel with its own W taps, which sees the past alone: y[t] = activation(bias +
/// sum_w weight[c, w] x[t - W + 1 + w]). x [B, C, T] of any strides; weight [C, W], W >= 1; weight and bias are float32
/// or x's dtype. Cost: 2 W FLOPs an output. @throws as gated_delta_rule; ValueError for another activation
CausalConvResult causal_conv1d(const Tensor& x, const Tensor& weight, const CausalConvOptions& options = {});

struct GatedRmsNormOptions {
  double epsilon = 1e-6;
  Tensor out = {};
};
/// x / sqrt(mean(x^2) + epsilon) * gamma * silu(gate) over the last axis; one rounding. gate has x's shape and dtype;
/// gamma [H], float32 or x's dtype. Cost: 2 FLOPs an element. Source: arXiv 2412.06464. @throws ShapeError, DTypeError,
/// DeviceError; ValueError unless epsilon is finite, >
/// 0
Tensor gated_rms_norm(const Tensor& x, const Tensor& gate, const Tensor& gamma,
                      const GatedRmsNormOptions& options = {});

}  // namespace tenor
