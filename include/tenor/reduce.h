// Class 3, reductions: one output element depends on a row of x. `dim` is one dim, several, or all (absent); dim = {}
// (given, and empty) reduces nothing. Reduced dims disappear, or stay with size 1 under keepdim. A 0-d tensor has the
// dim 0.
//
// Floats of 16 bits accumulate in float32 and round once. Every float reduction follows its device's one order
// (src/core/reduction_order.h, src/cuda/reduction_order.h), so its bits do not depend on neighbouring rows or thread
// count, nor on the layout but for the order of several reduced dims in memory; a float32 sum of R elements errs by
// about 128 + log2(R) roundings of it (CUDA: 4 + log2(R)). NaN propagates. Cost: x is read once (var, std: three times,
// logsumexp: twice, in cache where a row fits; CUDA: var once), 1 FLOP an element.
//
// Errors: IndexError for a dim out of range, ValueError for a repeated one, DTypeError for 8-bit floats, ShapeError
// where an empty axis leaves no value (max, min, amax, amin, argmax, argmin, norm of an infinite p), and those of out=.
#pragma once

#include <optional>

#include "tenor/tensor.h"

namespace tenor {

struct ReduceOptions {
  std::optional<Dims> dim = {};
  bool keepdim = false;
  Tensor out = {};
};
struct SumOptions {
  std::optional<Dims> dim = {};
  bool keepdim = false;
  std::optional<DType> dtype = {};  ///< elements are converted to it, and it is the result's
  Tensor out = {};
};
struct VarOptions {
  std::optional<Dims> dim = {};
  bool keepdim = false;
  double correction = 1;
  Tensor out = {};
};
struct NormOptions {
  double p = 2;
  std::optional<Dims> dim = {};
  bool keepdim = false;
  std::optional<DType> dtype = {};
  Tensor out = {};
};
struct ArgOptions {
  std::optional<int64_t> dim = {};  ///< absent: the index in the flattened x
  bool keepdim = false;
  Tensor out = {};
};
struct ExtremeOptions {
  bool keepdim = false;
  Tensor out = {};  ///< values
  Tensor out_indices = {};
};

/// The values along a dim and their int64 indices.
struct ExtremeResult {
  Tensor values, indices;
};

/// sum x. Integers and bool give int64, unsigned integers uint64 (modulo 2^64); floats keep their dtype. Of nothing: 0.
Tensor sum(const Tensor& x, const SumOptions& options = {});
/// sum x / N. Integers and bool give float32. Of nothing: NaN. @throws DTypeError for a dtype that is no float
Tensor mean(const Tensor& x, const SumOptions& options = {});
/// The product of x, with sum's dtypes. Of nothing: 1.
Tensor prod(const Tensor& x, const SumOptions& options = {});
/// The largest element, a NaN if there is one.
Tensor amax(const Tensor& x, const ReduceOptions& options = {});
Tensor amin(const Tensor& x, const ReduceOptions& options = {});
/// As amax; without a dim, the largest of all elements.
Tensor max(const Tensor& x, const ReduceOptions& options = {});
Tensor min(const Tensor& x, const ReduceOptions& options = {});
/// The largest element along dim and where it is: the first NaN, else the first of equals.
ExtremeResult max(const Tensor& x, int64_t dim, const ExtremeOptions& options = {});
ExtremeResult min(const Tensor& x, int64_t dim, const ExtremeOptions& options = {});
/// The index (int64) of the first NaN, else of the first largest element.
Tensor argmax(const Tensor& x, const ArgOptions& options = {});
Tensor argmin(const Tensor& x, const ArgOptions& options = {});
/// Whether some element is not zero (NaN is not). Of nothing: false.
Tensor any(const Tensor& x, const ReduceOptions& options = {});
/// Whether every element is not zero. Of nothing: true.
Tensor all(const Tensor& x, const ReduceOptions& options = {});
/// How many elements are not zero, int64.
Tensor count_nonzero(const Tensor& x, const ReduceOptions& options = {});
/// (sum |x|^p)^(1/p); p = inf: the largest |x|, -inf: the smallest, 0: the count of x != 0. Integers give float32.
/// @throws DTypeError for a dtype that is no float, ValueError for a NaN p
Tensor norm(const Tensor& x, const NormOptions& options = {});
/// sum (x - mean)^2 / (N - correction), in two passes, the mean's rounding error taken out (Chan, Golub, LeVeque 1983).
/// NaN where N - correction <= 0. Integers give float32. @throws ValueError for a correction that is not finite
Tensor var(const Tensor& x, const VarOptions& options = {});
/// sqrt(var)
Tensor std(const Tensor& x, const VarOptions& options = {});
/// log(sum exp(x)), about the maximum. All -inf, and nothing: -inf; with +inf: +inf. Integers give float32.
Tensor logsumexp(const Tensor& x, const ReduceOptions& options = {});

}  // namespace tenor
