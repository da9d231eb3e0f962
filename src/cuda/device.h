// A CUDA device as something to measure: src/core/instruments.h.
#pragma once

#include "src/core/instruments.h"

namespace tenor::cuda {

core::Instruments& instruments();

}  // namespace tenor::cuda
