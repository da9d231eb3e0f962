// What the build holds, for `tenor info`.
#include "call.h"
#include "src/core/build.h"

namespace tenor::python {

void bind_build(nb::module_& m) {
  m.def(
      "_build",
      [] {
        const core::BuildInfo info = core::build_info();
        nb::dict facts;
        facts["compiler"] = info.compiler;
        facts["cuda"] = info.cuda;
        facts["onednn"] = info.onednn.empty() ? nb::object(nb::none()) : nb::cast(info.onednn);
        facts["cpu_targets"] = info.cpu_targets;
        facts["cpu_target"] = info.cpu_target;
        facts["amx"] = info.amx;
        return facts;
      },
      "What this build of the module holds, as a dict.");
}

}  // namespace tenor::python
