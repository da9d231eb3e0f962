// Device memory from the stream-ordered pool.
#pragma once

#include <cstddef>
#include <memory>

#include "tenor/device.h"

namespace tenor::cuda {

/// Memory for work on the device's current stream, given back in that stream's order: up to 1 GiB of it (or
/// TENOR_CUDA_CACHE_BYTES) is kept for the stream's next allocations, the rest in the device's pool. Within a capture it
/// is the graph's: made and freed by it at every replay. A block made outside and dropped while its stream is captured is
/// kept until a later allocation outside. @throws OutOfMemoryError
std::shared_ptr<void> allocate(size_t bytes, Device device);

/// Gives what is kept on every device back to its pool, and the pool's unused memory to the driver. Waits for the
/// devices; one whose current stream is captured keeps its memory.
void release_memory();

}  // namespace tenor::cuda
