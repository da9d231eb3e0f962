// Arguments that are numbers: Python's, or arrays of one element.
#pragma once

#include "call.h"
#include "src/core/text.h"

namespace tenor::python {

/// @throws DTypeError for anything else, ShapeError for an array of another size.
inline Scalar number_of(const char* op, const char* name, ArrayOrScalar x) {
  if (is_array(x.object)) {
    const Tensor t = to_tensor(op, name, x.object);
    return is_float(t.dtype())    ? Scalar(t.item_double())
           : t.dtype() == boolean ? Scalar(t.item_int() != 0)
           : t.dtype() == uint64  ? Scalar(static_cast<uint64_t>(t.item_int()))
                                  : Scalar(t.item_int());
  }
  if (auto scalar = to_scalar(x.object, op, name)) return *scalar;
  core::fail<DTypeError>("{}: {} must be a number, got {}", op, name, nb::repr(x.object).c_str());
}

}  // namespace tenor::python
