// The module: error classes, dtypes, modes, then one bind_<family>() each.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <climits>

#include "call.h"
#include "raised.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/core/text.h"
#include "tenor/limits.h"

namespace tenor::python {

void bind_tensor(nb::module_& m);
void bind_stream(nb::module_& m);
void bind_build(nb::module_& m);
void bind_autotune(nb::module_& m);
void bind_explain(nb::module_& m);
void bind_fuse(nb::module_& m);
void bind_explanation_state(nb::module_& m);
void tell_misfits(nb::module_& m);
#define TENOR_BIND(family) void bind_##family(nb::module_& m);
#include "bind_list.inc"
#undef TENOR_BIND

namespace {

/// The Python class of each C++ error; several also derive from the built-in that Python users expect.
struct ErrorClasses {
  PyObject *base, *shape, *dtype, *device, *value, *index, *unsupported, *memory, *cuda;
};
ErrorClasses classes;

PyObject* make_error(nb::module_& m, const char* name, PyObject* builtin, const char* doc) {
  PyObject* bases = builtin ? PyTuple_Pack(2, classes.base, builtin) : PyTuple_Pack(1, classes.base);
  PyObject* type = PyErr_NewExceptionWithDoc((std::string("tenor.") + name).c_str(), doc, bases, nullptr);
  Py_DECREF(bases);
  m.attr(name) = nb::handle(type);
  return type;
}

void bind_errors(nb::module_& m) {
  classes.base =
      PyErr_NewExceptionWithDoc("tenor.Error", "Base of every exception that Tenor raises.", PyExc_Exception, nullptr);
  m.attr("Error") = nb::handle(classes.base);
  classes.shape = make_error(m, "ShapeError", PyExc_ValueError,
                             "Sizes that do not fit together, or a view that the strides do not allow.");
  classes.dtype = make_error(m, "DTypeError", PyExc_TypeError,
                             "A dtype that the operator does not take, or two that do not combine.");
  classes.device = make_error(m, "DeviceError", nullptr,
                              "Arguments on different devices, or on one that this build does not serve.");
  classes.value =
      make_error(m, "ValueError", PyExc_ValueError, "An option value, step, count, k or scalar out of its range.");
  classes.index = make_error(m, "IndexError", PyExc_IndexError, "A dim or an index out of range.");
  classes.unsupported = make_error(m, "UnsupportedError", PyExc_NotImplementedError,
                                   "A valid request that this strategy, build or device does not serve.");
  classes.memory = make_error(m, "OutOfMemoryError", PyExc_MemoryError, "No memory for a result or a workspace.");
  classes.cuda = make_error(m, "CudaError", nullptr, "The CUDA driver or runtime refused a call.");
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      try {
        std::rethrow_exception(error);
      } catch (const Error& e) {
        ++raised().count, raised().last = e.what();
        throw;
      }
    } catch (const ShapeError& e) {
      PyErr_SetString(classes.shape, e.what());
    } catch (const DTypeError& e) {
      PyErr_SetString(classes.dtype, e.what());
    } catch (const DeviceError& e) {
      PyErr_SetString(classes.device, e.what());
    } catch (const ValueError& e) {
      PyErr_SetString(classes.value, e.what());
    } catch (const IndexError& e) {
      PyErr_SetString(classes.index, e.what());
    } catch (const UnsupportedError& e) {
      PyErr_SetString(classes.unsupported, e.what());
    } catch (const OutOfMemoryError& e) {
      PyErr_SetString(classes.memory, e.what());
    } catch (const CudaError& e) {
      PyErr_SetString(classes.cuda, e.what());
    } catch (const Error& e) {
      PyErr_SetString(classes.base, e.what());
    }
  });
}

void bind_dtypes(nb::module_& m) {
  nb::class_<DTypeObject> dtype(m, "DType", "An element type: tenor.float32, tenor.bfloat16, ...");
  dtype
      .def_prop_ro(
          "name", [](DTypeObject d) { return std::string(name(d.value)); }, "NumPy's name of it.")
      .def_prop_ro(
          "itemsize", [](DTypeObject d) { return item_size(d.value); }, "Bytes of one element.")
      .def("__repr__", [](DTypeObject d) { return "tenor." + std::string(name(d.value)); })
      .def("__str__", [](DTypeObject d) { return std::string(name(d.value)); })
      .def("__hash__", [](DTypeObject d) { return static_cast<int>(d.value) + 1; })
      .def(
          "__eq__",
          [](DTypeObject d, nb::handle other) {
            if (other.is_none()) return false;
            try {
              return to_dtype(other) == d.value;
            } catch (const Error&) {
              return false;
            } catch (nb::python_error& error) {
              if (!error.matches(PyExc_Exception)) throw;
              return false;
            }
          },
          "other"_a.none(), "Equal to the same dtype, however it is written: a NumPy dtype or a name.");
  for (int i = 0; i < kDTypes; ++i) {
    const auto d = static_cast<DType>(i);
    m.attr(d == boolean ? "bool_" : std::string(name(d)).c_str()) = nb::cast(DTypeObject{d});
  }
  m.def(
      "promote_types",
      [](DTypeLike a, DTypeLike b) { return DTypeObject{promote(to_dtype(a.object), to_dtype(b.object))}; }, "a"_a,
      "b"_a, "The dtype that two operands meet in.");
}

