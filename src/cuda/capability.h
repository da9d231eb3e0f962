// What the kernels that a device runs were compiled for: sm_90a on Hopper, PTX of compute_80 elsewhere.
#pragma once

#include <cstddef>

#include "tenor/device.h"

namespace tenor::cuda {

struct Capability {
  bool clusters;  ///< clusters of more than one block, programmatic dependent launch
  bool hopper;    ///< TMA, wgmma
  size_t shared;  ///< bytes of dynamic shared memory that a block may have
};

/// Asked of the loaded code itself, once a device. @throws CudaError where the library has no code for the device
Capability capability(Device device);

/// `blocks`, or 1 where the device's code has no clusters.
inline int cluster_of(int blocks, Device device) { return capability(device).clusters ? blocks : 1; }

}  // namespace tenor::cuda
