// Python's operators on tenor.Tensor, as type slots: the shortest way from `x + y` to the kernel.
#pragma once

#include "call.h"

namespace tenor::python {

/// The slots of Tensor: number protocol, comparison, hash (by identity, as for any array that compares elementwise).
PyType_Slot* operator_slots();
/// Where the operators' functions live, for what the slots do not do themselves: other libraries' arrays, errors.
void set_operator_module(nb::module_& m);

/// Two operands of a call. A Python integer beyond 64 bits is a float beside a float array, and where `by_value` says
/// that it is only compared; elsewhere it fits no dtype.
struct OperandPair {
  OperandPair(Call& call, const char* op, ArrayOrScalar x, const char* second_name, ArrayOrScalar other,
              bool by_value = false);
  Operand first, second;
};

/// The short methods that PyTorch has beside its operators: x.float(), x.mT, x.view_as(y).
void bind_torch_methods(nb::class_<Tensor>& tensor);

}  // namespace tenor::python
