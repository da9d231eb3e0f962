#include "src/core/build.h"

#include <hwy/targets.h>

#include "src/core/text.h"
#include "src/cpu/amx.h"

#if TENOR_HAS_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

namespace tenor::core {
namespace {

/// The names of a set of Highway's targets; a lower bit is a better one.
std::vector<std::string> target_names(int64_t targets) {
  std::vector<std::string> names;
  for (int bit = 0; bit < 63; ++bit)
    if (const int64_t target = int64_t{1} << bit; targets & target) names.push_back(hwy::TargetName(target));
  return names;
}

std::string onednn_version() {
#if TENOR_HAS_ONEDNN
  const dnnl_version_t* v = dnnl_version();
  return text("{}.{}.{}", v->major, v->minor, v->patch);
#else
  return {};
#endif
}

}  // namespace

BuildInfo build_info() {
#ifdef HWY_COMPILE_ONLY_STATIC
  const int64_t compiled = HWY_STATIC_TARGET, usable = compiled;
#else
  const int64_t compiled = HWY_TARGETS, usable = compiled & hwy::SupportedTargets();
#endif
  BuildInfo info;
#ifdef __clang__
  info.compiler = "clang " __clang_version__;
#else
  info.compiler = "gcc " __VERSION__;
#endif
#if TENOR_HAS_CUDA
  info.cuda = true;
#endif
  info.onednn = onednn_version();
  info.cpu_targets = target_names(compiled);
  if (const auto names = target_names(usable); !names.empty()) info.cpu_target = names.front();
  info.amx = cpu::has_amx();
  return info;
}

}  // namespace tenor::core
