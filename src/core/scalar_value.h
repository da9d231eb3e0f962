// A scalar argument as a tensor of one element.
#pragma once

#include "tenor/scalar.h"

namespace tenor::core {

/// @throws ValueError when an integer scalar does not fit an integer dtype. (A float is converted as `to` does.)
void check_fits(const char* op, const char* argument, const Scalar& value, DType dtype);
/// The value as a 0-d tensor of that dtype; without memory on the meta device.
Tensor scalar_tensor(const char* op, const char* argument, const Scalar& value, DType dtype, Device device);

}  // namespace tenor::core
