// Fused kernels on CUDA: what fusion/backend.h asks of a device.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "src/cuda/nvrtc.h"
#include "src/fusion/program.h"
#include "tenor/device.h"

namespace tenor::cuda {

/// The headers that fused kernels include, embedded when Tenor was built.
std::span<const EmbeddedHeader> prelude();

/// Why the program cannot be one kernel here; empty where it can.
std::string cuda_declines(const fusion::Program& program);

/// Compiles the program for the device, or finds it compiled: in memory, or on disk. What spills registers is compiled
/// again in smaller portions.
/// @throws UnsupportedError where cuda_declines() has a reason
std::shared_ptr<const fusion::Executable> compile_fused(const fusion::Program& program, Device device);

}  // namespace tenor::cuda
