// Programmatic dependent launch: a kernel that starts while the one before it ends. PTX ISA, "griddepcontrol". Code for
// devices without it is launched in the ordinary way (capability.h), and has nothing to say or to wait for.
#pragma once

#include "src/cuda/ptx/target.cuh"

namespace tenor::cuda::ptx {

/// The next kernel may take the places of blocks that end.
__device__ __forceinline__ void launch_dependents() {
  if constexpr (kHasClusters) asm volatile("griddepcontrol.launch_dependents;");
}
/// Until the kernel before has ended and what it wrote can be read.
__device__ __forceinline__ void wait_for_previous() {
  if constexpr (kHasClusters) asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace tenor::cuda::ptx
