// What a call whose arguments do not fit says: nanobind lists overloads, tenor._signatures names the argument.
#include <array>
#include <cstring>

#include "call.h"
#include "src/core/text.h"

namespace tenor::python {
namespace {

/// The exception to raise in place of nanobind's, from the function and the arguments; invalid where none could be
/// made.
nb::object told_better(PyObject* function, PyObject* const* args, Py_ssize_t positional, PyObject* names) {
  nb::list given;
  for (Py_ssize_t i = 0; i < positional; ++i) given.append(nb::handle(args[i]));
  nb::dict named;
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i)
    named[nb::handle(PyTuple_GET_ITEM(names, i))] = nb::handle(args[positional + i]);
  return nb::module_::import_("tenor._signatures").attr("misfit")(nb::handle(function), nb::tuple(given), named);
}

/// Replaces the pending error where it is nanobind's for arguments that fit no overload.
void retell(PyObject* function, PyObject* const* args, Py_ssize_t positional, PyObject* names) {
  nb::python_error error;  // takes the pending one
  try {
    if (nb::handle(error.type()).is(PyExc_TypeError) &&
        std::strstr(nb::str(error.value()).c_str(), "incompatible function arguments")) {
      const nb::object better = told_better(function, args, positional, names);
      return PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(better.ptr())), better.ptr());
    }
  } catch (const std::exception&) {  // of a repr of an argument, say: the first error stands
  }
  error.restore();
}

/// Whether x is an int that no 64 bits hold; `limit` becomes what stands for it in the call (call.h: Int).
bool is_saturated(PyObject* x, const char*& limit) {
  if (!PyLong_Check(x)) return false;
  int overflow = 0;
  PyLong_AsLongLongAndOverflow(x, &overflow);
  limit = overflow > 0 ? "9223372036854775807" : "-9223372036854775808";
  return overflow != 0;
}

/// Replaces the pending error where it is one of ours whose text names no operator, but a part of the library, or shows
/// the limit of 64 bits in the place of a caller's larger integer.
void retell_ours(PyObject* function, PyObject* const* args, size_t count) {
  nb::python_error error;
  try {
    const std::string told = nb::str(error.value()).c_str(),
                      name = nb::str(nb::handle(function).attr("__name__")).c_str();
    std::string text = told;
    for (const char* part :
         {"dtype: ", "device: ", "tensor: ", "allocate: ", "from_dlpack: ", "item: ", "the integer "})
      if (told.starts_with(part) && !told.starts_with(name + ": ")) text = name + ": " + told;
    for (size_t i = 0; i < count; ++i) {
      const char* limit = nullptr;
      if (!is_saturated(args[i], limit)) continue;
      const size_t at = text.find(limit);
      if (at != std::string::npos) text.replace(at, std::strlen(limit), core::printable(nb::repr(args[i]).c_str()));
    }
    if (text != told) return PyErr_SetString(error.type().ptr(), text.c_str());
  } catch (const std::exception&) {
  }
  error.restore();
}

PyObject* our_errors = nullptr;  // tenor.Error; borrowed, as the module outlives its functions

/// The entries that nanobind gave its functions; there are a handful, one for each kind of signature.
constexpr size_t kMostEntries = 8;
vectorcallfunc entries[kMostEntries];

/// nanobind sets the bit below PY_VECTORCALL_ARGUMENTS_OFFSET where it calls a constructor, which the count does not
/// know.
constexpr size_t kTrustedSelf = PY_VECTORCALL_ARGUMENTS_OFFSET >> 1;

template <size_t kEntry>
PyObject* call_and_tell(PyObject* function, PyObject* const* args, size_t count, PyObject* names) {
  PyObject* result = entries[kEntry](function, args, count, names);
  if (result) [[likely]]
    return result;
  const Py_ssize_t positional = PyVectorcall_NARGS(count) & ~static_cast<Py_ssize_t>(kTrustedSelf);
  if (PyErr_ExceptionMatches(our_errors))
    retell_ours(function, args, static_cast<size_t>(positional + (names ? PyTuple_GET_SIZE(names) : 0)));
  else if (PyErr_ExceptionMatches(PyExc_TypeError))
    retell(function, args, positional, names);
  return nullptr;
}

template <size_t... kEntry>
constexpr std::array<vectorcallfunc, kMostEntries> tellers_of(std::index_sequence<kEntry...>) {
  return {&call_and_tell<kEntry>...};
}
constexpr auto tellers = tellers_of(std::make_index_sequence<kMostEntries>{});

/// Puts the entry that tells errors before the function's own.
void wrap_entry(nb::handle function) {
  auto& entry = *reinterpret_cast<vectorcallfunc*>(reinterpret_cast<char*>(function.ptr()) +
                                                   Py_TYPE(function.ptr())->tp_vectorcall_offset);
  for (size_t i = 0; i < kMostEntries; ++i) {
    if (entry == tellers[i]) return;  // a function of two names
    if (entries[i] == entry || !entries[i]) {
      entries[i] = entry;
      entry = tellers[i];
      return;
    }
  }
}

bool is_bound_function(nb::handle x) {
  const std::string_view type = Py_TYPE(x.ptr())->tp_name;
  return type == "nanobind.nb_func" || type == "nanobind.nb_method" || type == "nb_func" || type == "nb_method";
}

nb::list members(nb::handle scope) {
  return nb::steal<nb::list>(PyMapping_Values(nb::object(scope.attr("__dict__")).ptr()));
}

void wrap_all(nb::handle scope) {
  for (nb::handle value : members(scope))
    if (is_bound_function(value)) wrap_entry(value);
}

}  // namespace

void tell_misfits(nb::module_& m) {
  m.def(
      "_set_type_attribute",
      [](nb::handle type, nb::str name, nb::handle value) {
        auto* t = reinterpret_cast<PyTypeObject*>(type.ptr());
        if (PyDict_SetItem(t->tp_dict, name.ptr(), value.ptr()) < 0) throw nb::python_error();
        PyType_Modified(t);
      },
      "type"_a, "name"_a, "value"_a,
      "type.name = value, for the types of nanobind's functions, which Python code may not change.");
  our_errors = nb::object(m.attr("Error")).ptr();
  wrap_all(m);
  for (nb::handle value : members(m))
    if (PyType_Check(value.ptr()) && nb::type_check(value)) wrap_all(value);
}

}  // namespace tenor::python
