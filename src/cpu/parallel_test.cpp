#include "src/cpu/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tenor/device.h"
#include "tenor/error.h"

namespace tenor::cpu {
namespace {

class ParallelTest : public ::testing::Test {
 protected:
  void TearDown() override { set_num_threads(before_); }
  int before_ = num_threads();
};

TEST_F(ParallelTest, EveryItemOnceWhateverTheThreadsAndTheGrain) {
  for (int threads : {1, 2, 3, 8, 13})
    for (int64_t n : {0, 1, 2, 7, 64, 1000})
      for (int64_t grain : {1, 3, 100, 10000}) {
        set_num_threads(threads);
        std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
        std::atomic<int> calls{0};
        parallel_for(n, grain, [&](int64_t begin, int64_t end) {
          ASSERT_LT(begin, end);
          ++calls;
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
        });
        for (auto& s : seen) ASSERT_EQ(s, 1);
        ASSERT_LE(calls, threads);
        ASSERT_LE(calls, (n + grain - 1) / grain);
      }
}

TEST_F(ParallelTest, UsesSeveralThreads) {
  set_num_threads(4);
  std::mutex mutex;
  std::set<std::thread::id> ids;
  parallel_for(4, 1, [&](int64_t, int64_t) {
    std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  EXPECT_GT(ids.size(), 1u);
}

TEST_F(ParallelTest, NestedIsSerial) {
  set_num_threads(4);
  std::atomic<int> outer{0}, inner{0};
  parallel_for(4, 1, [&](int64_t, int64_t) {
    ++outer;
    const auto here = std::this_thread::get_id();
    parallel_for(100, 1, [&](int64_t begin, int64_t end) {
      EXPECT_EQ(std::this_thread::get_id(), here);
      EXPECT_EQ(end - begin, 100);
      ++inner;
    });
  });
  EXPECT_EQ(inner, outer);
}

TEST_F(ParallelTest, AnExceptionReachesTheCallerAndTheNextCallWorks) {
  for (int threads : {1, 4}) {
    set_num_threads(threads);
    for (int64_t bad : {0, 3, 7}) {
      EXPECT_THROW(parallel_for(8, 1,
                                [&](int64_t begin, int64_t end) {
                                  if (begin <= bad && bad < end) throw ShapeError("item");
                                }),
                   ShapeError);
    }
    EXPECT_THROW(parallel_for(8, 1, [](int64_t, int64_t) { throw std::runtime_error("all of them"); }),
                 std::runtime_error);
    std::atomic<int64_t> sum{0};
    parallel_for(100, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum += i;
    });
    EXPECT_EQ(sum, 4950);
  }
}

TEST_F(ParallelTest, SeveralCallersAtOnce) {
  set_num_threads(3);
  std::vector<std::thread> callers;
  std::atomic<int64_t> total{0};
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round)
        parallel_for(30, 1, [&](int64_t begin, int64_t end) { total += end - begin; });
    });
  for (auto& c : callers) c.join();
  EXPECT_EQ(total, 4 * 50 * 30);
}

#if !defined(__SANITIZE_THREAD__)
TEST_F(ParallelTest, AfterForkTheChildComputesAlone) {
  set_num_threads(4);
  parallel_for(8, 1, [](int64_t, int64_t) {});  // the parent's threads exist
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);  // a hang ends as a signal
    int64_t sum = 0;
    parallel_for(100, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum += i;
    });
    bool ok = sum == 4950 && num_threads() == 1;
    _exit(ok ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(num_threads(), 4);
}

TEST_F(ParallelTest, AskingForThreadsAfterForkIsHarmless) {
  set_num_threads(4);
  parallel_for(8, 1, [](int64_t, int64_t) {});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    set_num_threads(4);
    std::atomic<int64_t> sum{0};
    parallel_for(100, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
    _exit(sum == 100 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}
#endif

TEST(Threads, TheCountIsChecked) {
  EXPECT_THROW(set_num_threads(0), ValueError);
  EXPECT_THROW(set_num_threads(-3), ValueError);
}

TEST(Devices, Names) {
  EXPECT_EQ(device_from_name("cpu"), kCpu);
  EXPECT_EQ(to_string(device_from_name("cuda:3")), "cuda:3");
  for (const char* bad : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "CPU"})
    EXPECT_THROW(device_from_name(bad), ValueError) << bad;
}

}  // namespace
}  // namespace tenor::cpu
