// Attention: softmax(scale * Q K^T + bias) V over the keys that each query may see.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tenor/tensor.h"

namespace tenor {

/// Which keys come "after" a query. true: query i sees keys j <= i + Sk - Sq (bottom-right), so that the last query sees
/// the last key; kTopLeft: j <= i.
class Causal {
 public:
  enum Kind : uint8_t { kOff, kBottomRight, kTopLeft };
  constexpr Causal(bool on = false) : kind_(on ? kBottomRight : kOff) {}
  constexpr Causal(Kind kind) : kind_(kind) {}
  constexpr Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

/// Extra keys that a query sees on each side of its diagonal, inclusive; -1 is unlimited. The diagonal is causal's:
/// bottom-right unless causal is kTopLeft.
struct Window {
  int64_t left = -1, right = -1;
};

struct AttentionOptions {
  Tensor mask = {};                     ///< bool, true = attend; broadcasts to [B, Hq, Sq, Sk]
  Tensor bias = {};                     ///< float32 or query's dtype, added to the scores; broadcasts likewise
  std::optional<double> scale = {};     ///< finite, > 0; none is D^-1/2
  Causal causal = {};
  Window window = {};
  std::optional<double> softcap = {};   ///< finite, > 0: scores become c * tanh(s / c), before mask and bias
  Tensor sinks = {};                    ///< [Hq], float32 or query's dtype: exp(sink) joins a row's denominator only
  std::string strategy = "auto";        ///< "flash_tensorcore" (matrix units), "flash_unit" (none), "fallback" (operators one by one)
  bool return_lse = false;
  Tensor out = {};                      ///< [B, Hq, Sq, Dv], query's dtype
  Tensor out_lse = {};                  ///< [B, Hq, Sq], float32; with return_lse only
};

/// lse is undefined when it was not asked for.
struct AttentionResult {
  Tensor out, lse;
};

/// out[b,h,i] = sum_j p_j v[b,g,j], p = softmax over the visible j of s_j, where g = h / (Hq / Hkv) and
/// s_j = scale * q[b,h,i] . k[b,g,j], softcapped, + bias[b,h,i,j].
/// query [B, Hq, Sq, D], key [B, Hkv, Sk, D], value [B, Hkv, Sk, Dv], one float dtype; Hq % Hkv == 0, D >= 1.
/// Scores and sums are float32 (float64 for float64), the result is rounded once. A key that the mask, the diagonal or the
/// window hides, or whose score is -inf, is never part of a result, whatever its key and value hold. A row with nothing to
/// attend gives 0 and lse -inf. lse [B, Hq, Sq] float32 is the natural logarithm of the sum of exp(s_j), without the sink.
/// A row's bits depend on its own query, keys and values only: not on the batch, the other rows or the thread count. Not so of
/// "fallback" outside batch_invariant(), whose products are contractions; its scores of 2^24 pairs at a time reach memory.
/// flash_tensorcore on CUDA rounds the weights of 16-bit operands to their dtype, multiplies float32 by split TF32 (errors of about
/// float32's own, but 2^-19 of values below 1e-34), and unless batch_invariant() is in force its bits also depend on how many
/// queries and sequences there are (few: keys are added up in parts), and "auto" on what autotuning measured.
/// Cost: 2 (D + Dv) FLOPs a visible pair; workspace O(threads * Sk + B * Hkv * Sk * (D + Dv)), never Sq * Sk;
/// on CUDA none but copies of operands whose strides the matrix unit cannot walk, and 64 partial results a row of few queries.
/// @throws ShapeError, DTypeError, DeviceError, ValueError, UnsupportedError for a strategy that this device lacks.
AttentionResult attention(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options = {});

struct AttentionVarlenOptions {
  std::optional<double> scale = {};
  Causal causal = {};
  Window window = {};
  std::optional<double> softcap = {};
  Tensor sinks = {};
  std::string strategy = "auto";
  bool return_lse = false;
  Tensor out = {};                      ///< [Tq, Hq, Dv]
  Tensor out_lse = {};                  ///< [Tq, Hq], float32
};

/// attention() of N packed sequences: query [Tq, Hq, D], key [Tk, Hkv, D], value [Tk, Hkv, Dv]; sequence n has the queries
/// cu_seqlens_q[n] .. cu_seqlens_q[n + 1] - 1 and likewise keys. cu_seqlens [N + 1], int32 or int64, rise from 0 to at most
/// T; rows past the end give 0 and lse -inf. lse [Tq, Hq]. On CUDA only kernels read cu_seqlens, so the call can be captured; entries that
/// are not so raise the stream's flag (an error at the next synchronisation), and nothing is read out of bounds.
AttentionResult attention_varlen(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& cu_seqlens_q,
                                 const Tensor& cu_seqlens_k, const AttentionVarlenOptions& options = {});

struct MergeStatesOptions {
  Tensor out = {};
  Tensor out_lse = {};
};

/// The attention over two disjoint sets of keys from the attention over each: lse = log(exp(lse_a) + exp(lse_b)),
/// out = exp(lse_a - lse) out_a + exp(lse_b - lse) out_b. out [..., Dv] of one float dtype, lse [...] float32.
/// (0, -inf), no keys, is the identity bit for bit. Source: FlashInfer, arXiv 2501.01005, section 3.
AttentionResult merge_states(const Tensor& out_a, const Tensor& lse_a, const Tensor& out_b, const Tensor& lse_b,
                             const MergeStatesOptions& options = {});

}  // namespace tenor
