// Grids of this family's kernels.
#pragma once

#include <cstdint>

namespace tenor::delta {

/// Blocks of kernels whose blocks are columns, then heads, then sequences. @throws UnsupportedError beyond 2^31
unsigned blocks_of(const char* op, int64_t column_blocks, int64_t heads, int64_t sequences);

}  // namespace tenor::delta
