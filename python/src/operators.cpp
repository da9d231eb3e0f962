#include "operators.h"

#include <cmath>

#include "src/core/text.h"
#include "tenor/elementwise.h"

namespace tenor::python {
namespace {

PyObject* operator_module = nullptr;  // borrowed: the module outlives its types

/// The GIL is worth releasing for work that lasts longer than the release.
constexpr int64_t kUnlockFrom = 1 << 14;

bool is_tensor(PyObject* x) { return nb::isinstance<Tensor>(nb::handle(x)); }

/// Tensors and plain numbers; false for everything else.
bool quick_operand(PyObject* x, Operand& out) {
  if (is_tensor(x)) {
    out = *nb::inst_ptr<Tensor>(nb::handle(x));
  } else if (PyFloat_CheckExact(x)) {
    out = Scalar(PyFloat_AS_DOUBLE(x));
  } else if (PyBool_Check(x)) {
    out = Scalar(x == Py_True);
  } else if (PyLong_CheckExact(x)) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(x, &overflow);
    if (overflow) return false;
    out = Scalar(static_cast<int64_t>(value));
  } else {
    return false;
  }
  return true;
}

int64_t size_of(const Operand& x) { return x.is_tensor() ? x.tensor().numel() : 0; }

/// fn(), without the GIL where it is long.
template <class F>
Tensor compute(int64_t size, F fn) {
  if (size < kUnlockFrom) return fn();
  nb::gil_scoped_release unlocked;
  return fn();
}

/// The function of that name on the operands: it knows arrays of every library, and raises the contract's errors.
PyObject* call_function(const char* name, PyObject* a, PyObject* b) {
  const auto takes = [](PyObject* x) { return PyLong_Check(x) || PyFloat_Check(x) || is_array(x); };
  try {
    if (!takes(a) || (b && !takes(b))) Py_RETURN_NOTIMPLEMENTED;
  } catch (nb::python_error& error) {  // of an operand's own attributes; no C++ exception may leave a slot
    error.restore();
    return nullptr;
  }
  PyObject* fn = PyObject_GetAttrString(operator_module, name);
  if (!fn) return nullptr;
  PyObject* result = PyObject_CallFunctionObjArgs(fn, a, b, nullptr);
  Py_DECREF(fn);
  return result;
}

/// One operator: its function's name, the computation, and (for those that have one) the in-place form.
template <auto kFn>
PyObject* binary(const char* name, PyObject* a, PyObject* b) {
  try {
    Operand x, y;
    if (quick_operand(a, x) && quick_operand(b, y))
      return nb::cast(compute(std::max(size_of(x), size_of(y)), [&] { return kFn(x, y, {}); })).release().ptr();
  } catch (const Error&) {  // nothing was written: the function raises the error again, translated
  }
  return call_function(name, a, b);
}
template <auto kFn>
PyObject* write(const char* name, PyObject* a, PyObject* b) {
  try {
    Operand y;
    if (is_tensor(a) && quick_operand(b, y)) {
      const Tensor& x = *nb::inst_ptr<Tensor>(nb::handle(a));
      compute(x.numel(), [&] { return kFn(x, y); });
      return Py_NewRef(a);
    }
  } catch (const Error&) {
  }
  return call_function(name, a, b);
}
template <auto kFn>
PyObject* unary(const char* name, PyObject* a) {
  try {
    const Tensor& x = *nb::inst_ptr<Tensor>(nb::handle(a));
    return nb::cast(compute(x.numel(), [&] { return kFn(x, {}); })).release().ptr();
  } catch (const Error&) {
  }
  return call_function(name, a, nullptr);
}

PyObject* compare(PyObject* a, PyObject* b, int op) {
  switch (op) {
    case Py_LT:
      return binary<&lt>("lt", a, b);
    case Py_LE:
      return binary<&le>("le", a, b);
    case Py_EQ:
      return binary<&eq>("eq", a, b);
    case Py_NE:
      return binary<&ne>("ne", a, b);
    case Py_GT:
      return binary<&gt>("gt", a, b);
    default:
      return binary<&ge>("ge", a, b);
  }
}
/// The third argument of Python's own pow(). Sets the error where it is given.
bool takes_no_modulus(PyObject* modulus) {
  if (!modulus || modulus == Py_None) return true;
  const nb::object type = nb::steal(PyObject_GetAttrString(operator_module, "UnsupportedError"));
  if (type.is_valid()) PyErr_SetString(type.ptr(), "pow: a modulus is not supported; use pow(x, y) % z");
  return false;
}
Py_hash_t identity_hash(PyObject* x) { return static_cast<Py_hash_t>(reinterpret_cast<uintptr_t>(x) >> 4); }

// Without their options.
Tensor plain_add(const Tensor& x, const Operand& y) { return add_(x, y); }
Tensor plain_sub(const Tensor& x, const Operand& y) { return sub_(x, y); }
Tensor plain_div(const Tensor& x, const Operand& y) { return div_(x, y); }

template <class R, class... A>
void* slot(R (*fn)(A...)) {
  return reinterpret_cast<void*>(fn);
}

}  // namespace

