// Class 4, index: an output element depends on places that data names. Bytes: the elements moved, plus the indices; 0
// FLOPs.
//
// Rules of every operator here. Index arrays have any integer dtype, entries -n..n-1; an entry out of range is
// IndexError naming the operator, the value and its position, before anything is written. The functional forms never
// modify an input; the forms with a trailing underscore write x and return it. Inputs that overlap what is written are
// read first. Where two entries name one place the last one in row-major order wins; sums add in that order, 16-bit
// data in float32 with one rounding at the end. Masks are bool. Names and arguments are PyTorch's unless said
// otherwise.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tenor/scalar.h"
#include "tenor/tensor.h"

namespace tenor {

struct IndexOptions {
  Tensor out = {};  ///< written instead of new memory: the result's shape and dtype
};

// ---- reading at named places
// --------------------------------------------------------------------------------------------

/// out[..., i, ...] = x[..., index[i], ...] along dim; index has 0 or 1 dims.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index, const IndexOptions& options = {});
/// weight[index]: index [*S], weight [V, *R] -> [*S, *R].
Tensor embedding(const Tensor& index, const Tensor& weight, const IndexOptions& options = {});
/// out[i][j][k] = x[index[i][j][k]][j][k] for dim 0: the shape of index, which has x's rank and is no larger than x
/// outside of dim (ShapeError).
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index, const IndexOptions& options = {});
/// As gather, x and indices broadcast against each other outside of dim; without dim, over the flattened arrays.
Tensor take_along_dim(const Tensor& x, const Tensor& indices, std::optional<int64_t> dim = {},
                      const IndexOptions& options = {});
/// x[indices[0], indices[1], ...]: one entry a dim of x, undefined for a whole dim; a bool entry of k dims stands for k
/// dims. The entries broadcast together, and their dims stand where the first one was when they are neighbours, else in
/// front, as in PyTorch and NumPy. @throws IndexError for too many, ShapeError for a mask of another size.
Tensor index_get(const Tensor& x, const std::vector<Tensor>& indices, const IndexOptions& options = {});

// ---- writing at named places
// --------------------------------------------------------------------------------------------

/// x with out[index[i][j][k]][j][k] = src[i][j][k] for dim 0. src has x's dtype (DTypeError), x's rank, and is no
/// smaller than index; or it is one value for all.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Operand& src, const IndexOptions& options = {});
Tensor scatter_(const Tensor& x, int64_t dim, const Tensor& index, const Operand& src);
/// As scatter, adding.
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Operand& src,
                   const IndexOptions& options = {});
Tensor scatter_add_(const Tensor& x, int64_t dim, const Tensor& index, const Operand& src);

struct ScatterReduceOptions {
  bool include_self = true;  ///< whether x's own value takes part; places that nothing names always keep it
  Tensor out = {};
};
/// As scatter, combining by reduce: "sum", "prod", "mean", "amax" or "amin" (ValueError). The mean of integers is
/// floored.
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Operand& src, std::string_view reduce,
                      const ScatterReduceOptions& options = {});
Tensor scatter_reduce_(const Tensor& x, int64_t dim, const Tensor& index, const Operand& src, std::string_view reduce,
                       const ScatterReduceOptions& options = {});

struct IndexAddOptions {
  Scalar alpha = 1;  ///< an integer for integer x (ValueError)
  Tensor out = {};
};
/// x with alpha * source[..., i, ...] added to x[..., index[i], ...]; source has x's dtype and, but for dim, x's shape.
/// Deterministic: each place adds in index order.
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                 const IndexAddOptions& options = {});
Tensor index_add_(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                  const IndexAddOptions& options = {});

struct IndexPutOptions {
  bool accumulate = false;  ///< add instead of write
  Tensor out = {};
};
/// x with x[indices] = values, indices as in index_get. values has x's dtype (DTypeError) and broadcasts to the shape
/// of x[indices] (ShapeError), or is a scalar.
Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Operand& values,
                 const IndexPutOptions& options = {});
Tensor index_put_(const Tensor& x, const std::vector<Tensor>& indices, const Operand& values,
                  const IndexPutOptions& options = {});

/// x = value, converted to x's dtype and broadcast to x's shape (ShapeError): what `x[key] = value` does to a view.
Tensor assign_(const Tensor& x, const Operand& value);

// ---- masks
// --------------------------------------------------------------------------------------------------------------

/// The elements of x where mask holds, a 1-d tensor in row-major order; x and mask broadcast.
Tensor masked_select(const Tensor& x, const Tensor& mask, const IndexOptions& options = {});
/// x with the k-th place where mask holds (row-major) set to source's k-th element. source has x's dtype and enough
/// elements (ShapeError); x and mask broadcast, in place only mask does.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source, const IndexOptions& options = {});
Tensor masked_scatter_(const Tensor& x, const Tensor& mask, const Tensor& source);
/// The places of x that are not zero (NaN is not), row-major: int64 [count, ndim].
Tensor nonzero(const Tensor& x, const IndexOptions& options = {});

// ---- joining and rearranging
// --------------------------------------------------------------------------------------------

/// The tensors one after the other along dim: equal rank (at least 1) and equal sizes elsewhere, empty ones included
/// (ShapeError); none at all is ValueError. The dtype is the promotion of all.
Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0, const IndexOptions& options = {});
/// The tensors, of one shape, along a new dim.
Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0, const IndexOptions& options = {});
/// x laid out dims[d] times along each dim; missing leading entries of either count as 1.
Tensor tile(const Tensor& x, const Dims& dims, const IndexOptions& options = {});
/// As tile, with at least as many sizes as x has dims (ShapeError).
Tensor repeat(const Tensor& x, const Dims& sizes, const IndexOptions& options = {});

struct RepeatInterleaveOptions {
  std::optional<int64_t> dim = {};          ///< none: over the flattened x
  std::optional<int64_t> output_size = {};  ///< must be the sum of the repeats (ValueError)
  Tensor out = {};
};
/// Each element along dim `repeats` times in a row.
Tensor repeat_interleave(const Tensor& x, int64_t repeats, const RepeatInterleaveOptions& options = {});
/// Element i repeats[i] times; repeats is an integer tensor of one entry or of dim's size.
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, const RepeatInterleaveOptions& options = {});

/// Elements moved by shifts[i] places along dims[i], around the end; without dims, along the flattened x.
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims = {}, const IndexOptions& options = {});
/// Elements in reverse order along each of dims (a copy: Tenor has no negative strides).
Tensor flip(const Tensor& x, const Dims& dims, const IndexOptions& options = {});

struct OneHotOptions {
  int64_t num_classes = -1;  ///< -1: the largest class + 1
  Tensor out = {};
};
/// int64 [*S, num_classes], 1 where the class is x's, else 0. Classes are 0..num_classes-1 (IndexError).
Tensor one_hot(const Tensor& x, const OneHotOptions& options = {});

}  // namespace tenor
