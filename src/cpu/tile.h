// The tile engine: elementwise steps run over a broadcast iteration space in tiles that stay in the L1 cache. A tile is
// a run of at most kTileElements, or a box of them where operands disagree about which dim is dense. For each tile,
// inputs are handed to the steps where they lie when they are dense and of the compute dtype; otherwise they are
// gathered and converted into a buffer. Steps work on dense buffers of compute dtypes; results are stored with one
// rounding.
#pragma once

#include <vector>

#include "tenor/tensor.h"

namespace tenor::cpu {

inline constexpr int64_t kTileElements = 2048;

/// out[i] = fn(in[0][i], in[1][i], ...) for i < n. Out may be an input exactly, element for element.
using StepFn = void (*)(const void* const* in, void* out, size_t n, const void* params);

/// An input or output in memory.
struct TileOperand {
  void* data;
  Dims strides;   ///< at the program's shape; 0 where it is repeated
  DType dtype;    ///< in memory
  DType compute;  ///< in the register
};

/// A step: registers in, a new register out. Registers are numbered inputs first, then steps in order.
struct TileStep {
  static constexpr int kMaxInputs = 4;
  StepFn fn;
  const void* params;
  int inputs[kMaxInputs];
  int arity;
  DType dtype;    ///< of the register it makes
  DType rounded;  ///< float16 or bfloat16 where a later step must see the value so rounded; else the same
};

struct TileProgram {
  Dims shape;
  std::vector<TileOperand> inputs;
  std::vector<TileStep> steps;
  std::vector<TileOperand> outputs;
  std::vector<int> stored;  ///< the register that each output takes
  int64_t cost = 4;  ///< about how many bytes of traffic one element's arithmetic is worth, for the split into threads
};

/// Runs it on all threads. Outputs do not overlap each other; an output may lie exactly on an input.
void run_tiles(const TileProgram& program);

}  // namespace tenor::cpu
