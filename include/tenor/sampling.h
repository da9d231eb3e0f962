// Sampling: tokens drawn from rows of logits or probabilities. A draw is a function of the row, its options, its seed
// and its position alone: neighbours, the batch's size, the device's load and the number of threads do not show in it,
// and rows with one seed and position draw alike. Random numbers are Philox4x32-10 (Salmon et al., SC 2011) of (seed,
// position, token) under a tag of the operator's own. A token is drawn by an exponential race: of the kept tokens the
// one with the largest weight / E wins, E = -log1p(-u), which has probability weight / sum of the weights kept. Rows
// are float64, float32, float16 or bfloat16, any strides; 16-bit rows are computed in float32.
#pragma once

#include <optional>

#include "tenor/scalar.h"
#include "tenor/tensor.h"

namespace tenor {

/// Token ids int64 [B], and where asked for, whether each row had a usable distribution (bool [B]).
struct SampleResult {
  Tensor ids, valid;
};

/// Every number may be a scalar or a tensor [B], one a row.
struct SampleOptions {
  Operand temperature = 1.0;          ///< 0: the largest logit, the lowest index on ties
  std::optional<Operand> top_k = {};  ///< integers; <= 0 or >= V: no filter
  std::optional<Operand> top_p = {};  ///< >= 1: no filter; <= 0 keeps one token
  std::optional<Operand> min_p = {};  ///< <= 0: no filter
  std::optional<Operand> seed = {};   ///< integers, taken modulo 2^64; required
  Operand position = 0;               ///< integers
  bool joint = false;                 ///< every filter on the unfiltered distribution
  bool return_valid = false;
  SampleResult out = {};
};
/// One token a row of logits [B, V] from softmax(logits / temperature), filtered by top-k, then top-p, then min-p, each
/// on the distribution renormalised by those before it. Tokens are ordered as by sort(descending): larger first, then
/// the lower index. top-k keeps the first k; top-p the tokens before which lies a mass <= top_p; min-p those with at
/// least min_p of the largest probability. A row that holds NaN or +inf, or only -inf, has no distribution: its id is
/// 0. Cost: reads a row once; 0 FLOPs by convention.
/// @throws ValueError for a negative or NaN temperature, a NaN top_p or min_p, min_p > 1, no seed; ShapeError for
/// options that are neither scalars nor [B], V = 0; DTypeError for others than floats, options of a wrong kind
SampleResult sample(const Tensor& logits, const SampleOptions& options);

struct SampleFromProbsOptions {
  std::optional<Operand> top_k = {}, top_p = {}, min_p = {}, seed = {};
  Operand position = 0;
  bool return_valid = false;
  SampleResult out = {};
};
/// The same from probabilities [B, V], whose rows need not sum to 1. A row with a negative, NaN or infinite entry, or
/// of zeros alone, has no distribution. Tokens of probability 0 are never drawn.
SampleResult sample_from_probs(const Tensor& probs, const SampleFromProbsOptions& options);

struct MultinomialOptions {
  bool replacement = false;
  std::optional<Operand> seed = {};
  Operand position = 0;
  Tensor out = {};
};
/// num_samples tokens from probs [V] or [B, V] (rows need not sum to 1): int64 [n] or [B, n]. Without replacement the
/// tokens differ, in the order drawn; once the tokens of positive probability are used up, and in rows without a
/// distribution, -1. Cost: a race over a row and its top n; with replacement a prefix sum and n binary searches.
/// @throws ValueError unless num_samples >= 1, and at most V without replacement
Tensor multinomial(const Tensor& probs, int64_t num_samples, const MultinomialOptions& options);

struct TopKMaskOptions {
  Tensor out = {};
};
/// logits [B, V] with -inf outside of each row's first top_k tokens (scalar or [B]; <= 0 or >= V: as they are).
Tensor top_k_mask_logits(const Tensor& logits, const Operand& top_k, const TopKMaskOptions& options = {});

struct TopPNormalizeOptions {
  Tensor out = {};
};
/// probs [B, V] with 0 outside of each row's top_p nucleus (scalar or [B]), the rest divided by its sum. A row without
/// a distribution is NaN.
Tensor top_p_normalize_probs(const Tensor& probs, const Operand& top_p, const TopPNormalizeOptions& options = {});

/// ids [B, n + 1]: the accepted drafts, one token drawn after them, then -1; accepted [B] how many drafts were.
struct SpeculativeResult {
  Tensor ids, accepted;
};
struct SpeculativeOptions {
  std::optional<Operand> seed = {};
  Operand position = 0;
  SpeculativeResult out = {};
};
/// Speculative acceptance (Leviathan et al. 2023, Chen et al. 2023): draft i is accepted if u * draft_probs[i, id] <
/// target_probs[i, id], u in [0, 1) hashed from (seed, position + i). After the first rejection one token comes from
/// the normalised max(target - draft, 0) of that place (from target where that is zero everywhere), after n acceptances
/// from target row n. draft_id -1 ends the chain early: the token then comes from target there. Undefined draft_probs:
/// the drafts were certain (1 at the draft, 0 elsewhere). target_probs [B, n + 1, V], draft_probs [B, n, V] of one
/// float dtype, draft_ids [B, n] integers. @throws IndexError for an id outside of -1..V-1, ShapeError, DTypeError,
/// ValueError for no seed
SpeculativeResult speculative_accept(const Tensor& target_probs, const Tensor& draft_probs, const Tensor& draft_ids,
                                     const SpeculativeOptions& options);

}  // namespace tenor
