// x[key] and x[key] = value for tenor.Tensor: integers, slices, None, ..., masks and index arrays.
#include "call.h"
#include "src/core/text.h"
#include "tenor/create.h"
#include "tenor/index.h"
#include "tenor/view.h"

namespace tenor::python {
namespace {

using core::fail;

/// What a key says of x: the part that integers, slices and None show, and the arrays that remain, one a dim of it.
struct Selection {
  Tensor view;
  std::vector<Tensor> arrays;
  bool advanced = false;
};

template <class E>
void fail_lengths(const char* op, const char* name, nb::handle item) {
  fail<E>("{}: {}: nested lists must have equal lengths, got {}", op, name, nb::repr(item).c_str());
}

/// A list or range as an array on x's device; an empty one holds no integers rather than no floats.
Tensor array_of(const char* op, const Tensor& x, nb::handle item, const char* name = "index") {
  if (is_array(item)) return to_tensor(op, "index", item);
  if (!PySequence_Check(item.ptr()) || PyUnicode_Check(item.ptr()))
    fail<DTypeError>("{}: an index must be an integer, a slice, None, ..., a mask or an integer array, got {}", op,
                     nb::repr(item).c_str());
  nb::object array;
  try {
    array = nb::module_::import_("numpy").attr("asarray")(item);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_ValueError)) throw;
    const auto refuse = std::string_view(name) == "index" ? &fail_lengths<IndexError> : &fail_lengths<ShapeError>;
    refuse(op, name, item);
  }
  const Tensor t = to_tensor(op, "index", array);
  const Tensor array_of_ints = t.numel() == 0 && is_float(t.dtype()) ? t.to(int64) : t;
  return x.device().type == DeviceType::kCuda ? array_of_ints.to(x.device()) : array_of_ints;
}

/// One entry of a key, with arrays converted. A 0-d integer array is an integer, a 0-d mask a bool.
struct Entry {
  enum Kind : uint8_t { kInteger, kSlice, kNewDim, kEllipsis, kBool, kArray } kind;
  nb::handle object = {};
  int64_t integer = 0;
  Tensor array = {};

  /// The dims of x that it stands for.
  int64_t dims() const {
    if (kind == kArray && array.dtype() == boolean) return array.ndim();
    return kind == kInteger || kind == kSlice || kind == kArray;
  }
};

Entry entry_of(const char* op, const Tensor& x, nb::handle item) {
  PyObject* p = item.ptr();
  if (item.is_none()) return {Entry::kNewDim};
  if (p == Py_Ellipsis) return {Entry::kEllipsis};
  if (PySlice_Check(p)) return {Entry::kSlice, item};
  if (PyBool_Check(p)) return {Entry::kBool, {}, p == Py_True};
  if (PyLong_Check(p) || (PyIndex_Check(p) && !is_array(item))) {
    const auto value = to_int64(item);
    if (!value) fail<IndexError>("{}: index {} is out of range", op, nb::repr(item).c_str());
    return {Entry::kInteger, {}, *value};
  }
  const Tensor array = array_of(op, x, item);
  if (array.dtype() != boolean && !is_integer(array.dtype()))
    fail<DTypeError>("{}: an index array must be integer or bool, got {}", op, array.dtype());
  if (array.ndim() > 0) return {Entry::kArray, {}, 0, array};
  return {array.dtype() == boolean ? Entry::kBool : Entry::kInteger, {}, array.item_int()};
}

std::vector<Entry> entries_of(const char* op, const Tensor& x, nb::handle key) {
  std::vector<Entry> entries;
  if (PyTuple_Check(key.ptr())) {
    for (nb::handle item : nb::borrow<nb::tuple>(key)) entries.push_back(entry_of(op, x, item));
  } else {
    entries.push_back(entry_of(op, x, key));
  }
  return entries;
}

Tensor sliced(const char* op, const Tensor& x, int64_t dim, nb::handle object) {
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(object.ptr(), &start, &stop, &step) != 0) {
    nb::python_error error;
    if (error.matches(PyExc_ValueError)) fail<ValueError>("{}: a slice's step must be > 0, got 0", op);
    throw error;
  }
  if (step < 1) fail<ValueError>("{}: a slice's step must be > 0, got {}; use flip", op, step);
  if (start == 0 && step == 1 && stop >= x.shape(static_cast<int>(dim))) return x;  // all of it: nothing to say or do
  return slice(x, dim, start, stop, step);
}

