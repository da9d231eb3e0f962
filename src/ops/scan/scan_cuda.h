// Scans on a CUDA device: what a scan is told, and the launchers, one a .cu file.
#pragma once

#include "src/cuda/layout.h"
#include "src/ops/scan/scan_problem.h"

namespace tenor::scan {

/// Lines of x and of out as the kernels walk them.
struct Lines {
  cuda::Layout<2> kept;  ///< strides of x and of out over all dims but the scanned one, in the order of x's strides
  int64_t lines = 1, count = 1;
  int64_t x_step = 1, y_step = 1;  ///< along a line
};

struct Plan {
  const char* op;
  Device device;
  const void* x;
  void* out;
  int64_t* indices;  ///< of cummax and cummin
  Lines lines;
  bool by_rows;  ///< the elements of a line are nearer than those of neighbouring lines
  bool vectors;  ///< 16-byte accesses along the lines of x and out are aligned
};
Plan make_plan(const char* op, const Tensor& x, const Tensor& out, const Tensor& indices, int dim);

// `x` and the dtype of plan.out as the comments say.
void sum_floats(const Plan& plan, DType x);             // floats, to the same
void sum_integers(const Plan& plan, DType x);           // uint8 (and bool), int32, int64, to 64 bits
void prod(const Plan& plan, DType x);                   // float32 (formed in float64), float64, int64, to the same
void extreme(const Plan& plan, DType x, bool largest);  // floats, int32, int64, uint64, to the same
void log_sum(const Plan& plan, DType x);                // floats, to the same

}  // namespace tenor::scan
