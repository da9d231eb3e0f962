// A scalar argument as an element of a dtype.
#pragma once

#include "src/core/numeric.h"
#include "tenor/scalar.h"

namespace tenor::core {

/// Whether the dtype holds the scalar: for integers and bool, an integer (be it written 2.0) in range, of which bool
/// takes any as whether it is 0; for floats every number, which is rounded.
bool fits(const Scalar& value, DType dtype);
/// @throws ValueError unless it fits, naming operator, argument, value and dtype.
void check_fits(const char* op, const char* argument, const Scalar& value, DType dtype);
/// The scalar as a T, by the rules of numeric.h.
template <class T>
T scalar_as(const Scalar& value) {
  if (value.is_float()) return cast<T>(value.as_double());
  if (value.kind() == Scalar::Kind::kUInt) return cast<T>(static_cast<uint64_t>(value.as_int()));
  return cast<T>(value.as_int());
}
/// The same as an element of that dtype.
void store_scalar(const Scalar& value, DType dtype, void* element);
/// The value as a 0-d tensor of that dtype; without memory on the meta device. @throws ValueError unless it fits.
Tensor scalar_tensor(const char* op, const char* argument, const Scalar& value, DType dtype, Device device);

}  // namespace tenor::core
