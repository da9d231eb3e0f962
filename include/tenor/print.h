// Tensors as text, for a debugger's eye and for logs.
#pragma once

#include <iosfwd>
#include <string>

#include "tenor/tensor.h"

namespace tenor {

/// "tensor([[1, 2], [3, 4]], float32, (2, 2), cpu)": the values in row-major order, then dtype, shape and device. Of a
/// dim longer than 2 * edge only the first and the last `edge` entries are shown, with "..." between them. Copies what
/// lies on a CUDA device to the host (and waits for it); a meta tensor, which holds none, shows no values. An undefined
/// Tensor is "tensor(undefined)". Bool as true and false, floats in the shortest form of six significant digits.
std::string to_string(const Tensor& x, int64_t edge = 3);

/// Writes to_string(x).
std::ostream& operator<<(std::ostream& out, const Tensor& x);

}  // namespace tenor
