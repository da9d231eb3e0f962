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

/// fn(seed) for seeds from `first` on, on some threads, as long as there is time. Gives how many were asked.
template <class Fn>
int for_seeds(int first, int programs, unsigned threads, std::chrono::steady_clock::time_point end, Fn fn) {
  std::atomic<int> next{first};
  const auto run = [&] {
    for (int seed; std::chrono::steady_clock::now() < end && (seed = next++) < first + programs;) try {
        fn(seed);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "seed " << seed << ": " << e.what();
      }
  };
  std::vector<std::thread> all;
  for (unsigned t = 1; t < threads; ++t) all.emplace_back(run);
  run();
  for (std::thread& t : all) t.join();
  return std::min(next.load(), first + programs) - first;
}

/// TENOR_FUSE_CUDA_PROGRAMS of them, or as many as are compiled within TENOR_FUSE_SECONDS.
TEST_F(FuseRandomCuda, FusedEqualsUnfused) {
  const int programs = from_environment("TENOR_FUSE_CUDA_PROGRAMS", 60), first = from_environment("TENOR_FUSE_SEED", 1),
            seconds = from_environment("TENOR_FUSE_SECONDS", 3600);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  const auto on_gpu = [](const Tensor& x) { return testing::on_gpu(x); };
  // Compiling takes the time: all threads do it first. Several processes may do so too, with seeds of their own.
  const int threads = from_environment("TENOR_FUSE_THREADS", std::min(16u, std::thread::hardware_concurrency()));
  const int compiled = for_seeds(first, programs, static_cast<unsigned>(threads), end, [&](int seed) {
    FusedFunction(program_of(seed)).kernels(placed_inputs(seed, on_gpu));
  });
  int ran = 0, kernels = 0;
  for_seeds(first, compiled, 1, std::chrono::steady_clock::time_point::max(),
            [&](int seed) { ran += expect_same(seed, on_gpu, kernels); });
  EXPECT_GT(ran, compiled / 2);
  EXPECT_GT(kernels, compiled / 4);
  std::printf("%d programs, %d kernels of several steps\n", ran, kernels);
}

}  // namespace
}  // namespace tenor
