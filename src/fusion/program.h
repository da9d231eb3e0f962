// A fused kernel, device-neutral: what an executor (the CPU's, CUDA's) runs. Made by lower() from some steps of a
// graph.
//
// The iteration space has axes. An axis is kept, or reduced: taken up by a reduction of this kernel. One instruction is
// one value for each point of the axes along which it varies; the value is exactly what the unfused operator would have
// stored, so an executor may hold it in a wider dtype but only after rounding it to `dtype`. Registers are numbered as
// their instructions, which stand in an order in which they can run.
//
// Softmax of x [rows, n], float32:
//     axes: {rows, kept}, {n, reduced}
//     0 load   array 0, strides (n, 1)
//     1 reduce max of 0 over axis 1          varies along axis 0
//     2 map    sub 0, 1
//     3 map    exp 2
//     4 reduce sum of 3 over axis 1
//     5 map    div 3, 4
//     stores: 5 to array 1, strides (n, 1)
//
// Exactness. A map computes as its operator does on that device: inputs converted to `compute`, the formula in
// `computed`, one rounding to `dtype`; no contraction across maps, IEEE division and square root. A reduction adds in
// the device's own order (core/reduction_order.h, cuda/reduction_order.h) over the sequence that `axes` spell out.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "src/ops/elementwise/elementwise_ops.h"
#include "src/ops/reduce/reduce_problem.h"
#include "tenor/tensor.h"

namespace tenor::fusion {

struct Axis {
  int64_t size;
  bool reduced = false;
};

/// Memory that the caller hands over at each run: a pointer to element 0 of its tensor, as it was traced.
struct Argument {
  DType dtype;
  size_t alignment;      ///< of that pointer, in bytes, at least: 1 to 128
  bool written = false;  ///< by this kernel
};

/// An argument as the kernel walks it.
struct Array {
  int argument;
  int64_t offset;  ///< elements from the argument's pointer to the first one; may be negative
  Dims strides;    ///< in elements, one an axis; 0 where it is repeated
};

/// How an elementwise operator computes: everything that its kernel was told.
struct Map {
  elementwise::Op op;
  cpu::StepFn
      fn;  ///< the eager CPU kernel, which takes inputs of `compute` and gives `computed`; null for a conversion
  std::array<DType, 3> compute;  ///< of each input
  DType computed;                ///< then rounded to the instruction's dtype
  std::array<double, 3> params;  ///< of isclose, elu, leaky_relu, softplus
  bool has_params = false;
};

/// A reduction as reduce::Problem states it.
struct Reduce {
  reduce::Op op;
  DType accumulator;
  double power = 2, correction = 1;
  std::vector<int> axes = {};  ///< taken up, in the order in which elements meet: the slowest first
  int64_t count = 1;           ///< elements that meet: the product of their sizes
};

/// A read at places that an index array names: an element of the table for each entry of the index that is its input.
struct Gather {
  const char* op;            ///< of its error, as the next: literals
  const char* argument;      ///< the index's name
  int64_t size;              ///< places: entries are -size..size-1, those below 0 count from the end
  int64_t stride;            ///< elements from one place to the next
  Dims index_shape = {};     ///< of the whole index, row-major in memory
  int64_t index_offset = 0;  ///< elements from its argument's pointer to its first entry
};

struct Instruction {
  enum class Kind : uint8_t {
    kLoad,     ///< an element of `array`
    kGather,   ///< an element of `array` moved by `gather` to the place that the input, a load of integers, names
    kScalar,   ///< `element`
    kMap,      ///< `map` of the inputs
    kConvert,  ///< the input in another dtype, rounded once as to() does (saturating for integers); or the input itself
    kReduce,   ///< `reduce` of the input
  };
  Kind kind;
  DType dtype;                   ///< of the value
  std::vector<int> inputs = {};  ///< registers, in the kernel's order
  Array array = {};
  std::array<char, 8> element = {};
  Map map = {};
  Reduce reduce = {};
  Gather gather = {};
  std::vector<bool> varies = {};  ///< along each axis
  int phase = 0;                  ///< reductions that must be complete before it: 0 for what hangs on none
  int step = -1;                  ///< of the graph, for texts; -1 for loads and scalars
};

/// A result in memory. Where the register does not vary along an axis, the element is written once.
struct Store {
  int value;  ///< register
  Array array;
};

struct Program {
  std::vector<Axis>
      axes;  ///< kept ones first; each group slowest first, as the first store (or reduction) lies in memory
  std::vector<Argument> arguments;
  std::vector<Instruction> code;
  std::vector<Store> stores;
  int phases = 0;  ///< reductions that follow each other: 0 for a kernel of loops alone
  /// An argument may be read and written: then each of its elements is read, at the places that the store names, before
  /// it is written there, and by no other place.
  std::string name = {};  ///< "max_sub_exp_sum_div": for profiles
};

/// A kernel that is ready to run. Arguments' pointers have the alignment that the program states. Thread-safe.
class Executable {
 public:
  virtual ~Executable() = default;
  /// On CUDA: on that device's current stream, without waiting. Where it throws because of what an argument holds,
  /// `failed` becomes the step of the graph that is to blame.
  virtual void run(const std::vector<void*>& arguments, int& failed) const = 0;
  void run(const std::vector<void*>& arguments) const {
    int failed = -1;
    run(arguments, failed);
  }
};

}  // namespace tenor::fusion
