// In place of src/cuda/runtime.h: of it fused kernels need the flag that bad entries raise (executor.cpp compares).
#pragma once

#include <cstdint>

namespace tenor::cuda {

struct ContentError {
  int raised;
  int op;
  int64_t position;
  int64_t value;
};

}  // namespace tenor::cuda
