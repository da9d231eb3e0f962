#include "src/ops/gated_delta/blocks_cuda.h"

#include "src/core/step.h"
#include "src/core/text.h"
#include "tenor/error.h"

namespace tenor::delta {

unsigned blocks_of(const char* op, int64_t column_blocks, int64_t heads, int64_t sequences) {
  const int64_t blocks = core::count_product(core::count_product(column_blocks, heads), sequences);
  if (blocks > INT32_MAX) core::fail<UnsupportedError>("{}: needs {} blocks, more than 2^31 - 1", op, blocks);
  return static_cast<unsigned>(blocks);
}

}  // namespace tenor::delta
