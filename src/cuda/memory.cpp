#include "src/cuda/memory.h"

#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "src/cuda/capture.h"
#include "src/cuda/runtime.h"

namespace tenor::cuda {
namespace {

/// Freed memory stays in the device's pool for the next operator instead of going back to the driver at each wait.
void keep_pool_memory(int index) {
  cudaMemPool_t pool;
  check(cudaDeviceGetDefaultMemPool(&pool, index), "cudaDeviceGetDefaultMemPool");
  uint64_t all = UINT64_MAX;
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all), "cudaMemPoolSetAttribute");
}

struct Block {
  void* memory;
  cudaStream_t stream;
  Device device;
};

/// Blocks that no graph owns, dropped while their stream was captured.
struct KeptBlocks {
  std::mutex mutex;
  std::vector<Block> blocks;
};
KeptBlocks& kept_blocks() {
  static auto* kept = new KeptBlocks;
  return *kept;
}

/// At exit the driver may be gone: nothing to do about a failure then, but leave no error for the next call to find.
void free_now(const Block& block) {
  if (cudaFreeAsync(block.memory, block.stream) != cudaSuccess) cudaGetLastError();
}

/// After an error that the process's context does not survive there is nothing to give back to, and nobody to tell.
void give_back(const Block& block, unsigned long long made_in) noexcept try {
  const DeviceGuard owner(block.device);
  const unsigned long long now = capture_of(block.stream);
  if (now == 0 || now == made_in) return free_now(block);
  std::lock_guard lock(kept_blocks().mutex);
  kept_blocks().blocks.push_back(block);
} catch (const std::exception&) {
}

/// Frees what captures of that stream have left.
void free_kept(cudaStream_t stream, Device device) {
  std::lock_guard lock(kept_blocks().mutex);
  std::erase_if(kept_blocks().blocks, [&](const Block& block) {
    if (block.stream != stream || block.device != device) return false;
    free_now(block);
    return true;
  });
}

}  // namespace

std::shared_ptr<void> allocate(size_t bytes, Device device) {
  static std::once_flag* pools = new std::once_flag[64];
  const DeviceGuard guard(device);
  std::call_once(pools[device.index % 64], keep_pool_memory, device.index);
  Block block{nullptr, current_stream(device).handle, device};
  const unsigned long long capture = capture_of(block.stream);
  if (capture == 0) free_kept(block.stream, device);
  if (bytes > 0) check(cudaMallocAsync(&block.memory, bytes, block.stream), "cudaMallocAsync");
  return {block.memory, [block, capture](void* p) {
            if (p) give_back(block, capture);
          }};
}

}  // namespace tenor::cuda
