// Functions of a module of the package's own, as tenor.moe is one: they call themselves tenor.moe.route, to help() and
// in their docstrings, while the compiled module keeps them as _moe_route, from where the package's module takes them.
#pragma once

#include <string>
#include <utility>

#include "call.h"

namespace tenor::python {

class Part {
 public:
  /// `name`: of the package's module, such as "moe".
  Part(nb::module_& m, const std::string& name)
      : module_(m), prefix_("_" + name), part_(nb::steal<nb::module_>(PyModule_New(("tenor." + name).c_str()))) {
    if (!part_.is_valid()) throw nb::python_error();
    module_.attr(prefix_.c_str()) = part_;  // a function does not keep where it lives
  }
  /// As nb::module_::def.
  template <class... Arguments>
  void def(const char* name, Arguments&&... arguments) {
    part_.def(name, std::forward<Arguments>(arguments)...);
    module_.attr((prefix_ + "_" + name).c_str()) = part_.attr(name);
  }

 private:
  nb::module_& module_;
  std::string prefix_;
  nb::module_ part_;
};

/// Calling the class says how its objects are made: "paged.DevicePlan", "upload or reserve". @throws TypeError there
template <class T>
void refuse_construction(nb::class_<T>& c, const char* name, const char* ways) {
  const std::string text = std::string(name) + " has no constructor: it is made by " + ways;
  c.def("__init__", [text](T*, nb::args, nb::kwargs) { throw nb::type_error(text.c_str()); });
}

}  // namespace tenor::python
