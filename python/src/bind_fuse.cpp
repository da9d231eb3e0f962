// fuse: keys, traces and runs in C++. python/tenor/_fuse.py is written over this.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "call.h"
#include "raised.h"
#include "src/core/read_observer.h"
#include "src/fusion/backend.h"
#include "src/fusion/entry.h"
#include "src/fusion/explanation.h"
#include "src/fusion/recorder.h"

namespace tenor::python {
namespace {

/// Keeps steps, and the user's line that stated each.
class SourceRecorder final : public core::Tracer, public core::ReadObserver, public core::ConstantKeeper {
 public:
  explicit SourceRecorder(Device device) { shapes_of = device; }
  void record(const core::Step& step) override {
    fusion::refuse_held(step);
    recorder.record(step);
    const nb::gil_scoped_acquire locked;
    sources.push_back(nb::cast<std::string>(nb::module_::import_("tenor._fuse").attr("source_line")()));
  }
  void done() override { recorder.done(); }
  void reads(const Tensor& x) override { fusion::refuse_held_value(x); }
  void keep(const Tensor& x, const void* element) override { recorder.keep(x, element); }

  fusion::Recorder recorder;
  std::vector<std::string> sources;
};

/// What one function is for Python arguments of one kind: by the arrays' layouts.
class FuseTable {
 public:
  explicit FuseTable(bool fast) : fast_(fast) {}
  /// ((structure,) or None of a bare result, results), a text that says why the function runs as it is written, or
  /// None: not traced yet.
  nb::object run(const nb::list& arrays);
  /// Of Tensors alone, and a function of one result: that; None where it is anything else.
  nb::object run_plain(const nb::args& arrays);
  /// `call` is given the arrays' shapes; it returns the tensors that the function returned, a tuple of their structure
  /// or None of a bare one, and (array, shape) of each array that the function captured.
  void trace(const nb::list& arrays, const nb::object& call);
  /// Where the operator that failed in this thread's last run was called; empty where none did. Forgets it.
  static std::string failed_at() { return std::exchange(failed_source(), {}); }
  /// Why such arrays run the function as it is written; None where they run kernels. Traces where it must.
  nb::object why_not(const nb::list& arrays, const nb::object& call);
  int kernels(const nb::list& arrays) const;
  /// fusion::Entry::may_run_again, of a run that threw.
  bool may_run_again(const nb::list& arrays) const;

 private:
  struct Known {
    fusion::Entry entry;
    nb::object structure;  // None: the one result itself; else a tuple of the structure
    std::vector<Tensor> captured;
    std::vector<std::string> sources;
  };

  static std::string& failed_source() {
    thread_local std::string source;
    return source;
  }
  static std::vector<Tensor> convert(Call& call, const nb::list& arrays) {
    std::vector<Tensor> tensors;
    for (nb::handle x : arrays) tensors.push_back(call.array("an argument", Array{x}));
    return tensors;
  }
  /// Whether another reader sees these calls: it gets the function's own steps.
  static bool is_traced(const std::vector<Tensor>& tensors) {
    return core::current_tracer || std::any_of(tensors.begin(), tensors.end(),
                                               [](const Tensor& x) { return x.device().type == DeviceType::kMeta; });
  }
  /// A result as an array of the arguments' library; an argument itself, where the function returns it.
  template <class Arrays>
  static nb::object wrapped(const Call& call, const Tensor& r, const std::vector<Tensor>& tensors,
                            const Arrays& arrays) {
    for (size_t i = 0; i < arrays.size(); ++i)
      if (r.storage() == tensors[i].storage() && r.dtype() == tensors[i].dtype() && fusion::same_layout(r, tensors[i]))
        return nb::borrow(arrays[i]);
    return call.wrap_one(r);
  }
  static std::vector<Tensor> run(Call& call, const Known& known, const std::vector<Tensor>& tensors);
  std::shared_ptr<Known> find(const std::vector<Tensor>& tensors) const {
    const auto at = known_.find(fusion::layout_key(tensors));
    return at == known_.end() ? nullptr : at->second;
  }

