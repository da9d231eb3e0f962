// Packed sequences: cu_seqlens [0, n_1, ..., n_N], where sequence i is the rows n_i to n_(i+1).
#pragma once

#include <vector>

#include "src/core/check.h"

namespace tenor::core {

/// @throws ShapeError, DTypeError or ValueError unless it is a vector of at least one int32 or int64.
void check_cu_seqlens(const char* op, Named x);

/// Its entries, which lie on the host. @throws ValueError unless they rise from 0 to at most `total`
std::vector<int64_t> read_cu_seqlens(const char* op, Named x, int64_t total);

}  // namespace tenor::core