/// Element `index` of dim `dim`, which is `named` of the whole tensor.
Tensor selected(const char* op, const Tensor& x, int64_t dim, int64_t index, int64_t named) {
  const int64_t size = x.shape(static_cast<int>(dim));
  if (index < -size || index >= size)
    fail<IndexError>("{}: index {} is out of range for dim {} of size {}", op, index, named, size);
  return select(x, dim, index);
}

Selection select_entries(const char* op, const Tensor& x, const std::vector<Entry>& entries) {
  int64_t covered = 0, ellipses = 0;
  for (const Entry& e : entries) covered += e.dims(), ellipses += e.kind == Entry::kEllipsis;
  if (covered > x.ndim()) fail<IndexError>("{}: too many indices: {} for a tensor of shape {}", op, covered, x.shape());
  if (ellipses > 1) fail<IndexError>("{}: an index holds at most one ...", op);
  Selection s{x, {}, false};
  int64_t dim = 0, whole = 0;  // of s.view, and of x
  const auto keep = [&](int64_t count) {
    s.arrays.resize(s.arrays.size() + count);
    dim += count;
  };
  for (const Entry& e : entries) {
    switch (e.kind) {
      case Entry::kInteger:
        s.view = selected(op, s.view, dim, e.integer, whole);
        break;
      case Entry::kSlice:
        s.view = sliced(op, s.view, dim, e.object);
        keep(1);
        break;
      case Entry::kNewDim:
        s.view = unsqueeze(s.view, dim);
        keep(1);
        break;
      case Entry::kEllipsis:
        keep(x.ndim() - covered);
        break;
      case Entry::kBool: {  // a new dim, of which it takes the one element or none
        s.view = unsqueeze(s.view, dim);
        s.arrays.push_back(zeros({e.integer != 0 ? 1 : 0}, {.dtype = int64, .device = x.device()}));
        s.advanced = true;
        ++dim;
        break;
      }
      case Entry::kArray:
        s.arrays.push_back(e.array);
        s.advanced = true;
        dim += e.dims();
        break;
    }
    whole += e.kind == Entry::kEllipsis ? x.ndim() - covered : e.dims();
  }
  return s;
}

Tensor get_item(const Tensor& x, nb::handle key) {
  const char* op = "getitem";
  const Selection s = select_entries(op, x, entries_of(op, x, key));
  if (!s.advanced) return s.view;
  nb::gil_scoped_release unlocked;
  return index_get(s.view, s.arrays);
}

/// The value, without leading dims of size 1 that no target has.
Operand value_of(const char* op, const Tensor& x, nb::handle value) {
  if (!is_array(value)) {
    if (auto scalar = to_scalar(value, op, "value")) return *scalar;
  }
  Tensor t = is_array(value) ? to_tensor(op, "value", value) : array_of(op, x, value, "value");
  size_t lead = 0;
  while (lead < t.shape().size() && t.shape()[lead] == 1) ++lead;
  return t.with_layout(Dims(t.shape().begin() + lead, t.shape().end()),
                       Dims(t.strides().begin() + lead, t.strides().end()), t.offset());
}

void set_item(const Tensor& x, nb::handle key, nb::handle value) {
  const char* op = "setitem";
  const Selection s = select_entries(op, x, entries_of(op, x, key));
  const Operand v = value_of(op, x, value);
  nb::gil_scoped_release unlocked;
  if (!s.advanced) {
    assign_(s.view, v);
  } else if (v.is_tensor()) {
    index_put_(s.view, s.arrays, v.tensor().to(x.dtype()));
  } else {
    index_put_(s.view, s.arrays, v);
  }
}

}  // namespace

void bind_indexing(nb::module_& m) {
  nb::borrow<nb::class_<Tensor>>(m.attr("Tensor"))
      .def("__getitem__", &get_item, "key"_a.none(),
           "x[key]: integers, slices (step > 0), None and ... give a view; masks and integer arrays a copy, with dims "
           "placed as in PyTorch.")
      .def("__setitem__", &set_item, "key"_a.none(), "value"_a,
           "x[key] = value, converted to x's dtype and broadcast; everything is read before x is written, and the last "
           "write wins.")
      .def(
          "__iter__",
          [](const Tensor& x) {
            if (x.ndim() == 0) fail<DTypeError>("iter: a 0-d tensor has no elements to iterate over");
            nb::list items;
            for (const Tensor& item : unbind(x, 0)) items.append(nb::cast(item));
            return nb::iter(items);
          },
          "The slices along dim 0.");
}

}  // namespace tenor::python
