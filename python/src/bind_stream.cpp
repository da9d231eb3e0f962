// Streams: tenor.Stream, `with tenor.stream(...)`, synchronize, take_error.
#include "call.h"
#include "src/core/text.h"

namespace tenor::python {
namespace {

/// Holds a StreamGuard between __enter__ and __exit__.
struct StreamContext {
  Stream stream;
  std::unique_ptr<StreamGuard> held;
};

/// A Stream from what other libraries call one: tenor.Stream, torch.cuda.Stream, cupy.cuda.Stream, or a cudaStream_t.
Stream to_stream(nb::handle x, Device device) {
  if (nb::isinstance<Stream>(x)) return nb::cast<Stream>(x);
  const char* field = has_attribute(x, "cuda_stream") ? "cuda_stream" : has_attribute(x, "ptr") ? "ptr" : nullptr;
  const nb::object handle = field ? x.attr(field) : nb::borrow(x);
  if (!PyLong_Check(handle.ptr()))
    core::fail<DTypeError>("stream: expected a tenor, torch or cupy stream, or a cudaStream_t as an int, got {}",
                           nb::repr(x).c_str());
  const auto address = PyLong_AsVoidPtr(handle.ptr());
  if (!address && PyErr_Occurred()) {
    PyErr_Clear();
    core::fail<ValueError>("stream: {} is no address of a stream", nb::str(handle).c_str());
  }
  if (has_attribute(x, "device_index")) device.index = nb::cast<int>(x.attr("device_index"));
  return {device, static_cast<CUstream_st*>(address)};
}

Device cuda_device(nb::handle device) {
  const Device d = device.is_none() ? Device{DeviceType::kCuda, 0} : to_device(device);
  if (d.type != DeviceType::kCuda) core::fail<DeviceError>("stream: expected a CUDA device, got {}", d);
  return d;
}

/// The devices to wait for: the one named, else every CUDA device.
std::vector<Device> devices_of(nb::handle device) {
  if (!device.is_none()) return {to_device(device)};
  std::vector<Device> all;
  for (int i = 0; i < cuda_device_count(); ++i) all.push_back({DeviceType::kCuda, i});
  return all;
}

}  // namespace

void bind_stream(nb::module_& m) {
  nb::class_<Stream>(m, "Stream",
                     "A CUDA stream: Stream(handle, device='cuda:0') wraps a cudaStream_t or another library's stream.")
      .def(
          "__init__",
          [](Stream* self, nb::handle handle, nb::handle device) {
            new (self) Stream(to_stream(handle, cuda_device(device)));
          },
          "handle"_a = 0, "device"_a = nb::none())
      .def_prop_ro(
          "handle", [](const Stream& s) { return reinterpret_cast<uintptr_t>(s.handle); },
          "The cudaStream_t, an int; 0 is the default stream.")
      .def_prop_ro(
          "device", [](const Stream& s) { return to_string(s.device); }, "'cuda:N'.")
      .def(
          "synchronize",
          [](const Stream& s) {
            nb::gil_scoped_release unlocked;
            const StreamGuard guard(s);
            synchronize(s.device);
          },
          "Waits for the stream's work, then raises what a kernel on it found wrong.");
  nb::class_<StreamContext>(m, "_StreamContext")
      .def("__enter__",
           [](StreamContext& c) {
             c.held = std::make_unique<StreamGuard>(c.stream);
             return c.stream;
           })
      .def("__exit__", [](StreamContext& c, nb::args) { c.held.reset(); });
  m.def(
      "stream",
      [](nb::handle stream, nb::handle device) {
        return StreamContext{to_stream(stream, cuda_device(device)), nullptr};
      },
      "stream"_a, "device"_a = nb::none(),
      "Context manager: this thread's operators on tenor.Tensors run on that stream while it is entered. Arrays of "
      "other libraries\n"
      "always use their library's current stream.");
  m.def(
      "synchronize",
      [](nb::handle device) {
        const std::vector<Device> devices = devices_of(device);
        nb::gil_scoped_release unlocked;
        for (const Device d : devices) synchronize(d);
      },
      "device"_a = nb::none(),
      "Waits for this thread's current stream of the device (of every CUDA device), then raises what a kernel found "
      "wrong.");
  m.def(
      "take_error",
      [](nb::handle device) -> nb::object {
        for (const Device d : devices_of(device))
          if (const auto error = take_error(d)) return nb::cast(*error);
        return nb::none();
      },
      "device"_a = nb::none(), "What a kernel found wrong so far, or None; clears it and does not wait.");
  m.def("cuda_device_count", &cuda_device_count, "CUDA devices that this build and machine have.");
  m.def(
      "_workspace_size",
      [](nb::handle device, nb::callable prepare, nb::callable run) {
        const auto locked = [](nb::callable& fn) {
          return [&fn] {
            nb::gil_scoped_acquire gil;
            fn();
          };
        };
        const Device where = to_device(device);
        nb::gil_scoped_release unlocked;
        return workspace_size(where, locked(run), locked(prepare));
      },
      "device"_a, "prepare"_a, "run"_a);
}

}  // namespace tenor::python
