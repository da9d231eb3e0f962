// Fused kernels on the CPU.
#pragma once

#include <memory>
#include <string>

#include "src/fusion/program.h"

namespace tenor::fusion {

/// Why that program cannot be one kernel on the CPU; empty where it can.
std::string cpu_declines(const Program& program);
std::shared_ptr<const Executable> make_cpu_kernel(const Program& program);

}  // namespace tenor::fusion
