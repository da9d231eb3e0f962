// Checks that the operators of this family share.
#pragma once

#include "src/core/check.h"
#include "src/core/output.h"
#include "src/core/untraceable.h"

namespace tenor::core {

/// @throws DTypeError for an 8-bit float: everything else has an order here.
inline void check_orderable(const char* op, Named x) {
  check_given(op, x);
  if (is_float8(x.tensor.dtype()))
    fail<DTypeError>("{}: {} must be float16 to float64, an integer or bool, got {}", op, x.name, x.tensor.dtype());
}

/// Both results given or neither, in different memory. @throws ValueError
inline void check_out_pair(const char* op, const Tensor& values, const Tensor& indices) {
  if (values.defined() != indices.defined()) fail<ValueError>("{}: out= needs both values and indices", op);
  check_distinct_outputs(op, {&values, &indices});
}

/// Results whose size depends on data have none before the data is read. @throws UnsupportedError for a shape-only
/// tensor.
inline void check_has_data(const char* op, Named x) {
  if (x.tensor.device().type == DeviceType::kMeta)
    fail_untraceable<UnsupportedError>(
        "{}: the result's size depends on {}'s data, so it cannot be traced by shape alone", op, x.name);
}

}  // namespace tenor::core
