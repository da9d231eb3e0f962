// one_hot on CUDA.
#pragma once

#include "tenor/tensor.h"

namespace tenor::index {

/// out[i][c] = 1 where c is class i, else 0: dense int64 [classes of index, n]. A class outside 0..n-1 gives zeros and
/// raises the flag.
void one_hot_on_device(const Tensor& index, const Tensor& out);
/// The largest entry of a dense index, on the host. Waits for the stream. @throws UnsupportedError under graph capture
int64_t greatest_entry_on_device(const char* op, const Tensor& index);

}  // namespace tenor::index
