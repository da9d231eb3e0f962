// In place of src/cuda/runtime.h: of it fused kernels need the flag that bad entries raise (executor.cpp compares).
#pragma once

namespace tenor::cuda {

struct ContentError {
  int raised;
  int op;
  long position;
  long value;
};

}  // namespace tenor::cuda