  bool fast_;  // contractions may take epilogues
  std::map<std::vector<int64_t>, std::shared_ptr<Known>> known_;
};

nb::object FuseTable::run_plain(const nb::args& arrays) {
  failed_source().clear();
  std::vector<Tensor> tensors;
  tensors.reserve(arrays.size());
  if (core::current_tracer) return nb::none();
  for (nb::handle x : arrays) {
    if (!nb::isinstance<Tensor>(x)) return nb::none();
    tensors.push_back(nb::cast<const Tensor&>(x));
  }
  const std::shared_ptr<Known> known = find(tensors);
  if (!known || !known->structure.is_none()) return nb::none();
  tensors.insert(tensors.end(), known->captured.begin(), known->captured.end());
  if (!known->entry.why_not(tensors).empty()) return nb::none();
  Call call("fuse");
  if (arrays.size() > 0) call.array("an argument", Array{arrays[0]});
  return wrapped(call, run(call, *known, tensors)[0], tensors, arrays);
}

std::vector<Tensor> FuseTable::run(Call& call, const Known& known, const std::vector<Tensor>& tensors) {
  int failed = -1;
  try {
    return call.compute([&] { return known.entry.compiled->run(tensors, &failed); });
  } catch (...) {
    failed_source() = failed >= 0 ? known.sources[static_cast<size_t>(failed)] : "";
    throw;
  }
}

nb::object FuseTable::run(const nb::list& arrays) {
  failed_source().clear();
  Call call("fuse");
  std::vector<Tensor> tensors = convert(call, arrays);
  if (is_traced(tensors)) return nb::cast("it is traced by another function");
  const std::shared_ptr<Known> known = find(tensors);
  if (!known) return nb::none();
  tensors.insert(tensors.end(), known->captured.begin(), known->captured.end());
  if (const std::string why = known->entry.why_not(tensors); !why.empty()) return nb::cast(why);
  const std::vector<Tensor> results = run(call, *known, tensors);
  nb::list out;
  for (const Tensor& r : results) out.append(wrapped(call, r, tensors, arrays));
  return nb::make_tuple(known->structure, out);
}

void FuseTable::trace(const nb::list& arrays, const nb::object& call) {
  Call convert_call("fuse");
  std::vector<Tensor> tensors = convert(convert_call, arrays);
  auto known = std::make_shared<Known>();
  std::vector<int64_t> key = fusion::layout_key(tensors);
  SourceRecorder recorder(tensors.empty() ? kCpu : tensors[0].device());
  fusion::Trace trace;
  nb::list shapes;
  for (const Tensor& x : tensors) {
    trace.inputs.push_back(fusion::traced(x));
    shapes.append(nb::cast(trace.inputs.back()));
  }
  try {
    nb::object result;
    {
      const fusion::TracedDevice stands(tensors);
      const core::TracerGuard guard(&recorder);
      result = call(shapes);
    }
    trace.outputs = nb::cast<std::vector<Tensor>>(result[0]);
    known->structure = result[1];
    for (nb::handle pair : nb::cast<nb::list>(result[2])) {
      tensors.push_back(to_tensor("fuse", "a captured array", pair[0]));
      known->captured.push_back(tensors.back());
      trace.inputs.push_back(nb::cast<Tensor>(pair[1]));
    }
    trace.steps = std::move(recorder.recorder.steps);
    trace.constants = std::move(recorder.recorder.constants);
    trace.same_modes = recorder.recorder.same_modes;
    known->sources = std::move(recorder.sources);
    nb::gil_scoped_release unlocked;
    known->entry = fusion::compile([&] { return std::move(trace); }, tensors, fast_);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError)) throw;  // KeyboardInterrupt and the like
    known->entry.reason = nb::cast<std::string>(nb::str(error.value()));
    if (known->entry.reason.empty()) known->entry.reason = "it cannot be traced";
  }
  if (known_.size() >= fusion::kMaxEntries) known_.clear();
  known_[std::move(key)] = std::move(known);
}

