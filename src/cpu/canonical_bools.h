// Bools of foreign memory. Kernels read an element as 0 or 1; NumPy and others let any byte be a bool.
#pragma once

#include "tenor/tensor.h"

namespace tenor::cpu {

/// The bool tensor itself when every byte is 0 or 1, else a copy of its layout in which every other byte is 1.
Tensor canonical_bools(const Tensor& x);
/// Makes every byte of the bool tensor that is neither 0 nor 1 a 1, in place: no element's truth changes.
void make_canonical(const Tensor& x);

}  // namespace tenor::cpu
