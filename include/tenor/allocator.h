// Where memory comes from: one interface, which a host program can replace.
#pragma once

#include <cstddef>
#include <memory>

#include "tenor/device.h"

namespace tenor {

/// Hands out memory for results and workspace. Implementations are called from several threads at once.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// At least `bytes` bytes, aligned to 64 (256 on CUDA), held for as long as the returned pointer lives.
  /// @throws OutOfMemoryError
  virtual std::shared_ptr<void> allocate(size_t bytes, Device device) = 0;
};

/// Tenor's own allocator: on the CPU it keeps freed blocks of 64 KiB and more for reuse, because pages freshly mapped
/// cost more than the kernels that fill them.
Allocator& default_allocator();
/// Replaces the process-wide allocator; nullptr restores the default. The caller keeps ownership.
void set_allocator(Allocator* allocator);
/// The allocator in force for this thread: the innermost AllocatorGuard's, else the process-wide one.
Allocator& current_allocator();

/// Uses another allocator on this thread while it lives.
class AllocatorGuard {
 public:
  explicit AllocatorGuard(Allocator* allocator);
  ~AllocatorGuard();
  AllocatorGuard(const AllocatorGuard&) = delete;
  AllocatorGuard& operator=(const AllocatorGuard&) = delete;

 private:
  Allocator* previous_;
};

/// Bytes that the default CPU allocator keeps for reuse.
size_t cached_bytes();
/// Returns those to the system, and what CUDA keeps to the driver; waits for it, so not while a stream is captured.
void empty_cache();
/// The most that it keeps (default 1 GiB, or TENOR_CPU_CACHE_BYTES).
void set_cache_limit(size_t bytes);

}  // namespace tenor
