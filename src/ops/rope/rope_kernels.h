// Entry point of the CPU kernel of rope: single-threaded, over a block of dense heads; operands x, result.
#pragma once

#include "src/cpu/rows.h"
#include "tenor/dtype.h"

namespace tenor::cpu {

struct RopeParameters {
  DType dtype;  // of x
  const Tensor* cos;
  const Tensor* sin;
  int64_t rotary_dim;
  bool interleaved;
  int64_t heads;             // row r of the walk is token r / heads
  const int64_t* positions;  // null: token t stands at t % period
  int64_t period;            // token t reads positions[t % period]
};
void rope_rows(const RowBlock& block, const RopeParameters& p);

}  // namespace tenor::cpu
