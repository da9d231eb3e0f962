// The pointwise engine: out[i] = f(in0[i], in1[i], ...) over a broadcast shape, each operand of its own storage dtype.
// pointwise.cuh has the kernel; here is what a call looks like and how it is laid out.
#pragma once

#include <cstdint>

#include "src/cuda/layout.h"
#include "tenor/tensor.h"

namespace tenor::cuda {

inline constexpr int kPointwiseInputs = 3;

/// An operand in memory, or one value for all places.
struct PointwiseInput {
  const void* data = nullptr;
  DType dtype = float32;  ///< in memory
  Dims strides = {};      ///< at the result's shape; 0 where it is repeated
  bool constant = false;
  uint64_t value = 0;  ///< of a constant: the bits of an element of the compute type
};

struct PointwiseCall {
  const char* op;
  PointwiseInput in[kPointwiseInputs];
  int arity;
  Tensor out;
  DType out_dtype;  ///< as the kernel writes it: out's, or the unsigned integer of its bits
};

enum class Access : uint8_t {
  kVector,    ///< neighbouring elements for neighbouring places
  kSplat,     ///< one element for all places of a vector
  kConstant,  ///< no memory
};

/// What the kernel gets. Its threads work on units: vectors of places along the innermost dim.
struct PointwiseArgs {
  const void* in[kPointwiseInputs];
  uint64_t constant[kPointwiseInputs];
  DType dtype[kPointwiseInputs];
  int item[kPointwiseInputs];  ///< bytes of an element
  Access access[kPointwiseInputs];
  void* out;
  DType out_dtype;
  int64_t units;
  int head, tail;                       ///< places before the first unit and behind the last, of a one-dimensional walk
  Layout<kPointwiseInputs + 1> layout;  ///< of units; the result comes last
};

/// A call with its dims collapsed, to be cut into units.
struct PointwiseWalk {
  PointwiseArgs args;
  int arity;
};
PointwiseWalk walk_pointwise(const PointwiseCall& call);
/// Cuts the innermost dim into vectors of `width` elements. False, and nothing done, where strides or alignment forbid
/// it; a one-dimensional walk may have a head, when all operands are misaligned alike, and a tail. Width 1 always fits.
bool cut_pointwise(PointwiseWalk& walk, int width);

}  // namespace tenor::cuda
