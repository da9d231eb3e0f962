#include "src/cuda/memory.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "src/cuda/capture.h"
#include "src/cuda/runtime.h"

namespace tenor::cuda {
namespace {

/// Devices that memory was taken of.
struct UsedDevices {
  std::mutex mutex;
  std::set<int> indices;
};
UsedDevices& used_devices() {
  static auto* used = new UsedDevices;
  return *used;
}

/// Freed memory stays in the device's pool for the next operator instead of going back to the driver at each wait.
void keep_pool_memory(int index) {
  cudaMemPool_t pool;
  check(cudaDeviceGetDefaultMemPool(&pool, index), "cudaDeviceGetDefaultMemPool");
  uint64_t all = UINT64_MAX;
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all), "cudaMemPoolSetAttribute");
  std::lock_guard lock(used_devices().mutex);
  used_devices().indices.insert(index);
}

struct Block {
  void* memory;
  size_t bytes;
  cudaStream_t stream;
  unsigned long long stream_id;  ///< no two streams of a process have one, whatever their handles; 0: not known
  Device device;
};

/// At exit the driver may be gone: nothing to do about a failure then, but leave no error for the next call to find.
void free_now(const Block& block) {
  if (cudaFreeAsync(block.memory, block.stream) != cudaSuccess) cudaGetLastError();
}

/// The blocks kept for a stream, the oldest first, and an event behind everything that used the first of them: once it
/// has come to pass any stream may have those, whether or not theirs is gone. The default stream, which cannot be, has
/// none: an event there could break into another stream's capture.
class StreamBlocks {
 public:
  StreamBlocks() = default;
  ~StreamBlocks() {
    if (mark_ && cudaEventDestroy(mark_) != cudaSuccess) cudaGetLastError();
  }
  StreamBlocks(const StreamBlocks&) = delete;
  StreamBlocks& operator=(const StreamBlocks&) = delete;

  const std::vector<Block>& all() const { return blocks_; }

  Block remove(size_t i) {
    const Block block = blocks_[i];
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
    if (i < marked_) --marked_;
    return block;
  }

  /// Marks each of a stream's first blocks, since it may be short-lived, and now and then later ones: an event costs
  /// about what keeping saves.
  void add(const Block& block) {
    blocks_.push_back(block);
    if (given_++ < kFirst || given_ % kFirst == 0) mark(block.stream);
  }

  /// How many of the first blocks nothing uses any more.
  size_t unused() const {
    if (marked_ == 0) return 0;
    const RelaxedCapture relaxed;  // asking is forbidden to a thread that captures
    if (cudaEventQuery(mark_) == cudaSuccess) return marked_;
    cudaGetLastError();
    return 0;
  }

 private:
  static constexpr size_t kFirst = 64;

  void mark(cudaStream_t stream) {
    if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) return;
    if (!mark_) {
      const RelaxedCapture relaxed;
      if (cudaEventCreateWithFlags(&mark_, cudaEventDisableTiming) != cudaSuccess) mark_ = nullptr;
    }
    if (mark_ && cudaEventRecord(mark_, stream) == cudaSuccess)
      marked_ = blocks_.size();
    else
      marked_ = 0, cudaGetLastError();
  }

  std::vector<Block> blocks_;
  cudaEvent_t mark_ = nullptr;
  size_t marked_ = 0, given_ = 0;
};

/// Freed blocks, kept for the next allocation on their stream, in whose order it takes them: the pool's own calls cost
/// 1.2 us of the host and, between two kernels, 0.9 us of the device. The limit is on all of them together.
class FreeBlocks {
 public:
  /// A block of that stream of `block.bytes` or little more; false: none.
  bool take(Block& block) {
    std::lock_guard lock(mutex_);
    const auto found = by_stream_.find({block.device.index, block.stream_id});
    if (found == by_stream_.end()) return false;
    const std::vector<Block>& blocks = found->second.all();
    for (size_t i = blocks.size(); i-- > 0;) {
      if (blocks[i].bytes < block.bytes || blocks[i].bytes - block.bytes > block.bytes / 8) continue;
      block = found->second.remove(i);
      held_ -= block.bytes;
      return true;
    }
    return false;
  }

  /// Keeps it, in place of the stream's oldest where there are too many, or of others' that nothing uses.
  void give(const Block& block) {
    std::lock_guard lock(mutex_);
    StreamBlocks& own = blocks_of(block);
    while (!own.all().empty() && (own.all().size() >= kMost || held_ + block.bytes > kLimit)) {
      const Block oldest = own.remove(0);
      held_ -= oldest.bytes;
      free_now(oldest);
    }
    if (held_ + block.bytes > kLimit) free_unused_of_others(block);
    if (held_ + block.bytes > kLimit) return free_now(block);
    own.add(block);
    held_ += block.bytes;
  }

