#include "tenor/allocator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "tenor/error.h"
#include "tenor/tensor.h"

namespace tenor {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

/// Each test starts from an empty cache with the default limit.
class AllocatorTest : public ::testing::Test {
 protected:
  void SetUp() override { reset(); }
  void TearDown() override { reset(); }
  static void reset() {
    set_cache_limit(size_t{1} << 30);
    empty_cache();
  }
};

TEST_F(AllocatorTest, BlocksAreAlignedDistinctAndWritable) {
  std::vector<std::shared_ptr<void>> blocks;
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{65535}, size_t{65536},
                       size_t{65537}, 3 * kMiB + 7}) {
    auto block = default_allocator().allocate(bytes, kCpu);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.get()) % 64, 0u) << bytes;
    std::memset(block.get(), 0xAB, bytes);
    for (const auto& other : blocks) EXPECT_NE(other, block);
    blocks.push_back(std::move(block));
  }
}

TEST_F(AllocatorTest, LargeBlocksAreReusedSmallOnesAreNotKept) {
  auto block = default_allocator().allocate(4 * kMiB, kCpu);
  void* address = block.get();
  block.reset();
  EXPECT_EQ(cached_bytes(), 4 * kMiB);
  block = default_allocator().allocate(4 * kMiB - 100, kCpu);  // of nearly its size
  EXPECT_EQ(block.get(), address);
  EXPECT_EQ(cached_bytes(), 0u);
  default_allocator().allocate(1000, kCpu);
  EXPECT_EQ(cached_bytes(), 0u);
}

TEST_F(AllocatorTest, ABlockInUseIsNeverHandedOutAgain) {
  auto a = default_allocator().allocate(kMiB, kCpu), b = default_allocator().allocate(kMiB, kCpu);
  EXPECT_NE(a.get(), b.get());
}

TEST_F(AllocatorTest, TheCacheIsBounded) {
  set_cache_limit(10 * kMiB);
  std::vector<std::shared_ptr<void>> blocks;
  for (int i = 0; i < 20; ++i) blocks.push_back(default_allocator().allocate(kMiB, kCpu));
  blocks.clear();
  EXPECT_LE(cached_bytes(), 10 * kMiB);
  EXPECT_GE(cached_bytes(), 9 * kMiB);
  set_cache_limit(kMiB);
  EXPECT_LE(cached_bytes(), kMiB);
  default_allocator().allocate(64 * kMiB, kCpu).reset();
  EXPECT_LE(cached_bytes(), kMiB);
  set_cache_limit(0);
  default_allocator().allocate(kMiB, kCpu).reset();
  EXPECT_EQ(cached_bytes(), 0u);
}

TEST_F(AllocatorTest, WhatCannotBeHadIsAnError) {
  EXPECT_THROW(default_allocator().allocate(SIZE_MAX, kCpu), OutOfMemoryError);
  EXPECT_THROW(default_allocator().allocate(size_t{1} << 62, kCpu), OutOfMemoryError);
  EXPECT_THROW(default_allocator().allocate(16, Device{DeviceType::kCuda, 0}), DeviceError);
}

/// Counts what it is asked for.
class Counting final : public Allocator {
 public:
  std::shared_ptr<void> allocate(size_t bytes, Device device) override {
    ++calls;
    return default_allocator().allocate(bytes, device);
  }
  int calls = 0;
};

TEST_F(AllocatorTest, ReplacedForTheProcessOrForAThread) {
  Counting process, thread;
  set_allocator(&process);
  Tensor::empty({3}, float32);
  {
    AllocatorGuard guard(&thread);
    Tensor::empty({3}, float32);
    std::thread([] { Tensor::empty({3}, float32); }).join();  // another thread keeps the process's
  }
  Tensor::empty({3}, float32);
  set_allocator(nullptr);
  Tensor::empty({3}, float32);
  EXPECT_EQ(process.calls, 3);
  EXPECT_EQ(thread.calls, 1);
}

TEST_F(AllocatorTest, SeveralThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 300; ++i) {
        auto block = default_allocator().allocate((64 << 10) + 4096 * ((i * 7 + t) % 9), kCpu);
        auto* bytes = static_cast<unsigned char*>(block.get());
        bytes[0] = bytes[65535] = static_cast<unsigned char>(t);
        std::this_thread::yield();
        ASSERT_TRUE(bytes[0] == t && bytes[65535] == t);
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_LE(cached_bytes(), size_t{1} << 30);
}

}  // namespace
}  // namespace tenor
