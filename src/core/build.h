// What this build of the library holds: what `tenor info` prints.
#pragma once

#include <string>
#include <vector>

namespace tenor::core {

struct BuildInfo {
  std::string compiler;
  bool cuda = false;                     ///< CUDA kernels are in it
  std::string onednn;                    ///< oneDNN's version, "" without it
  std::vector<std::string> cpu_targets;  ///< the instruction sets that CPU kernels are compiled for, best first
  std::string cpu_target;                ///< the one that this machine runs
  bool amx = false;                      ///< this machine's matrix unit can be used
};

BuildInfo build_info();

}  // namespace tenor::core
