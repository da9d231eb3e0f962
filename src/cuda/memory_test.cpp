// Device memory that was given back: whom it goes to next, and that it is there when there is no other.
#include "src/cuda/memory.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <set>
#include <vector>

#include "src/cuda/counters.h"
#include "src/cuda/runtime.h"
#include "src/cuda/testing.h"
#include "tenor/allocator.h"

namespace tenor {
namespace {

using testing::kGpu;

constexpr int64_t kMiB = int64_t{1} << 20;

class CudaMemory : public testing::CudaTest {
 protected:
  void SetUp() override {
    if (std::getenv("TENOR_CUDA_CACHE_BYTES")) GTEST_SKIP() << "blocks are kept to another limit";
    testing::CudaTest::SetUp();
  }
  static void* block(int64_t bytes) { return Tensor::empty({bytes}, uint8, kGpu).raw(); }  // given back at once
};

struct OwnStream {
  cudaStream_t handle = nullptr;
  OwnStream() { cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking); }
  ~OwnStream() { cudaStreamDestroy(handle); }
};

TEST_F(CudaMemory, AFreedBlockIsTheStreamsNext) {
  const OwnStream own;
  const StreamGuard guard(own.handle);
  void* first = block(3 * kMiB);
  EXPECT_EQ(block(3 * kMiB), first);
  EXPECT_EQ(block(3 * kMiB - 100), first);  // little less fits as well
  const Tensor less = Tensor::empty({2 * kMiB}, uint8, kGpu), more = Tensor::empty({3 * kMiB + 513}, uint8, kGpu);
  EXPECT_NE(less.raw(), first);
  EXPECT_NE(more.raw(), first);
  const Tensor x = Tensor::empty({3 * kMiB}, uint8, kGpu), y = Tensor::empty({3 * kMiB}, uint8, kGpu);
  EXPECT_EQ(x.raw(), first);
  EXPECT_NE(y.raw(), first);
}

TEST_F(CudaMemory, AnotherStreamHasBlocksOfItsOwn) {
  const OwnStream own, other;
  const auto block_on = [](const OwnStream& stream) {
    const StreamGuard guard(stream.handle);
    return block(5 * kMiB);
  };
  void* first = block_on(own);
  const StreamGuard guard(other.handle);
  const Tensor kept = Tensor::empty({5 * kMiB}, uint8, kGpu);
  EXPECT_EQ(block_on(own), first);
  EXPECT_NE(kept.raw(), first);
}

/// A stream that takes the handle of one that is gone gets none of its blocks: work there may not have ended.
TEST_F(CudaMemory, ANewStreamHasNoBlocks) {
  empty_cache();  // with too many kept, those of streams that are gone make room
  std::set<void*> seen;
  for (int i = 0; i < 4; ++i) {
    const OwnStream own;
    const StreamGuard guard(own.handle);
    EXPECT_TRUE(seen.insert(block(7 * kMiB)).second);
  }
}

TEST_F(CudaMemory, WhatIsKeptGoesBackBeforeThereIsNone) {
  const OwnStream own;
  const StreamGuard guard(own.handle);
  {
    std::vector<Tensor> blocks;
    for (int i = 0; i < 60; ++i) blocks.push_back(Tensor::empty({16 * kMiB}, uint8, kGpu));
  }
  size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_NO_THROW(Tensor::empty({static_cast<int64_t>(free) + 512 * kMiB}, uint8, kGpu));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_THROW(Tensor::empty({static_cast<int64_t>(total) + kMiB}, uint8, kGpu), OutOfMemoryError);
  EXPECT_NO_THROW(Tensor::empty({16 * kMiB}, uint8, kGpu));
}

/// Bytes taken of the device's pool: those that tensors have, and those kept.
uint64_t used_bytes() {
  cudaMemPool_t pool;
  uint64_t used = 0;
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // frees have come to pass
  EXPECT_EQ(cudaDeviceGetDefaultMemPool(&pool, kGpu.index), cudaSuccess);
  EXPECT_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used), cudaSuccess);
  return used;
}

TEST_F(CudaMemory, EmptyingTheCacheGivesBackEveryStreams) {
  const OwnStream own, other;
  const auto block_on = [](const OwnStream& stream) {
    const StreamGuard guard(stream.handle);
    return block(32 * kMiB);
  };
  empty_cache();
  const uint64_t before = used_bytes();
  block_on(own), block_on(other);
  EXPECT_GE(used_bytes(), before + 64 * kMiB);
  empty_cache();
  EXPECT_EQ(used_bytes(), before);
  EXPECT_NE(block_on(own), nullptr);
}

/// More than is kept, by streams that are gone: the next stream's block is kept all the same, in place of theirs.
TEST_F(CudaMemory, StreamsThatAreGoneMakeRoom) {
  constexpr int64_t kBytes = 128 * kMiB;
  for (int i = 0; i < 12; ++i) {
    const OwnStream gone;
    const StreamGuard guard(gone.handle);
    block(kBytes);
  }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  {
    const OwnStream own;
    const StreamGuard guard(own.handle);
    block(kBytes);
    const uint64_t with_kept = used_bytes();
    const Tensor taken = Tensor::empty({kBytes}, uint8, kGpu);
    EXPECT_EQ(used_bytes(), with_kept) << "it was not the kept one";
  }
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  empty_cache();
}

int read_int(const int* at) {
  int value = -1;
  cudaMemcpyAsync(&value, at, sizeof(int), cudaMemcpyDeviceToHost, current_stream(kGpu).handle);
  cudaStreamSynchronize(current_stream(kGpu).handle);
  return value;
}

class CudaCounters : public testing::CudaTest {};

TEST_F(CudaCounters, EachStartsFromZero) {
  const OwnStream own, other;
  const cuda::DeviceGuard device(kGpu);
  for (int i = 0; i < 2500; ++i) {  // more than are zeroed at once
    const StreamGuard guard(i % 3 ? own.handle : other.handle);
    int* counter = cuda::zeroed_counter(kGpu);
    ASSERT_NE(counter, nullptr);
    ASSERT_EQ(read_int(counter), 0) << i;
    ASSERT_EQ(cudaMemsetAsync(counter, 7, sizeof(int), current_stream(kGpu).handle), cudaSuccess);
  }
}

TEST_F(CudaCounters, NoneForAGraph) {
  const OwnStream own;
  const StreamGuard guard(own.handle);
  ASSERT_EQ(cudaStreamBeginCapture(own.handle, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cuda::zeroed_counter(kGpu), nullptr);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(own.handle, &graph), cudaSuccess);
  if (graph) cudaGraphDestroy(graph);
}

}  // namespace
}  // namespace tenor
