// How a kernel says that an entry of an argument is bad: it drops the entry and raises the flag of its stream.
#pragma once

#include "src/cuda/runtime.h"

namespace tenor::cuda {

/// Raises the flag unless it already is; `op` from content_op(), `flag` from content_error().
__device__ inline void raise_content_error(ContentError* flag, int op, int64_t position, int64_t value) {
  if (atomicCAS(&flag->raised, 0, 1) != 0) return;
  flag->op = op;
  flag->position = position;
  flag->value = value;
}

}  // namespace tenor::cuda
