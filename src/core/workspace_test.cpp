// How a workspace is dealt out: by the sequence of calls alone, so that counting and dealing agree. Operators are in
// src/cuda/workspace_test.cpp.
#include "src/core/workspace.h"

#include <random>
#include <vector>

#include "src/core/testing.h"
#include "tenor/create.h"
#include "tenor/workspace.h"

namespace tenor {
namespace {

using core::Arena;

/// The same random sequence of allocations and releases.
size_t play(const std::shared_ptr<Arena>& arena, std::vector<char*>* places = nullptr) {
  std::mt19937 rng(3);
  std::vector<std::shared_ptr<void>> held;
  for (int i = 0; i < 2000; ++i) {
    if (!held.empty() && rng() % 3 == 0) {
      held.erase(held.begin() + static_cast<int64_t>(rng() % held.size()));
      continue;
    }
    if (held.size() > 20) held.clear();
    held.push_back(arena->allocate(rng() % 5000, kCpu));
    if (places) places->push_back(static_cast<char*>(held.back().get()));
  }
  return arena->peak();
}

TEST(Workspace, CountingIsExact) {
  const auto counting = std::make_shared<Arena>("op", kCpu, nullptr, 0, default_allocator());
  const size_t peak = play(counting);
  EXPECT_GT(peak, 5000U);
  std::vector<char> memory(peak + 256);
  void* base = memory.data();
  size_t room = memory.size();
  ASSERT_NE(std::align(256, peak, base, room), nullptr);
  std::vector<char*> places;
  EXPECT_EQ(play(std::make_shared<Arena>("op", kCpu, base, peak, default_allocator()), &places), peak);
  for (char* place : places) {
    EXPECT_EQ((place - static_cast<char*>(base)) % 256, 0);
    EXPECT_LT(place, static_cast<char*>(base) + peak);
  }
  EXPECT_THROW(play(std::make_shared<Arena>("op", kCpu, base, peak - 1, default_allocator())), ShapeError);
}

TEST(Workspace, BlocksDoNotMeetAndGapsAreUsedAgain) {
  alignas(256) static char memory[2048];
  const auto arena = std::make_shared<Arena>("sort", kCpu, memory, sizeof memory, default_allocator());
  auto a = arena->allocate(300, kCpu), b = arena->allocate(1, kCpu), c = arena->allocate(512, kCpu);
  EXPECT_EQ(a.get(), memory);
  EXPECT_EQ(b.get(), memory + 512);
  EXPECT_EQ(c.get(), memory + 768);
  a.reset();
  const auto d = arena->allocate(0, kCpu),
             e = arena->allocate(512, kCpu);  // the gap has room for one of 256, not of 512
  EXPECT_EQ(d.get(), memory);
  EXPECT_EQ(e.get(), memory + 1280);
  EXPECT_EQ(arena->peak(), 1792U);
  testing::expect_error<ShapeError>(
      [&] { (void)arena->allocate(700, kCpu); },
      "sort: workspace has 2048 bytes, expected 2560 at least (tenor.workspace_size says how many)");
}

TEST(Workspace, WhatOutlivesItKeepsNothingAlive) {
  static char memory[512];
  std::shared_ptr<void> kept;
  {
    const auto arena = std::make_shared<Arena>("op", kCpu, memory, sizeof memory, default_allocator());
    kept = arena->allocate(10, kCpu);
  }
  EXPECT_NO_THROW(kept.reset());
}

TEST(Workspace, TheCpuLeavesItAlone) {
  EXPECT_EQ(workspace_size(kCpu, [] { FAIL() << "nothing is to be run"; }), 0U);
  const WorkspaceGuard guard(empty({0}, {.dtype = uint8}), "sort");
  EXPECT_EQ(ones({3}).numel(), 3);
  testing::expect_error<DTypeError>([] { const WorkspaceGuard wrong(ones({3}), "sort"); },
                                    "sort: workspace must be uint8, got float32");
}

}  // namespace
}  // namespace tenor
