// explain: recording in Python's hands, planning in C++. python/tenor/_explain*.py is written over this.
#include <algorithm>
#include <climits>

#include "call.h"
#include "src/core/text.h"
#include "src/fusion/explanation.h"
#include "src/fusion/measurement.h"
#include "src/fusion/recorder.h"
#include "src/fusion/target.h"

namespace tenor::python {
namespace {

/// A recorder with the guards that install it and, of a trace, the device that shapes stand for.
struct PyRecorder {
  std::unique_ptr<fusion::Recorder> recorder;
  std::string device = {};
  std::unique_ptr<core::TraitsGuard> traits = {};
  std::unique_ptr<core::TracerGuard> guard = {};
};

Dims dims_of(nb::handle sizes) { return Call("explain").dims("shape", {sizes}); }

nb::list op_names(const fusion::Recorder& recorder) {
  nb::list names;
  for (const core::Step& s : recorder.steps) names.append(s.op);
  return names;
}

/// What a step did to its results' shapes, for error texts: (op, class, input shapes, output shape, reduced dims).
nb::object step_of(const PyRecorder& r, const Tensor& x) {
  for (size_t i = r.recorder->steps.size(); i-- > 0;) {
    const core::Step& s = r.recorder->steps[i];
    for (const Tensor& out : s.outputs) {
      if (!out.defined() || out.storage() != x.storage() || out.shape() != x.shape()) continue;
      nb::list inputs;
      for (const Tensor& in : s.inputs)
        if (in.defined()) inputs.append(to_tuple(in.shape()));
      return nb::make_tuple(s.op, static_cast<int>(s.op_class), inputs, to_tuple(out.shape()), to_tuple(s.reduced));
    }
  }
  return nb::none();
}

/// The first result's shape of each step.
nb::list shapes_of(const PyRecorder& r) {
  nb::list shapes;
  for (const core::Step& s : r.recorder->steps)
    shapes.append(s.outputs.empty() || !s.outputs[0].defined() ? nb::tuple() : to_tuple(s.outputs[0].shape()));
  return shapes;
}

std::string dtype_name(DType d) { return std::string(name(d)); }

void bind_rows(nb::class_<Explanation>& e) {
  using E = Explanation;
  nb::class_<E::Step>(e, "Step", "One operator call.")
      .def_ro("op", &E::Step::op)
      .def_ro("op_class", &E::Step::op_class)
      .def_prop_ro("shape", [](const E::Step& s) { return to_tuple(s.shape); })
      .def_prop_ro("dtype", [](const E::Step& s) { return dtype_name(s.dtype); })
      .def_ro("view", &E::Step::view)
      .def_ro("bytes_read", &E::Step::bytes_read)
      .def_ro("bytes_written", &E::Step::bytes_written)
      .def_ro("flops", &E::Step::flops)
      .def_ro("bound", &E::Step::bound)
      .def_ro("floor_us", &E::Step::floor_us)
      .def_prop_ro("time_us", [](const E::Step& s) { return s.time_us > 0 ? nb::cast(s.time_us) : nb::none(); })
      .def_prop_ro("share", [](const E::Step& s) { return s.time_us > 0 ? nb::cast(s.share) : nb::none(); })
      .def_ro("note", &E::Step::note)
      .def_ro("source", &E::Step::source);
  nb::class_<E::Kernel>(e, "Kernel", "Steps that one kernel runs.")
      .def_ro("steps", &E::Kernel::steps)
      .def_ro("bytes_read", &E::Kernel::bytes_read)
      .def_ro("bytes_written", &E::Kernel::bytes_written)
      .def_ro("floor_us", &E::Kernel::floor_us)
      .def_ro("predicted_us", &E::Kernel::predicted_us)
      .def_ro("strategy", &E::Kernel::strategy)
      .def_ro("declined", &E::Kernel::declined);
  nb::class_<E::Cut>(e, "Cut", "A result that passes between two kernels through memory.")
      .def_ro("before", &E::Cut::before)
      .def_ro("after", &E::Cut::after)
      .def_ro("reason", &E::Cut::reason);
  nb::class_<E::Copy>(e, "Copy", "A copy that an operator makes on its own.")
      .def_ro("step", &E::Copy::step)
      .def_ro("bytes", &E::Copy::bytes)
      .def_ro("reason", &E::Copy::reason);
  nb::class_<E::Promotion>(e, "Promotion", "Operands of other dtypes than the result's.")
      .def_ro("step", &E::Promotion::step)
      .def_prop_ro("to", [](const E::Promotion& p) { return dtype_name(p.to); })
      .def_prop_ro("dtypes", [](const E::Promotion& p) {
        nb::list names;
        for (DType d : p.dtypes) names.append(dtype_name(d));
        return nb::tuple(names);
      });
  nb::class_<E::Limit>(e, "Limit", "A rate of the device, and how it is known.")
      .def_ro("name", &E::Limit::name)
      .def_ro("value", &E::Limit::value)
      .def_ro("unit", &E::Limit::unit)
      .def_ro("source", &E::Limit::source);
}

void bind_explanation(nb::module_& m) {
  nb::class_<Explanation> e(m, "Explanation", nb::dynamic_attr(), "What tenor.explain() says; see there.");
  bind_rows(e);
  e.def_ro("steps", &Explanation::steps)
      .def_ro("kernels", &Explanation::kernels)
      .def_ro("cuts", &Explanation::cuts)
      .def_ro("copies", &Explanation::copies)
      .def_ro("promotions", &Explanation::promotions)
      .def_ro("intermediates", &Explanation::intermediates)
      .def_ro("flops", &Explanation::flops)
      .def_ro("bytes_needed", &Explanation::bytes_needed)
      .def_ro("bytes_moved", &Explanation::bytes_moved)
      .def_ro("device", &Explanation::device)
      .def_ro("device_source", &Explanation::device_source)
      .def_ro("limits", &Explanation::limits)
      .def_rw("remarks", &Explanation::remarks)
      .def(
          "to_text",
          [](const Explanation& x, Int width, bool color) {
            return to_string(x, static_cast<int>(std::clamp<int64_t>(width, INT_MIN, INT_MAX)), color);
          },
          "width"_a = 100, "color"_a = false, "The table that str() gives, of at most `width` columns.");
}

}  // namespace

void bind_explain(nb::module_& m) {
  bind_explanation(m);
  nb::class_<PyRecorder>(m, "_Recorder", "Keeps the steps of the calls made while it is entered.")
      .def(
          "__init__",
          [](PyRecorder* r, const std::string& device) {
            new (r) PyRecorder{std::make_unique<fusion::Recorder>(), device};
          },
          "device"_a = "")
      .def("__enter__",
           [](nb::object self) {
             auto& r = nb::cast<PyRecorder&>(self);
             if (!r.device.empty()) r.traits = std::make_unique<core::TraitsGuard>(fusion::traits_of_target(r.device));
             r.guard = std::make_unique<core::TracerGuard>(r.recorder.get());
             return self;
           })
      .def("__exit__", [](PyRecorder& r, nb::args) { r.guard.reset(), r.traits.reset(); })
      .def("__len__", [](const PyRecorder& r) { return r.recorder->steps.size(); })
      .def_prop_ro("ops", [](const PyRecorder& r) { return op_names(*r.recorder); })
      .def_prop_ro("shapes", &shapes_of)
      .def_prop_ro("seconds", [](const PyRecorder& r) { return r.recorder->seconds; })
      .def("step_of", &step_of, "x"_a)
      .def(
          "explain",
          [](const PyRecorder& r, const std::vector<Tensor>& outputs, const std::vector<std::string>& sources,
             const fusion::Measurement* measurement, bool fast) {
            nb::gil_scoped_release unlocked;
            const auto explained = [&] {
              return fusion::explain_steps(r.recorder->steps, outputs, r.device, sources, fast);
            };
            return measurement ? fusion::with_times(*measurement, explained) : explained();
          },
          "outputs"_a, "sources"_a, "measurement"_a.none(), "fast"_a = false);
  nb::class_<fusion::Measurement>(m, "_Measurement", "Keeps the times of a program's runs on a device.")
      .def(
          "__init__",
          [](fusion::Measurement* self, const std::string& target) {
            new (self) fusion::Measurement(fusion::device_to_measure(target));
          },
          "target"_a)
      .def("more", &fusion::Measurement::more)
      .def("recorder", [](const fusion::Measurement& self) { return PyRecorder{self.recorder()}; })
      .def("add", [](fusion::Measurement& self, PyRecorder& r) { self.add(*r.recorder); })
      .def("input",
           [](const fusion::Measurement& self, const Tensor& x) { return fusion::measured_input(x, self.device()); })
      .def_prop_ro("device", [](const fusion::Measurement& self) { return to_string(self.device()); });
  m.def(
      "_traced",
      [](Array x) {
        const Tensor t = to_tensor("explain", "input", x.object);
        return fusion::traced(t);
      },
      "x"_a, "The array's shape, strides and dtype without its memory.");
  m.def(
      "_shape",
      [](nb::handle shape, DTypeLike dtype) {
        return Tensor::empty(dims_of(shape), to_dtype(dtype.object), {DeviceType::kMeta, 0});
      },
      "shape"_a, "dtype"_a, "A tensor without memory, stated by no step.");
  m.def("_target_names", &fusion::target_names);
  m.def(
      "_limits",
      [](const std::string& name) {
        nb::gil_scoped_release unlocked;
        return fusion::target_of(name).limits();
      },
      "name"_a, "The rates of a device that explain knows.");
  m.def(
      "_check_target", [](const std::string& name) { fusion::traits_of_target(name); }, "name"_a,
      "Raises unless that is a device that explain knows.");
}

}  // namespace tenor::python