void bind_modes(nb::module_& m) {
  m.def(
      "set_num_threads",
      [](Int count) { set_num_threads(static_cast<int>(std::clamp<int64_t>(count, INT_MIN, INT_MAX))); }, "count"_a,
      "Sets the threads of CPU operators, process-wide.");
  m.def("get_num_threads", &num_threads, "The threads of CPU operators.");
  m.def("allow_tf32", &allow_tf32, "on"_a,
        "Lets float32 contractions of this thread run in plain TF32. Returns the previous setting.");
  m.def("empty_cache", &empty_cache,
        "Returns freed memory kept for reuse to the system, the CPU's and CUDA devices'. Not while a stream is "
        "captured.");
  m.def("cached_bytes", &cached_bytes, "Bytes of freed CPU blocks kept for reuse.");
  m.def(
      "set_cache_limit",
      [](Int bytes) {
        if (bytes < 0) core::fail<ValueError>("set_cache_limit: bytes must be >= 0, got {}", bytes.value);
        set_cache_limit(static_cast<size_t>(bytes.value));
      },
      "bytes"_a, "The most bytes of freed CPU blocks kept for reuse.");
  m.def(
      "_named_tuple", [](const std::string& name, nb::tuple fields) { return named_tuple(name, fields); }, "name"_a,
      "fields"_a, "The type of results of that name.");
  m.attr("DeviceLimits") = named_tuple("DeviceLimits", {"copy_bytes", "float32_flops", "bfloat16_flops"});
  m.def(
      "device_limits",
      [type = m.attr("DeviceLimits").ptr()](bool again, const std::string& device) {
        DeviceLimits l;
        {
          nb::gil_scoped_release unlocked;
          l = device_limits(device_from_name(device), again);
        }
        return nb::handle(type)(l.copy_bytes, l.float32_flops, l.bfloat16_flops);
      },
      "again"_a = false, nb::kw_only(), "device"_a = "cpu",
      "A device's measured limits (the CPU's at the current thread count), a second: bytes that a copy reads and "
      "writes, float32 "
      "and bfloat16 FLOPs. The best of several attempts, since a busy machine measures too low; measured once and kept "
      "in "
      "~/.cache/tenor, by machine and thread count; again=True measures anew. DeviceError where there is no such "
      "device.");
  m.def(
      "_raise_limits",
      [](const std::string& device) {
        nb::gil_scoped_release unlocked;
        return raise_limits(device_from_name(device));
      },
      "device"_a = "cpu", "Measures once more and keeps the greater of each rate; whether one rose by more than 1%.");
  // The context manager `tenor.batch_invariant()` is written over this in the package.
  struct Guard {
    std::unique_ptr<BatchInvariantGuard> held;
  };
  nb::class_<Guard>(m, "_BatchInvariant")
      .def(nb::init<>())
      .def("__enter__", [](Guard& g) { g.held = std::make_unique<BatchInvariantGuard>(); })
      .def("__exit__", [](Guard& g, nb::args) { g.held.reset(); });
}

void bind_registry(nb::module_& m) {
  m.def(
      "_operators",
      [] {
        nb::list all;
        for (const core::OpInfo& info : core::operators())
          all.append(
              nb::make_tuple(info.name, info.family, static_cast<int>(info.op_class), info.formula, info.strategies));
        return all;
      },
      "Every operator as (name, family, class, formula, strategies).");
}

/// Keeps what operators state of themselves.
struct StrategyTracer final : core::Tracer {
  std::vector<std::pair<std::string, std::string>> steps;
  void record(const core::Step& step) override {
    steps.emplace_back(step.op, step.strategy.substr(0, step.strategy.find('\n')));
  }
};

void bind_trace(nb::module_& m) {
  m.def(
      "_strategies_of",
      [](nb::callable fn) {
        StrategyTracer tracer;
        {
          core::TracerGuard guard(&tracer);
          fn();
        }
        nb::list all;
        for (const auto& [op, strategy] : tracer.steps) all.append(nb::make_tuple(op, strategy));
        return all;
      },
      "fn"_a,
      "Calls fn(): the operators that it called as (name, strategy taken), the strategy empty where there is one way.");
}

/// Functions registered by def_method become methods: an instancemethod binds self as the first argument at no cost.
void attach_methods(nb::module_& m) {
  nb::handle tensor = m.attr("Tensor");
  for (const std::string& name : method_names())
    tensor.attr(name.c_str()) = nb::steal(PyInstanceMethod_New(nb::object(m.attr(name.c_str())).ptr()));
}

}  // namespace
}  // namespace tenor::python

NB_MODULE(_tenor, m) {
  using namespace tenor::python;
  nanobind::set_leak_warnings(false);
  m.doc() = "Tenor's compiled operators; use them through the package `tenor`.";
  m.attr("__version__") = TENOR_VERSION;
  bind_errors(m);
  bind_dtypes(m);
  bind_modes(m);
  bind_registry(m);
  bind_trace(m);
  bind_tensor(m);
  bind_stream(m);
  bind_build(m);
  bind_autotune(m);
  bind_explain(m);
  bind_fuse(m);
  bind_explanation_state(m);
#define TENOR_BIND(family) bind_##family(m);
#include "bind_list.inc"
#undef TENOR_BIND
  attach_methods(m);
  tell_misfits(m);
}
