// Reductions on a CUDA device: what a pass is told, and the launchers, one a .cu file.
#pragma once

#include "src/cuda/layout.h"
#include "src/ops/reduce/reduce_problem.h"

namespace tenor::reduce {

/// What the last pass leaves is changed into before it is rounded to out's dtype.
/// kShift leaves the value by the output's number, 0 for an infinite one: what logsumexp takes its exponentials about.
enum class FinishKind : uint8_t { kNone, kMean, kRoot, kPower, kAny, kAll, kVar, kStd, kLog, kShift };

struct Finish {
  FinishKind kind = FinishKind::kNone;
  DType out{};
  double count = 0;              ///< elements that met
  double parameter = 0;          ///< kPower: 1 / p; kVar, kStd: N - correction
  const void* shifts = nullptr;  ///< kLog: one accumulator an output
};

/// Where the kernels write. Two results are those of argmax and of max along a dim.
struct Result {
  void* out = nullptr;
  int64_t* indices = nullptr;
  void* partials = nullptr;  ///< [splits, outputs] accumulators, where several thread blocks share an output
  Finish finish;
};

/// x and out as the kernels walk them.
struct Shape {
  cuda::Layout<2> kept;     ///< strides of x and of out, in the order of x in memory
  cuda::Layout<1> reduced;  ///< likewise: the sequence of the reduction order
  int64_t outputs = 1, count = 1;
};

/// How a sequence lies in memory, and with it how elements are fetched.
enum class Walk : uint8_t {
  kRun,     ///< dense, in whole aligned vectors
  kShift,   ///< dense; vectors are put together from the aligned ones about them
  kStride,  ///< one stride
  kPlane,   ///< runs in whole aligned vectors, over two dims
  kAny,
};

/// A pass over x.
struct Plan {
  const char* op;
  Device device;
  const void* x;
  Shape shape;
  bool by_rows;  ///< the innermost reduced dim is the denser one; else neighbouring outputs are read together
  Walk walk;     ///< along a sequence; of columns kStride or kAny
  bool vectors;  ///< of columns: aligned vectors of neighbouring outputs
};
/// The order of a dimension of x in a sequence: that of the strides a result of x's shape has, or, for the places of
/// extremes, the logical one.
enum class Order : uint8_t { kMemory, kLogical };
/// `out` has x's rank (kept dims of size 1), or lacks the reduced dims.
Plan make_plan(const char* op, const Tensor& x, const Dims& dims, const Tensor& out, Order order = Order::kMemory);

enum class Map : uint8_t { kSquare, kAbs, kPower, kExp };

// One function a .cu file: each takes the dtypes that its comment names.
void sum_floats(const Plan& plan, DType x, const Result& result);    // floats
void sum_integers(const Plan& plan, DType x, const Result& result);  // integers
void mapped_sum(const Plan& plan, DType x, Map map, double power, const void* shifts, const Result& result);  // floats
void prod(const Plan& plan, DType x, const Result& result);                                   // float32, float64, int64
void count_nonzero(const Plan& plan, DType x, const Result& result);                          // all
void extreme(const Plan& plan, DType x, bool largest, bool magnitude, const Result& result);  // all; bool as uint8
void moments(const Plan& plan, DType x, const Result& result);                                // floats
void arg(const Plan& plan, DType x, bool largest, const Result& result);                      // all; bool as uint8

}  // namespace tenor::reduce
