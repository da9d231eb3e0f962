// Autotuning: the switch, and the tuning store for `tenor tune`.
#include "call.h"
#include "src/core/cache_folder.h"
#include "src/core/tuning.h"

namespace tenor::python {

void bind_autotune(nb::module_& m) {
  m.def("autotune", &autotune, "on"_a,
        "Lets \"auto\" measure an operator's strategies at the first call of each problem (shapes, strides, dtypes) "
        "and take the "
        "fastest from then on, in later processes too (tuning.json in the cache folder). Only strategies of one "
        "numerics class "
        "are candidates. Process-wide; returns the previous setting, which starts as TENOR_AUTOTUNE=1 says. Nothing is "
        "tuned "
        "under batch_invariant(). On CUDA the first call of a problem waits for its measurement; nothing is measured "
        "while the "
        "current stream is captured.");
  m.def(
      "_tunings",
      [] {
        nb::list all;
        for (const core::Tuning& t : core::tunings()) {
          nb::dict microseconds;
          for (const auto& [name, time] : t.microseconds) microseconds[name.c_str()] = time;
          nb::dict entry;
          entry["op"] = t.op, entry["problem"] = t.problem, entry["machine"] = t.machine, entry["version"] = t.version;
          entry["winner"] = t.winner, entry["microseconds"] = microseconds;
          all.append(entry);
        }
        return all;
      },
      "What the tuning store holds, as dicts.");
  m.def(
      "_forget_tunings",
      [](const std::string& op, const std::string& problem, const std::string& machine) {
        return core::forget_tunings(op, problem, machine);
      },
      "op"_a, "problem"_a = "", "machine"_a = "",
      "Forgets the tunings of an operator (of one problem, of one machine), or all of them for \"\". Returns how "
      "many.");
  m.def(
      "_machine_key", [](const std::string& device) { return core::tuning_machine(device_from_name(device)); },
      "device"_a = "cpu",
      "What tunings on that device belong to: machine and thread count, or GPU, driver and cuBLASLt.");
  m.def(
      "_tuned_by",
      [](nb::callable fn) {
        core::TuningLog log;
        fn();
        nb::list all;
        for (const auto& [op, problem] : log.problems) all.append(nb::make_tuple(op, problem));
        return all;
      },
      "fn"_a,
      "Calls fn() with autotuning as it is set: the (operator, problem) of each choice among several strategies.");
}

}  // namespace tenor::python
