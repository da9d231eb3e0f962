// Class 3, order: sorts, selections and what is built on them. One order serves all: NaN is the greatest whatever its
// sign bit, -0 equals +0, and of equal elements the lower index comes first, ascending and descending alike. Elements
// keep their bits. Inputs are float64, float32, float16, bfloat16, integers or bool; indices are int64. 0 FLOPs: order
// steps only move. A 0-d x counts as one element along dim 0. A dim out of range is IndexError, an 8-bit float
// DTypeError.
#pragma once

#include <optional>

#include "tenor/scalar.h"
#include "tenor/tensor.h"

namespace tenor {

/// Elements and where they stood along the dim.
struct SortResult {
  Tensor values, indices;
};

struct SortOptions {
  int64_t dim = -1;
  bool descending = false;
  bool stable = true;  ///< sorts are always stable; false promises the caller nothing less
  SortResult out = {};
};
/// x sorted along dim: values of x's shape and dtype, indices int64 with values = take_along_dim(x, indices, dim).
/// Cost: a few passes over a row (LSD radix sort), n^2 / 16 vector steps for rows up to 64; workspace 16 bytes an
/// element of the rows in work (24 for 64-bit dtypes).
SortResult sort(const Tensor& x, const SortOptions& options = {});

struct ArgsortOptions {
  int64_t dim = -1;
  bool descending = false;
  bool stable = true;
  Tensor out = {};
};
/// sort(x).indices.
Tensor argsort(const Tensor& x, const ArgsortOptions& options = {});

struct TopkOptions {
  int64_t dim = -1;
  bool largest = true;
  bool sorted = true;  ///< results are sorted either way
  SortResult out = {};
};
/// The k largest (or smallest) elements along dim in sort's order, so the first k of sort(x, descending = largest).
/// Cost: one or two passes over a row for k <= n / 8, else a sort.
/// @throws ValueError unless 0 <= k <= x's size along dim.
SortResult topk(const Tensor& x, int64_t k, const TopkOptions& options = {});

struct KthvalueOptions {
  int64_t dim = -1;
  bool keepdim = false;
  SortResult out = {};
};
/// The k-th smallest element along dim, k counted from 1: element k - 1 of sort(x).
/// @throws ValueError unless 1 <= k <= x's size along dim.
SortResult kthvalue(const Tensor& x, int64_t k, const KthvalueOptions& options = {});

struct MedianOptions {
  std::optional<int64_t> dim = {};  ///< none: over all elements, and no indices are returned
  bool keepdim = false;
  SortResult out = {};
};
/// The lower of the two middle elements along dim (element (n - 1) / 2 of sort(x)), or the first NaN where there is
/// one.
/// @throws ShapeError over an empty dim when the result is not empty.
SortResult median(const Tensor& x, const MedianOptions& options = {});

/// Members not asked for are undefined.
struct UniqueResult {
  Tensor values, inverse_indices, counts;
};
struct UniqueOptions {
  bool sorted = true;  ///< results are sorted either way
  bool return_inverse = false;
  bool return_counts = false;
  std::optional<int64_t> dim = {};
  UniqueResult out = {};
};
/// The distinct elements, ascending: values [u], counts int64 [u], inverse_indices int64 of x's shape with
/// x = values[inverse_indices]. Every NaN is distinct, as in PyTorch; -0 equals +0, and of equal elements the first is
/// returned. With dim: the distinct slices along dim in lexicographic order (a slice with a NaN is distinct),
/// inverse_indices [x.shape[dim]]. u depends on the data: shape-only tensors are UnsupportedError.
UniqueResult unique(const Tensor& x, const UniqueOptions& options = {});

struct SearchsortedOptions {
  bool right = false;
  Tensor out = {};
};
/// Where each value would go to keep the order: the number of elements < value, or <= value with right. NaN is the
/// greatest. sorted_sequence [n] takes values of any shape; [*B, n] takes values [*B, m]. int64 of values' shape.
/// Two arrays meet in their promoted dtype; a scalar with an integer sequence compares by value, with a float sequence
/// it takes its dtype. That the sequence is sorted is not checked. Cost: log2(n) steps a value.
/// @throws ShapeError for a 0-d sequence, or leading dims that differ.
Tensor searchsorted(const Tensor& sorted_sequence, const Operand& values, const SearchsortedOptions& options = {});

struct BincountOptions {
  Tensor weights = {};
  int64_t minlength = 0;
  Tensor out = {};
};
/// How often each of 0, 1, 2, ... occurs in the integers x [n]: int64 [max(max(x) + 1, minlength)]; with weights [n]
/// the sums of the weights in index order, accumulated in float64: float32 for float32 weights, else float64. The size
/// depends on the data: shape-only tensors are UnsupportedError.
/// @throws ValueError for a negative element or minlength, ShapeError unless x is 1-d and weights has its shape.
Tensor bincount(const Tensor& x, const BincountOptions& options = {});

}  // namespace tenor
