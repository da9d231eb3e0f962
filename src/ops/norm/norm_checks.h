// Checks that the operators of this family share.
#pragma once

#include "src/core/check.h"

namespace tenor {

/// @throws ShapeError unless x has a last axis of length > 0.
inline void check_last_axis(const char* op, const Tensor& x) {
  if (x.ndim() == 0 || x.shape(-1) == 0)
    core::fail<ShapeError>("{}: x must have a last axis of length > 0, got shape {}", op, x.shape());
}

/// A vector of `count` elements on x's device: float32 or x's dtype. @throws DTypeError, DeviceError, ShapeError
inline void check_vector(const char* op, core::Named v, const Tensor& x, int64_t count) {
  core::check_given(op, v);
  if (v.tensor.dtype() != float32 && v.tensor.dtype() != x.dtype())
    core::fail<DTypeError>("{}: {} must be float32 or x's dtype {}, got {}", op, v.name, x.dtype(), v.tensor.dtype());
  core::check_same_device(op, {{"x", x}, v});
  core::check_shape(op, v, {count});
}
inline void check_optional_vector(const char* op, core::Named v, const Tensor& x, int64_t count) {
  if (v.tensor.defined()) check_vector(op, v, x, count);
}

}  // namespace tenor
