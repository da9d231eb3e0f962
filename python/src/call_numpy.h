// NumPy's arrays as tensors over their memory; the way back is to_numpy() of call.h.
#pragma once

#include "call.h"

namespace tenor::python {

/// An array or scalar of NumPy, ml_dtypes' dtypes included. @throws DTypeError, ValueError naming op and argument
Tensor from_numpy(const char* op, const char* name, nb::handle x);

}  // namespace tenor::python
