// What the family's CPU kernels are: the vector loops over a row, and the operators' row loops.
#pragma once

#include <cstdint>
#include <vector>

#include "src/ops/sampling/random.h"
#include "tenor/tensor.h"

namespace tenor::cpu {

/// What a row's entries are.
enum class RowKind : uint8_t { kLogits, kProbs };

/// A row's largest entry, and whether the row is a distribution: nothing NaN or infinite but -inf among logits, not
/// only -inf; no negative probability, not only zeros.
struct RowTop {
  double top = -std::numeric_limits<double>::infinity();
  bool usable = true;
  void add(const RowTop& other) { top = std::max(top, other.top), usable = usable && other.usable; }
};

/// Tokens that the loops below take at most at a time, where they say so.
inline constexpr int64_t kTokens = 1024;

/// The vector loops (sampling_simd.cpp) over n entries that lie side by side. C, in which e, u and scores are, is the
/// compute type of the row's dtype: float or double.
template <class C>
struct SampleKernels {
  /// Of a part of a row; whether the row's top is finite (and positive) is for the caller to see.
  RowTop (*top)(const void* x, size_t n, DType dtype, RowKind kind);
  /// e = exp((x - top) / temperature), or x / top.
  void (*weigh)(const void* x, size_t n, DType dtype, RowKind kind, C top, C temperature, C* e);
  /// e = max(p - q, 0), NaN as 0; or p alone where q is null.
  void (*subtract)(const void* p, const void* q, size_t n, DType dtype, C* e);
  /// u[i]: the number of token first + i, for n <= kTokens and first a multiple of 4. u has room for kTokens.
  void (*draw)(const sampling::Stream& stream, uint64_t first, size_t n, C* u);
  /// score = e / -log1p(-u); returns the largest.
  C (*score)(const C* e, const C* u, size_t n, C* scores);
};
template <class C>
const SampleKernels<C>& sample_kernels();
template <>
const SampleKernels<float>& sample_kernels();
template <>
const SampleKernels<double>& sample_kernels();

/// A row's options.
struct RowOptions {
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1, min_p = 0;
  uint64_t seed = 0, position = 0;
};

/// x [B, V] with dense rows; options has one entry a row.
struct SampleRows {
  Tensor x;
  RowKind kind;
  sampling::Tag tag;
  bool joint;
  std::vector<RowOptions> options;
};

/// ids [B] int64, valid [B] bool or undefined.
void sample_rows(const SampleRows& rows, const Tensor& ids, const Tensor& valid);
/// ids [B, n]; with replacement by inverting the cumulative masses, else by the n best of the race.
void multinomial_rows(const SampleRows& rows, bool replacement, const Tensor& ids);
/// -inf outside of the first top_k; out may be x.
void mask_rows(const SampleRows& rows, const Tensor& out);
/// The nucleus of top_p, normalised; out may be x.
void normalize_rows(const SampleRows& rows, const Tensor& out);

/// draft undefined: certain drafts. Vocabulary dims are dense, ids contiguous int64 in -1..V-1.
struct SpeculativeRows {
  Tensor target, draft, draft_ids;
  std::vector<RowOptions> options;
};
void accept_rows(const SpeculativeRows& rows, const Tensor& ids, const Tensor& accepted);

}  // namespace tenor::cpu
