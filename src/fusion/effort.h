// What a step asks of a device beside bytes and FLOPs: copying across, functions, conversions of 16-bit floats.
#pragma once

#include <cstdint>

#include "src/fusion/graph.h"

namespace tenor::fusion {

/// Counts of elements, and bytes of operands that lie across the result. Of a kernel the sum of its steps' functions.
struct Effort {
  int64_t exponentials = 0, divisions = 0, operations = 0;
  DType width = float32;             ///< float64 where the functions are
  int64_t widened = 0, rounded = 0;  ///< 16-bit floats read as and written from float32
  DType narrow = bfloat16;           ///< which of them
  int64_t turned_read = 0, turned_written = 0;
};

Effort effort_of(const Node& node);

}  // namespace tenor::fusion
