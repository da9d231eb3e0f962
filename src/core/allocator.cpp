#include "tenor/allocator.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <atomic>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "src/core/backend.h"
#include "src/core/text.h"
#include "tenor/error.h"

#if TENOR_HAS_CUDA
#include "src/cuda/memory.h"
#endif

namespace tenor {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kCachedFrom = 64 << 10;  // smaller blocks are malloc's business
constexpr size_t kHugePage = 2 << 20;

/// Sizes in steps of an eighth of a power of two, so that a freed block serves requests of nearly its size.
size_t rounded(size_t bytes) {
  if (bytes < kCachedFrom) return (bytes + kAlignment - 1) / kAlignment * kAlignment + (bytes == 0 ? kAlignment : 0);
  const size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

/// New memory, or null. Blocks of several huge pages ask for such: a fault for every 4 KiB, and a walk for every 4 KiB
/// read later, cost more than many operators do.
void* new_block(size_t size) {
  if (size < 2 * kHugePage) return std::aligned_alloc(kAlignment, size);
  void* block = std::aligned_alloc(kHugePage, (size + kHugePage - 1) / kHugePage * kHugePage);
#ifdef __linux__
  if (block) madvise(block, size, MADV_HUGEPAGE);  // advice: where the system has none, small pages do
#endif
  return block;
}

/// Freed large blocks, by size.
class BlockCache {
 public:
  void* take(size_t size) {
    std::lock_guard lock(mutex_);
    auto found = free_.find(size);
    if (found == free_.end() || found->second.empty()) return nullptr;
    void* block = found->second.back();
    found->second.pop_back();
    held_ -= size;
    return block;
  }
  void give(void* block, size_t size) {
    std::lock_guard lock(mutex_);
    if (held_ + size > limit_) {
      std::free(block);
      return;
    }
    free_[size].push_back(block);
    held_ += size;
  }
  void clear() {
    std::lock_guard lock(mutex_);
    for (auto& [size, blocks] : free_)
      for (void* block : blocks) std::free(block);
    free_.clear();
    held_ = 0;
  }
  void set_limit(size_t bytes) {
    {
      std::lock_guard lock(mutex_);
      limit_ = bytes;
      if (held_ <= limit_) return;
    }
    clear();
  }
  size_t held() {
    std::lock_guard lock(mutex_);
    return held_;
  }

 private:
  static size_t limit_from_environment() {
    const char* text = std::getenv("TENOR_CPU_CACHE_BYTES");
    return text ? std::strtoull(text, nullptr, 10) : size_t{1} << 30;
  }
  std::mutex mutex_;
  std::unordered_map<size_t, std::vector<void*>> free_;
  size_t held_ = 0, limit_ = limit_from_environment();
};

BlockCache& block_cache() {
  static auto* cache = new BlockCache;  // never destroyed: tensors in static storage may outlive everything else
  return *cache;
}

class DefaultAllocator final : public Allocator {
 public:
  std::shared_ptr<void> allocate(size_t bytes, Device device) override {
    if (device.type != DeviceType::kCpu) return core::backend(device).allocate(bytes, device);
    if (bytes > static_cast<size_t>(PTRDIFF_MAX)) out_of_memory(bytes);
    const size_t size = rounded(bytes);
    if (size < kCachedFrom) {
      void* block = std::aligned_alloc(kAlignment, size);
      if (!block) out_of_memory(bytes);
      return {block, [](void* p) { std::free(p); }};
    }
    void* block = block_cache().take(size);
    if (!block) block = new_block(size);
    if (!block) {
      block_cache().clear();
      block = new_block(size);
    }
    if (!block) out_of_memory(bytes);
    return {block, [size](void* p) { block_cache().give(p, size); }};
  }

 private:
  [[noreturn]] static void out_of_memory(size_t bytes) {
    core::fail<OutOfMemoryError>("allocate: no memory for {} bytes on the CPU", bytes);
  }
};

std::atomic<Allocator*> process_allocator{nullptr};
thread_local Allocator* thread_allocator = nullptr;

}  // namespace

Allocator& default_allocator() {
  static auto* allocator = new DefaultAllocator;
  return *allocator;
}
void set_allocator(Allocator* allocator) { process_allocator = allocator; }
Allocator& current_allocator() {
  if (thread_allocator) return *thread_allocator;
  Allocator* chosen = process_allocator;
  return chosen ? *chosen : default_allocator();
}

AllocatorGuard::AllocatorGuard(Allocator* allocator) : previous_(thread_allocator) { thread_allocator = allocator; }
AllocatorGuard::~AllocatorGuard() { thread_allocator = previous_; }

size_t cached_bytes() { return block_cache().held(); }
void empty_cache() {
  block_cache().clear();
#if TENOR_HAS_CUDA
  cuda::release_memory();
#endif
}
void set_cache_limit(size_t bytes) { block_cache().set_limit(bytes); }

}  // namespace tenor
