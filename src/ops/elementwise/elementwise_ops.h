// The table of elementwise operators: name, formula, dtype rule, cost and where its kernels are. An operator is a row here,
// a case in one kernel file and a declaration in include/tenor/elementwise.h.
#pragma once

#include <span>

#include "src/cpu/tile.h"
#include "src/ops/elementwise/elementwise_op.h"
#include "tenor/dtype.h"

namespace tenor::elementwise {

/// How the dtypes of the inputs, promoted, give the dtypes computed in and returned.
enum class Rule : uint8_t {
  kArithmetic,  ///< the promoted dtype
  kFloat,       ///< float32 for integers and bool
  kCompare,     ///< computed in the promoted dtype, gives bool
  kLogical,     ///< inputs as bool (not zero), gives bool
  kBitwise,     ///< integers, or bool where the kernel has it
  kSelect,      ///< a bool and two of the promoted dtype, which are moved only
  kClose,       ///< integers as themselves, floats as float64; gives bool
};

/// The kernel for inputs of a dtype: of a compute dtype, or, where the operator has one, of 16-bit floats as they lie in
/// memory, whose bits are the operator's for that dtype. Null where there is none.
using FindKernel = cpu::StepFn (*)(Op op, DType compute);

struct OpRow {
  Op op;
  const char* name;
  int arity;
  Rule rule;
  int cost;  ///< of one element's arithmetic, in bytes of traffic that take as long
  FindKernel find;
  const char* formula;
};

std::span<const OpRow> table();
inline const OpRow& row(Op op) { return table()[static_cast<size_t>(op)]; }

cpu::StepFn find_arithmetic(Op op, DType compute);
cpu::StepFn find_integer(Op op, DType compute);
cpu::StepFn find_division(Op op, DType compute);
cpu::StepFn find_math(Op op, DType compute);
cpu::StepFn find_trigonometry(Op op, DType compute);
cpu::StepFn find_activation(Op op, DType compute);
cpu::StepFn find_compare(Op op, DType compute);
cpu::StepFn find_logic(Op op, DType compute);
cpu::StepFn find_select(Op op, DType compute);

}  // namespace tenor::elementwise