nb::object FuseTable::why_not(const nb::list& arrays, const nb::object& call) {
  Call convert_call("fuse");
  std::vector<Tensor> tensors = convert(convert_call, arrays);
  if (is_traced(tensors)) return nb::cast("an argument has no memory");
  if (!find(tensors)) trace(arrays, call);
  const auto known = find(tensors);
  tensors.insert(tensors.end(), known->captured.begin(), known->captured.end());
  const std::string why = known->entry.why_not(tensors);
  return why.empty() ? nb::none() : nb::cast(why);
}

bool FuseTable::may_run_again(const nb::list& arrays) const {
  Call call("fuse");
  std::vector<Tensor> tensors = convert(call, arrays);
  const auto known = find(tensors);
  if (!known) return false;
  tensors.insert(tensors.end(), known->captured.begin(), known->captured.end());
  return known->entry.may_run_again(tensors);
}

int FuseTable::kernels(const nb::list& arrays) const {
  Call call("fuse");
  const auto known = find(convert(call, arrays));
  return known && known->entry.compiled ? known->entry.compiled->kernels() : 0;
}

}  // namespace

void bind_fuse(nb::module_& m) {
  m.def(
      "_raised", [] { return nb::make_tuple(raised().count, raised().last); },
      "How many errors this thread has been given by Tenor, and the last one's text.");
  nb::class_<FuseTable>(m, "_FuseTable", "Compilations of one function for Python arguments of one kind.")
      .def(nb::init<bool>(), "fast"_a = false)
      .def("run", nb::overload_cast<const nb::list&>(&FuseTable::run), "arrays"_a)
      .def("run_plain", &FuseTable::run_plain, "arrays"_a)
      .def("may_run_again", &FuseTable::may_run_again, "arrays"_a)
      .def("trace", &FuseTable::trace, "arrays"_a, "call"_a)
      .def("why_not", &FuseTable::why_not, "arrays"_a, "call"_a)
      .def("kernels", &FuseTable::kernels, "arrays"_a)
      .def_static("failed_at", &FuseTable::failed_at);
  m.def(
      "_fuse_tensors",
      [](nb::list arrays) {
        Call call("fuse");
        nb::list tensors;
        for (nb::handle x : arrays) tensors.append(nb::cast(call.array("an argument", Array{x})));
        return tensors;
      },
      "arrays"_a, "The arrays as Tensors that share their memory.");
  m.def(
      "_fuse_like",
      [](nb::list arrays, nb::list results) {
        Call call("fuse");
        for (nb::handle x : arrays) call.array("an argument", Array{x});
        nb::list out;
        for (nb::handle r : results) out.append(call.wrap_one(nb::cast<Tensor>(r)));
        return out;
      },
      "arrays"_a, "results"_a, "Tensors as arrays of the first array's library.");
  m.def("_fuse_enabled", &fusion::enabled);
  m.def(
      "_fuse_backends",
      [] {
        std::vector<std::string> names;
        for (DeviceType type : {DeviceType::kCpu, DeviceType::kCuda})
          if (fusion::fusion_backend(type)) names.push_back(type == DeviceType::kCpu ? "cpu" : "cuda");
        return names;
      },
      "Device types that run fused kernels.");
  m.def(
      "_fuse_kernel_files",
      []() -> nb::object {
        const std::optional<fusion::KernelCache> cache = fusion::kernel_cache();
        if (!cache) return nb::none();
        nb::dict facts;
        facts["folder"] = cache->folder, facts["refused"] = cache->refused;
        facts["files"] = cache->files, facts["bytes"] = cache->bytes;
        return facts;
      },
      "The compiled CUDA kernels on disk; None in a build without CUDA.");
}

}  // namespace tenor::python
