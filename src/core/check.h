// Checks that every operator makes of its arguments, with the error text of the contract.
#pragma once

#include <cmath>
#include <initializer_list>
#include <utility>

#include "src/core/layout.h"
#include "src/core/text.h"
#include "tenor/tensor.h"

namespace tenor::core {

/// An argument and its name, for error texts.
struct Named {
  const char* name;
  const Tensor& tensor;
};

/// A dim in -ndim..ndim-1 as 0..ndim-1; a 0-d tensor has one dim, 0. @throws IndexError
inline int normalize_dim(const char* op, int64_t dim, int ndim, const char* argument = "dim") {
  const int64_t n = ndim == 0 ? 1 : ndim;
  if (dim < -n || dim >= n) fail<IndexError>("{}: {} {} is out of range for {} dims (expected {} to {})", op, argument, dim, ndim, -n, n - 1);
  return static_cast<int>(dim < 0 ? dim + n : dim);
}

/// Every dim normalised and distinct, in the order given. @throws IndexError, ValueError for a repeated one.
Dims normalize_dims(const char* op, const Dims& dims, int ndim, const char* argument = "dim");

/// @throws DTypeError unless the argument is given (a defined tensor).
inline void check_given(const char* op, Named x) {
  if (!x.tensor.defined()) fail<DTypeError>("{}: {} is required, got nothing", op, x.name);
}
/// @throws DTypeError unless it is float16, bfloat16, float32 or float64.
inline void check_float(const char* op, Named x) {
  check_given(op, x);
  if (!is_float(x.tensor.dtype()) || is_float8(x.tensor.dtype()))
    fail<DTypeError>("{}: {} must be float16, bfloat16, float32 or float64, got {}", op, x.name, x.tensor.dtype());
}
/// @throws DTypeError unless it has that dtype.
inline void check_dtype(const char* op, Named x, DType dtype) {
  check_given(op, x);
  if (x.tensor.dtype() != dtype) fail<DTypeError>("{}: {} must be {}, got {}", op, x.name, dtype, x.tensor.dtype());
}
/// @throws DTypeError unless it has x's dtype.
inline void check_same_dtype(const char* op, Named x, Named y) {
  check_given(op, y);
  if (x.tensor.dtype() != y.tensor.dtype())
    fail<DTypeError>("{}: {} must have {}'s dtype {}, got {}", op, y.name, x.name, x.tensor.dtype(), y.tensor.dtype());
}
/// @throws DTypeError unless it is an integer array (indices, offsets, lengths).
inline void check_index_dtype(const char* op, Named x) {
  check_given(op, x);
  if (!is_integer(x.tensor.dtype())) fail<DTypeError>("{}: {} must be an integer array, got {}", op, x.name, x.tensor.dtype());
}
/// @throws ShapeError unless it has that shape.
inline void check_shape(const char* op, Named x, const Dims& shape) {
  check_given(op, x);
  if (x.tensor.shape() != shape) fail<ShapeError>("{}: {} must have shape {}, got {}", op, x.name, shape, x.tensor.shape());
}
/// @throws ShapeError unless it has that many dims.
inline void check_ndim(const char* op, Named x, int ndim) {
  check_given(op, x);
  if (x.tensor.ndim() != ndim)
    fail<ShapeError>("{}: {} must have {} dims, got {} with shape {}", op, x.name, ndim, x.tensor.ndim(), x.tensor.shape());
}
/// @throws DeviceError unless all defined tensors are on one device.
void check_same_device(const char* op, std::initializer_list<Named> tensors);
/// @throws ValueError unless finite and > 0.
inline void check_positive(const char* op, const char* argument, double value) {
  if (!(std::isfinite(value) && value > 0)) fail<ValueError>("{}: {} must be finite and > 0, got {}", op, argument, value);
}

/// The shape that two shapes broadcast to, aligned at the right; 1 meets 0 as 0. @throws ShapeError naming both sizes.
Dims broadcast_shapes(const char* op, const Dims& a, const Dims& b);

/// Whether two lists of strides mean the same for that shape (strides of dims of size 1 do not count).
bool same_strides(const Dims& shape, const Dims& a, const Dims& b);

}  // namespace tenor::core