PyType_Slot* operator_slots() {
  using O = PyObject*;
  static PyType_Slot slots[] = {
      {Py_nb_add, slot(+[](O a, O b) { return binary<&add>("add", a, b); })},
      {Py_nb_subtract, slot(+[](O a, O b) { return binary<&sub>("sub", a, b); })},
      {Py_nb_multiply, slot(+[](O a, O b) { return binary<&mul>("mul", a, b); })},
      {Py_nb_true_divide, slot(+[](O a, O b) { return binary<&div>("div", a, b); })},
      {Py_nb_floor_divide, slot(+[](O a, O b) { return binary<&floor_divide>("floor_divide", a, b); })},
      {Py_nb_remainder, slot(+[](O a, O b) { return binary<&remainder>("remainder", a, b); })},
      {Py_nb_power, slot(+[](O a, O b, O m) { return takes_no_modulus(m) ? binary<&pow>("pow", a, b) : nullptr; })},
      {Py_nb_and, slot(+[](O a, O b) { return binary<&bitwise_and>("bitwise_and", a, b); })},
      {Py_nb_or, slot(+[](O a, O b) { return binary<&bitwise_or>("bitwise_or", a, b); })},
      {Py_nb_xor, slot(+[](O a, O b) { return binary<&bitwise_xor>("bitwise_xor", a, b); })},
      {Py_nb_lshift, slot(+[](O a, O b) { return binary<&bitwise_left_shift>("bitwise_left_shift", a, b); })},
      {Py_nb_rshift, slot(+[](O a, O b) { return binary<&bitwise_right_shift>("bitwise_right_shift", a, b); })},
      {Py_nb_negative, slot(+[](O a) { return unary<&neg>("neg", a); })},
      {Py_nb_positive, slot(+[](O a) -> O { return Py_NewRef(a); })},
      {Py_nb_absolute, slot(+[](O a) { return unary<&abs>("abs", a); })},
      {Py_nb_invert, slot(+[](O a) { return unary<&bitwise_not>("bitwise_not", a); })},
      {Py_nb_inplace_add, slot(+[](O a, O b) { return write<&plain_add>("add_", a, b); })},
      {Py_nb_inplace_subtract, slot(+[](O a, O b) { return write<&plain_sub>("sub_", a, b); })},
      {Py_nb_inplace_multiply, slot(+[](O a, O b) { return write<&mul_>("mul_", a, b); })},
      {Py_nb_inplace_true_divide, slot(+[](O a, O b) { return write<&plain_div>("div_", a, b); })},
      {Py_nb_inplace_floor_divide, slot(+[](O a, O b) { return write<&floor_divide_>("floor_divide_", a, b); })},
      {Py_nb_inplace_remainder, slot(+[](O a, O b) { return write<&remainder_>("remainder_", a, b); })},
      {Py_nb_inplace_power,
       slot(+[](O a, O b, O m) { return takes_no_modulus(m) ? write<&pow_>("pow_", a, b) : nullptr; })},
      {Py_nb_inplace_and, slot(+[](O a, O b) { return write<&bitwise_and_>("bitwise_and_", a, b); })},
      {Py_nb_inplace_or, slot(+[](O a, O b) { return write<&bitwise_or_>("bitwise_or_", a, b); })},
      {Py_nb_inplace_xor, slot(+[](O a, O b) { return write<&bitwise_xor_>("bitwise_xor_", a, b); })},
      {Py_nb_inplace_lshift, slot(+[](O a, O b) { return write<&bitwise_left_shift_>("bitwise_left_shift_", a, b); })},
      {Py_nb_inplace_rshift,
       slot(+[](O a, O b) { return write<&bitwise_right_shift_>("bitwise_right_shift_", a, b); })},
      {Py_tp_richcompare, slot(&compare)},
      {Py_tp_hash, slot(&identity_hash)},
      {0, nullptr},
  };
  return slots;
}

void set_operator_module(nb::module_& m) { operator_module = m.ptr(); }

namespace {

/// A Python integer that no 64-bit dtype holds.
bool is_huge(nb::handle x) {
  if (!PyLong_Check(x.ptr()) || PyBool_Check(x.ptr())) return false;
  int overflow = 0;
  PyLong_AsLongLongAndOverflow(x.ptr(), &overflow);
  if (overflow == 0) return false;
  PyLong_AsUnsignedLongLong(x.ptr());
  if (!PyErr_Occurred()) return false;
  PyErr_Clear();
  return true;
}
/// The nearest double, or an infinity.
double as_double(nb::handle x) {
  const double value = PyLong_AsDouble(x.ptr());
  if (!PyErr_Occurred()) return value;
  PyErr_Clear();
  int overflow = 0;
  PyLong_AsLongLongAndOverflow(x.ptr(), &overflow);
  return overflow < 0 ? -INFINITY : INFINITY;
}
Scalar beyond(nb::handle x) {
  const double nearest = as_double(x);
  const nb::float_ there(nearest);  // Python compares an int with a float by value
  return Scalar::beyond(nearest, x < there ? -1 : x > there ? 1 : 0);
}

}  // namespace

OperandPair::OperandPair(Call& call, const char* op, ArrayOrScalar x, const char* second_name, ArrayOrScalar other,
                         bool by_value) {
  const auto huge = [&](nb::handle number, const Operand& beside) -> Operand {
    if (by_value) return beyond(number);
    if (beside.is_tensor() && is_float(beside.tensor().dtype())) return Scalar(as_double(number));
    const DType dtype = beside.is_tensor() ? beside.tensor().dtype() : int64;
    core::fail<ValueError>("{}: the scalar {} does not fit {}", op, nb::str(number).c_str(), dtype);
  };
  const bool first_huge = is_huge(x.object), second_huge = is_huge(other.object);
  if (!first_huge) first = call.operand("x", x);
  if (!second_huge) second = call.operand(second_name, other);
  if (first_huge) first = huge(x.object, second);
  if (second_huge) second = huge(other.object, first);
}

}  // namespace tenor::python
