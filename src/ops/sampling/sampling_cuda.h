// The family's CUDA kernels, behind plain functions. Rows are dense along the tokens.
#pragma once

#include "tenor/tensor.h"

namespace tenor::cuda {

/// An option of all rows: one of `rows` each where it is defined, else the number.
struct RowOption {
  Tensor rows = {};
  double real = 0;
  int64_t integer = 0;
};
struct RowOptionSet {
  RowOption temperature, top_k, top_p, min_p, seed, position;
};

struct SampleRows {
  const char* op;
  Tensor x;  ///< [B, V]
  bool probs;
  uint32_t tag;
  bool joint;
  RowOptionSet options;
};

/// ids [B] int64 (`unusable` for rows without a distribution), valid [B] bool or undefined.
void sample_rows(const SampleRows& rows, const Tensor& ids, const Tensor& valid, int64_t unusable = 0);
/// scores [B, V] of the compute dtype, row-major: -1 for tokens that are not drawn.
void score_rows(const SampleRows& rows, const Tensor& scores);
/// ids [B, n] row-major: by inverting the cumulative masses.
void replacement_rows(const SampleRows& rows, const Tensor& ids);
/// ids = -1 where the score is below 0; [B, n] row-major.
void drop_undrawn(const Tensor& scores, const Tensor& ids);
/// -inf outside of the first top_k; out has dense rows and may be x.
void mask_rows(const SampleRows& rows, const Tensor& out);
/// The nucleus of top_p, normalised; out has dense rows and may be x.
void normalize_rows(const SampleRows& rows, const Tensor& out);
/// draft may be undefined; draft_ids [B, n], ids [B, n + 1], accepted [B].
void accept_rows(const Tensor& target, const Tensor& draft, const Tensor& draft_ids, const RowOptionSet& options,
                 const Tensor& ids, const Tensor& accepted);

}  // namespace tenor::cuda
