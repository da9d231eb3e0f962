// Class 5, contractions: each output element depends on a row of one operand and a column of another.
//
// Operands of different dtypes meet in the dtype they promote to, which is the result's dtype unless `dtype` says another.
// float16 and bfloat16 accumulate in float32 and are rounded once, at the very end; with dtype = float32 the accumulator
// itself is the result. float32 errs no more than a chain of float32 FMAs. Integers are exact and wrap in the result's
// dtype; of bool, a product is "and", a sum "or". An inner size of 0 gives zeros. float8 operands are a DTypeError.
//
// Cost: 2 FLOPs a multiply-add, 1 where nothing is summed. Operands are read as they lie, whatever their strides; where a
// copy is made after all (to another dtype, or dims that no one stride walks), the step says so.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenor/tensor.h"

namespace tenor {

struct ContractOptions {
  std::optional<DType> dtype = {};  ///< the result's
  Tensor out = {};
};

/// x @ other. 1-d with 1-d is a dot product, 0-d; a 1-d operand is a row (left) or a column (right) whose dim the result
/// lacks; of n-d operands the leading dims broadcast: [*, m, k] @ [*, k, n] -> [*, m, n].
/// @throws ShapeError for a 0-d operand, unequal inner sizes (both are named) or batches that do not broadcast.
Tensor matmul(const Tensor& x, const Tensor& other, const ContractOptions& options = {});

/// [b, m, k] @ [b, k, n] -> [b, m, n], without broadcasting. @throws ShapeError
Tensor bmm(const Tensor& x, const Tensor& mat2, const ContractOptions& options = {});

/// x [*, k], weight [n, k], bias [n] or none -> [*, n]: x @ weight^T + bias. The bias joins before the one rounding.
/// One FLOP more an output with a bias. @throws ShapeError
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ContractOptions& options = {});

/// x [m], vec2 [n] -> [m, n], x[i] * vec2[j]. @throws ShapeError unless both are 1-d.
Tensor outer(const Tensor& x, const Tensor& vec2, const ContractOptions& options = {});

/// x [k], tensor [k] -> 0-d, their inner product. @throws ShapeError unless both are 1-d of one size.
Tensor dot(const Tensor& x, const Tensor& tensor, const ContractOptions& options = {});

/// Sums over the last `dims` dims of x and the first of b. @throws ValueError for a count out of range, ShapeError.
Tensor tensordot(const Tensor& x, const Tensor& b, int64_t dims = 2, const ContractOptions& options = {});
/// Sums over dims_x[i] of x with dims_b[i] of b; the result has the other dims of x, then those of b.
/// @throws IndexError, ValueError for a repeated dim or lists of different lengths, ShapeError for unequal sizes.
Tensor tensordot(const Tensor& x, const Tensor& b, const Dims& dims_x, const Dims& dims_b, const ContractOptions& options = {});

/// Einstein summation: "bij,bjk->bik". A letter names a dim, "..." those between; a letter twice in one operand is its
/// diagonal; a letter that the output lacks is summed. Without "->" the output has the dims of "...", then the letters that
/// occur once, in alphabetical order. Size 1 broadcasts, under summed letters too. Three and more operands are contracted
/// in pairs in the cheapest order (einsum_path), and in the order given under batch_invariant().
/// @throws ShapeError naming the subscript, the operand and both sizes; ValueError for a malformed equation.
Tensor einsum(std::string_view equation, std::span<const Tensor> operands, const ContractOptions& options = {});

/// One step of an einsum: two operands meet in a new one, which goes to the end of the list they are taken from.
struct EinsumStep {
  int first, second;     ///< places in the list at that time, first < second; equal where one operand only is summed
  std::string equation;  ///< of this step alone; "..." dims are written as capital letters past those used
  int64_t flops;
};

struct EinsumPath {
  std::vector<EinsumStep> steps;
  Dims shape;         ///< of the result
  int64_t flops = 0;  ///< of all steps
};

/// The order in which einsum contracts operands of these shapes, and what it costs: the fewest FLOPs over all pairwise
/// orders of up to eight operands, the cheapest next pair (greedy) beyond. No data is touched. @throws as einsum.
EinsumPath einsum_path(std::string_view equation, std::span<const Dims> shapes);

}  // namespace tenor
