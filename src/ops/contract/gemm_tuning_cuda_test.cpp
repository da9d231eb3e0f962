// Autotuning of contractions on CUDA: what is measured, kept, taken, and when nothing is.
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "src/core/tuning_testing.h"
#include "src/cuda/testing.h"
#include "src/ops/contract/gemm.h"
#include "tenor/autotune.h"
#include "tenor/contract.h"
#include "tenor/elementwise.h"
#include "tenor/modes.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using testing::kGpu;

class GemmTuningCuda : public testing::CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    fresh_.emplace();
    folder_ = fresh_->folder();
  }
  std::optional<testing::FreshTuning> fresh_;
  std::string folder_;
};

Tensor drawn(Dims shape, DType dtype = bfloat16) {
  testing::Draw draw(3);
  return testing::on_gpu(draw.dense(shape, dtype));
}

TEST_F(GemmTuningCuda, EveryCandidateThatTakesAProblemIsTimedOnce) {
  const Tensor x = drawn({8, 4096}), w = drawn({4096, 4096});
  const Tensor first = matmul(x, w);
  const std::vector<core::Tuning> kept = core::tunings();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].machine, core::tuning_machine(kGpu));
  EXPECT_NE(kept[0].machine.find("cuBLASLt"), std::string::npos) << kept[0].machine;
  EXPECT_NE(kept[0].machine, core::tuning_machine(kCpu));
  EXPECT_GE(kept[0].microseconds.size(), 2u);
  for (const auto& [name, us] : kept[0].microseconds) {
    std::printf("%s %.1f us%s\n", name.c_str(), us, name == kept[0].winner ? ", taken" : "");
    EXPECT_GT(us, 8.0) << "32 MiB of weights cannot be read faster";
    EXPECT_LT(us, 2000.0);
    EXPECT_NE(name, "simple");
  }
  matmul(x, w);
  EXPECT_EQ(core::tunings().size(), 1u);
  autotune(false);
  const std::vector<double> got = testing::values(testing::on_cpu(first)),
                            plain = testing::values(testing::on_cpu(matmul(x, w)));
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::abs(got[i] - plain[i]), 0.05 + std::abs(plain[i]) / 128) << i;  // other orders, rounded to bfloat16
}

TEST_F(GemmTuningCuda, WhatIsRememberedIsTaken) {
  const Tensor x = drawn({256, 512}), w = drawn({512, 256});
  matmul(x, w);
  const core::Tuning kept = core::tunings().at(0);
  for (const auto& [name, us] : kept.microseconds) {
    core::remember_tuning(kept.op, kept.problem, {{name, 1.0}}, kGpu);
    contract::StrategyGuard auto_guard("auto");
    const Tensor taken = testing::on_cpu(matmul(x, w));
    contract::StrategyGuard forced(name);
    EXPECT_TRUE(testing::same_bits(taken, testing::on_cpu(matmul(x, w)))) << name;
  }
}

TEST_F(GemmTuningCuda, ProblemsThatDifferInSpeedAreToldApart) {
  const Tensor x = drawn({64, 512}), w = drawn({512, 256});
  matmul(x, w);
  matmul(x, transpose(drawn({256, 512}), 0, 1));                        // another order
  matmul(x.with_layout({64, 511}, {512, 1}, 1), narrow(w, 0, 0, 511));  // not at 16 bytes
  EXPECT_EQ(core::tunings().size(), 3u);
}

TEST_F(GemmTuningCuda, NothingIsMeasuredWhileTheStreamIsCaptured) {
  const Tensor x = drawn({128, 512}), w = drawn({512, 256}), out = Tensor::empty({128, 256}, bfloat16, kGpu);
  autotune(false);
  matmul(x, w, {.out = out});  // plans and modules
  const Tensor wanted = testing::on_cpu(out);
  autotune(true);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  {
    const StreamGuard guard(stream);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t runnable = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    matmul(x, w, {.out = out});
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_TRUE(core::tunings().empty());
    fill_(out, 0);
    ASSERT_EQ(cudaGraphInstantiate(&runnable, graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(runnable, stream), cudaSuccess);
    synchronize(kGpu);
    EXPECT_TRUE(testing::same_bits(testing::on_cpu(out), wanted));
    cudaGraphExecDestroy(runnable);
    cudaGraphDestroy(graph);
  }
  cudaStreamDestroy(stream);
}

TEST_F(GemmTuningCuda, BatchInvariantCallsAreNotTuned) {
  const BatchInvariantGuard guard;
  matmul(drawn({64, 512}), drawn({512, 256}));
  EXPECT_TRUE(core::tunings().empty());
}

TEST_F(GemmTuningCuda, ACorruptFileIsIgnoredWithAWarning) {
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ + "/tuning.json") << "{\"entries\": [";
  setenv("TENOR_CACHE_DIR", (folder_ + "-other").c_str(), 1);
  core::tunings();
  setenv("TENOR_CACHE_DIR", folder_.c_str(), 1);  // read anew
  ::testing::internal::CaptureStderr();
  matmul(drawn({64, 512}), drawn({512, 256}));
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("is no tuning table"), std::string::npos);
  EXPECT_EQ(core::tunings().size(), 1u);
}

}  // namespace
}  // namespace tenor
