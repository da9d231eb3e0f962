// tenor.Tensor: properties, conversion, DLPack.
#include "call.h"
#include "operators.h"
#include "src/core/dlpack.h"
#include "src/core/numeric.h"
#include "src/core/read_observer.h"
#include "src/core/text.h"
#include "src/core/visit.h"

namespace tenor::python {
namespace {

template <class Managed>
void free_unused(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;  // consumed: the consumer frees it
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}

/// Whether max_version is at least 1.0, the first with versions.
bool takes_versioned(nb::handle max_version) {
  if (!PyTuple_Check(max_version.ptr()) || nb::len(max_version) != 2 || !is_integer_object(nb::object(max_version[0])))
    core::fail<DTypeError>("__dlpack__: max_version must be (major, minor), got {}", nb::repr(max_version).c_str());
  return nb::object(max_version[0]) >= nb::int_(1);
}

nb::object dlpack_capsule(const Tensor& x, nb::handle max_version) {
  if (x.device().type == DeviceType::kMeta)
    core::fail<DeviceError>("__dlpack__: a tensor on the meta device has a shape, but no data to export");
  core::announce_read(x);
  const bool versioned = !max_version.is_none() && takes_versioned(max_version);
  if (versioned)
    return nb::steal(PyCapsule_New(x.to_dlpack_versioned(), "dltensor_versioned", [](PyObject* c) {
      free_unused<DLManagedTensorVersioned>(c, "dltensor_versioned");
    }));
  return nb::steal(
      PyCapsule_New(x.to_dlpack(), "dltensor", [](PyObject* c) { free_unused<DLManagedTensor>(c, "dltensor"); }));
}

nb::tuple dlpack_device(const Tensor& x) {
  return nb::make_tuple(x.device().type == DeviceType::kCuda ? core::kDlCuda : core::kDlCpu, x.device().index);
}

/// A one-element tensor as a Python number.
nb::object item(const Tensor& x) {
  if (is_float(x.dtype())) return nb::float_(x.item_double());
  const int64_t value = x.item_int();
  if (x.dtype() == boolean) return nb::bool_(value != 0);
  if (x.dtype() == uint64) return nb::steal(PyLong_FromUnsignedLongLong(*x.data<uint64_t>()));
  return nb::int_(value);
}

nb::object to_list(const Tensor& x) {
  if (x.ndim() == 0) return item(x);
  nb::list out;
  for (int64_t i = 0; i < x.shape(0); ++i) {
    const Dims shape(x.shape().begin() + 1, x.shape().end()), strides(x.strides().begin() + 1, x.strides().end());
    out.append(to_list(x.with_layout(shape, strides, x.offset() + i * x.stride(0))));
  }
  return out;
}

/// NumPy's protocol: copy None copies where it must, True always, False never.
nb::object to_array(const Tensor& x, nb::handle dtype, nb::handle copy) {
  nb::object array = to_numpy(x);
  if (dtype.is_none() || array.attr("dtype").equal(dtype))
    return copy.is(nb::handle(Py_True)) ? array.attr("copy")() : array;
  if (copy.is(nb::handle(Py_False)))
    core::fail<ValueError>("__array__: {} as {} takes a copy, but copy=False", x.dtype(), nb::str(dtype).c_str());
  return array.attr("astype")(dtype);
}

}  // namespace

void bind_tensor(nb::module_& m) {
  nb::class_<Tensor> tensor(
      m, "Tensor", nb::type_slots(operator_slots()),
      "An n-dimensional array on the CPU or a CUDA device: shared storage seen through a dtype, a shape and strides.");
  tensor
      .def_prop_ro(
          "shape", [](const Tensor& x) { return to_tuple(x.shape()); }, "The sizes, a tuple.")
      .def_prop_ro(
          "strides", [](const Tensor& x) { return to_tuple(x.strides()); }, "The strides, in elements.")
      .def_prop_ro(
          "dtype", [](const Tensor& x) { return DTypeObject{x.dtype()}; }, "The element type.")
      .def_prop_ro(
          "device", [](const Tensor& x) { return to_string(x.device()); }, "'cpu' or 'cuda:N'.")
      .def_prop_ro("ndim", &Tensor::ndim, "The number of dims.")
      .def_prop_ro("size", &Tensor::numel, "The number of elements.")
      .def_prop_ro(
          "nbytes", [](const Tensor& x) { return nb::object(nb::int_(x.numel()) * nb::int_(item_size(x.dtype()))); },
          "Bytes of the elements: more than 64 bits hold where strides of 0 repeat them.")
      .def("numel", &Tensor::numel, "The number of elements.")
      .def(
          "data_ptr", [](const Tensor& x) { return reinterpret_cast<uintptr_t>(x.raw()); },
          "The address of the first element.")
      .def("is_contiguous", &Tensor::is_contiguous, "Row-major without gaps; strides of dims of size 1 do not count.")
      .def("contiguous", &Tensor::contiguous, nb::call_guard<nb::gil_scoped_release>(),
           "Itself when row-major, else a row-major copy.")
      .def("clone", &Tensor::clone, nb::call_guard<nb::gil_scoped_release>(), "A copy with the same dimension order.")
      .def(
          "numpy", [](const Tensor& x) { return to_numpy(x); },
          "An ndarray that shares the memory (a CUDA tensor is copied to the host).")
      .def("item", &item, "The only element, as a Python number.")
      .def("tolist", &to_list, "The elements as nested lists of Python numbers.")
      .def(
          "__dlpack__",
          [](const Tensor& x, nb::handle, nb::handle max_version, nb::handle dl_device, nb::handle copy) {
            if (!dl_device.is_none() && !dl_device.equal(dlpack_device(x)))
              throw nb::buffer_error("__dlpack__: a tensor is exported where it is; move it with to(device) first");
            const int forced = PyObject_IsTrue(copy.ptr());
            if (forced < 0) throw nb::python_error();
            return dlpack_capsule(forced ? x.clone() : x, max_version);
          },
          nb::kw_only(), "stream"_a = nb::none(), "max_version"_a = nb::none(), "dl_device"_a = nb::none(),
          "copy"_a = nb::none(), "A DLPack capsule of this memory.")
      .def("__dlpack_device__", &dlpack_device, "(DLPack device type, index).")
      .def("__array__", &to_array, "dtype"_a = nb::none(), "copy"_a = nb::none(), "For numpy.asarray and numpy.array.")
      .def("__len__",
           [](const Tensor& x) {
             if (x.ndim() == 0) core::fail<DTypeError>("len: a 0-d tensor has no length");
             return x.shape(0);
           })
      .def("__bool__", [](const Tensor& x) { return nb::cast<double>(nb::float_(x.item_double())) != 0.0; })
      .def("__int__", [](const Tensor& x) { return x.item_int(); })
      .def("__float__", [](const Tensor& x) { return x.item_double(); })
      .def("__index__", [](const Tensor& x) {
        if (!is_integer(x.dtype()) || x.numel() != 1)
          core::fail<DTypeError>("index: only a one-element integer tensor is an index, got {}", describe(x));
        return x.item_int();
      });
  bind_torch_methods(tensor);
  m.def(
      "from_dlpack", [](nb::handle x) { return to_tensor("from_dlpack", "x", x); }, "x"_a,
      "A tensor that shares the memory of any DLPack exporter.");
}

}  // namespace tenor::python
