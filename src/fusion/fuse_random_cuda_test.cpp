// The random programs on CUDA, where every kernel is compiled: some on each thread.
#include <atomic>
#include <chrono>
#include <thread>

#include "src/cuda/nvrtc.h"
#include "src/cuda/testing.h"
#include "src/fusion/random_programs.h"

namespace tenor {
namespace {

using namespace random_programs;

class FuseRandomCuda : public testing::CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && !cuda::why_no_nvrtc().empty()) GTEST_SKIP() << cuda::why_no_nvrtc();
  }
};

/// TENOR_FUSE_CUDA_PROGRAMS of them, or as many as start within TENOR_FUSE_SECONDS.
TEST_F(FuseRandomCuda, FusedEqualsUnfused) {
  const int programs = from_environment("TENOR_FUSE_CUDA_PROGRAMS", 60), first = from_environment("TENOR_FUSE_SEED", 1),
            seconds = from_environment("TENOR_FUSE_SECONDS", 3600);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  std::atomic<int> next{first}, ran{0}, kernels{0};
  const auto run = [&] {
    for (int seed = next++; seed < first + programs && std::chrono::steady_clock::now() < end; seed = next++) {
      int made = 0;
      ran += expect_same(seed, [](const Tensor& x) { return testing::on_gpu(x); }, made);
      kernels += made;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::min(16u, std::thread::hardware_concurrency()); ++t) threads.emplace_back(run);
  for (std::thread& t : threads) t.join();
  EXPECT_GT(ran, 0);
  EXPECT_GT(kernels, 0);
  std::printf("%d programs, %d kernels of several steps\n", ran.load(), kernels.load());
}

}  // namespace
}  // namespace tenor
