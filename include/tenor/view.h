// Class 1, views: another shape, strides and offset over the same memory. No data is touched: 0 bytes, 0 FLOPs.
// Dims count from the end when negative; out of range is IndexError, a repeated dim ValueError, sizes that do not fit
// ShapeError. Names and arguments are PyTorch's.
#pragma once

#include <optional>
#include <vector>

#include "tenor/tensor.h"

namespace tenor {

/// x under another shape with the same number of elements; one size may be -1. Succeeds whenever the strides allow it:
/// each new dim lies within one run of old dims that are dense among themselves. @throws ShapeError otherwise.
Tensor view(const Tensor& x, const Dims& shape);
/// As view, but copies when the strides do not allow it.
Tensor reshape(const Tensor& x, const Dims& shape);
/// Dims start..end as one; a copy only where the strides do not allow a view.
Tensor flatten(const Tensor& x, int64_t start_dim = 0, int64_t end_dim = -1);
/// Dim `dim` as several, one of which may be -1.
Tensor unflatten(const Tensor& x, int64_t dim, const Dims& sizes);
/// Exchanges two dims.
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1);
Tensor swapdims(const Tensor& x, int64_t dim0, int64_t dim1);
/// Dim i of the result is dim dims[i] of x.
Tensor permute(const Tensor& x, const Dims& dims);
/// Moves dims `source` to places `destination`, the others keep their order.
Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination);
/// Repeats dims of size 1, and new leading dims, by stride 0; -1 keeps a size.
Tensor expand(const Tensor& x, const Dims& shape);
/// As expand.
Tensor broadcast_to(const Tensor& x, const Dims& shape);
/// A new dim of size 1 before dim `dim`.
Tensor unsqueeze(const Tensor& x, int64_t dim);
/// Without dims of size 1: all of them, or those named (others are left alone).
Tensor squeeze(const Tensor& x);
Tensor squeeze(const Tensor& x, const Dims& dims);
/// Element `index` of dim `dim`, which disappears. @throws IndexError
Tensor select(const Tensor& x, int64_t dim, int64_t index);
/// `length` elements of dim `dim` from `start`. @throws IndexError for what leaves the dim, a negative length too.
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length);
/// start:stop:step of dim `dim`, clamped as in Python; step > 0 (ValueError).
Tensor slice(const Tensor& x, int64_t dim = 0, std::optional<int64_t> start = {}, std::optional<int64_t> stop = {}, int64_t step = 1);
/// Pieces of `size` along dim, the last one smaller. @throws ValueError for size < 1 (0 only of an empty dim), and, as
/// chunk and unbind, for more than 2^24 pieces.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0);
/// Pieces of these sizes along dim, which they must fill. @throws ShapeError
std::vector<Tensor> split(const Tensor& x, const Dims& sizes, int64_t dim = 0);
/// At most `chunks` pieces of equal size but the last; of an empty dim `chunks` empty ones. @throws ValueError for
/// chunks < 1.
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);
/// Every element of dim, which disappears.
std::vector<Tensor> unbind(const Tensor& x, int64_t dim = 0);
/// The diagonal of dims dim1, dim2 as a new last dim; offset > 0 lies above the main one.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1);
/// Windows of `size` elements every `step` along dim, as a new last dim (they share memory where they overlap).
Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step);

}  // namespace tenor