  /// Gives everything on the device back to its pool. Streams may be gone, so it waits for the whole device; false
  /// where there is nothing to give, or a capture forbids to wait.
  bool release(Device device) {
    std::lock_guard lock(mutex_);
    bool any = false;
    for (auto& [of, kept] : by_stream_) any = any || (of.first == device.index && !kept.all().empty());
    if (!any) return false;
    if (cudaDeviceSynchronize() != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    for (auto& [of, kept] : by_stream_) {
      if (of.first != device.index) continue;
      for (Block block : kept.all()) {
        held_ -= block.bytes;
        block.stream = nullptr;
        free_now(block);
      }
    }
    if (cudaStreamSynchronize(nullptr) != cudaSuccess) cudaGetLastError();  // now the pool has them
    std::erase_if(by_stream_, [&](const auto& list) { return list.first.first == device.index; });
    return true;
  }

  static size_t limit() { return kLimit; }

 private:
  using Key = std::pair<int, unsigned long long>;  // device, stream's id

  static size_t limit_from_environment() {
    const char* text = std::getenv("TENOR_CUDA_CACHE_BYTES");
    return text ? std::strtoull(text, nullptr, 10) : size_t{1} << 30;
  }
  /// A stream's blocks. Those that are gone leave empty lists, which are cleared away whenever the lists'
  /// number has doubled.
  StreamBlocks& blocks_of(const Block& block) {
    const Key key{block.device.index, block.stream_id};
    if (const auto found = by_stream_.find(key); found != by_stream_.end()) return found->second;
    if (by_stream_.size() >= most_streams_) {
      std::erase_if(by_stream_, [](const auto& list) { return list.second.all().empty(); });
      most_streams_ = std::max(kMost, 2 * by_stream_.size());
    }
    return by_stream_[key];
  }
  /// Makes room for a block by what other streams of its device have and nothing uses, by way of the block's stream.
  void free_unused_of_others(const Block& block) {
    for (auto& [of, kept] : by_stream_) {
      if (of.first != block.device.index || of.second == block.stream_id) continue;
      for (size_t left = kept.unused(); left > 0 && held_ + block.bytes > kLimit; --left) {
        Block oldest = kept.remove(0);
        held_ -= oldest.bytes;
        oldest.stream = block.stream;
        free_now(oldest);
      }
    }
  }

  static constexpr size_t kMost = 64;  // blocks of a stream, and streams before the first sweep
  static inline const size_t kLimit = limit_from_environment();

  std::mutex mutex_;
  std::map<Key, StreamBlocks> by_stream_;
  size_t held_ = 0, most_streams_ = kMost;
};
FreeBlocks& free_blocks() {
  static auto* blocks = new FreeBlocks;
  return *blocks;
}

/// Blocks that no graph owns, dropped while their stream was captured.
struct KeptBlocks {
  std::mutex mutex;
  std::vector<Block> blocks;
};
KeptBlocks& kept_blocks() {
  static auto* kept = new KeptBlocks;
  return *kept;
}

/// After an error that the process's context does not survive there is nothing to give back to, and nobody to tell.
void give_back(const Block& block, unsigned long long made_in) noexcept try {
  const DeviceGuard owner(block.device);
  const unsigned long long now = capture_of(block.stream);
  if (now == 0 && made_in == 0 && block.stream_id != 0) return free_blocks().give(block);
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

/// 0 for what is not to be kept: beyond the limit, or where the driver does not number its streams.
unsigned long long id_of(cudaStream_t stream, size_t bytes) {
  unsigned long long id = 0;
  if (bytes > FreeBlocks::limit() || cudaStreamGetId(stream, &id) == cudaSuccess) return id;
  cudaGetLastError();
  return 0;
}

/// From the pool. What is kept elsewhere goes back to it before there is no memory.
void take_from_pool(Block& block, bool captured) {
  cudaError_t status = cudaMallocAsync(&block.memory, block.bytes, block.stream);
  if (status == cudaErrorMemoryAllocation && !captured && free_blocks().release(block.device)) {
    cudaGetLastError();
    status = cudaMallocAsync(&block.memory, block.bytes, block.stream);
  }
  check(status, "cudaMallocAsync");
}

}  // namespace

std::shared_ptr<void> allocate(size_t bytes, Device device) {
  static std::once_flag* pools = new std::once_flag[64];
  const DeviceGuard guard(device);
  std::call_once(pools[device.index % 64], keep_pool_memory, device.index);
  if (bytes == 0) return nullptr;
  Block block{nullptr, bytes, current_stream(device).handle, 0, device};
  const unsigned long long capture = capture_of(block.stream);
  if (capture == 0) {
    free_kept(block.stream, device);
    block.stream_id = id_of(block.stream, bytes);
  }
  constexpr size_t kUnit =
      512;  // so that a kept block fits more requests; others keep their exact end for the sanitizer
  if (block.stream_id != 0) block.bytes = (bytes + kUnit - 1) / kUnit * kUnit;
  if (block.stream_id == 0 || !free_blocks().take(block)) take_from_pool(block, capture != 0);
  return {block.memory, [block, capture](void*) { give_back(block, capture); }};
}

void release_memory() {
  std::set<int> indices;
  {
    std::lock_guard lock(used_devices().mutex);
    indices = used_devices().indices;
  }
  for (const int index : indices) {
    const Device device{DeviceType::kCuda, index};
    const DeviceGuard guard(device);
    if (capture_of(current_stream(device).handle) != 0) continue;
    free_blocks().release(device);
    cudaMemPool_t pool;
    check(cudaDeviceGetDefaultMemPool(&pool, index), "cudaDeviceGetDefaultMemPool");
    check(cudaMemPoolTrimTo(pool, 0), "cudaMemPoolTrimTo");
  }
}

}  // namespace tenor::cuda
