// Functions of the driver that the runtime does not wrap, found at run time: the library loads without a driver.
#pragma once

namespace tenor::cuda {

/// Null where the driver has no such function of CUDA 12.0.
void* driver_entry(const char* name);

}  // namespace tenor::cuda
