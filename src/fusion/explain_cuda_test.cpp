// explain() on a CUDA device: its own candidates, and times by events.
#include <cuda_runtime_api.h>

#include <cstdio>

#include "src/cuda/testing.h"
#include "tenor/explain.h"
#include "tenor/tenor.h"

namespace tenor {
namespace {

using testing::kGpu;
class ExplainCuda : public testing::CudaTest {};

Tensor shaped(Dims shape, DType dtype) { return Tensor::empty(std::move(shape), dtype, {DeviceType::kMeta}); }

const auto kSquare = [](const std::vector<Tensor>& x) { return std::vector<Tensor>{mul(x[0], x[0])}; };

TEST_F(ExplainCuda, ADevicesArraysAreExplainedThere) {
  const Explanation e = explain(kSquare, {zeros({1024, 1024}, {.device = kGpu})});
  EXPECT_EQ(e.device, "cuda:0");
  EXPECT_NE(e.device_source.find("NVIDIA"), std::string::npos) << e.device_source;
  EXPECT_EQ(e.limits.at(0).source, "measured");
  EXPECT_GT(e.limits.at(0).value, 1e11);
}

TEST_F(ExplainCuda, LimitsAreThoseOfAGpu) {
  const DeviceLimits l = device_limits(kGpu);
  EXPECT_GT(l.copy_bytes, 3e11);
  EXPECT_GT(l.float32_flops, 5e12);
  EXPECT_GT(l.bfloat16_flops, l.float32_flops);
  std::printf("limits: copy %.0f read %.0f GB/s, float32 %.1f, bfloat16 %.0f TFLOP/s\n", l.copy_bytes / 1e9,
              l.memory[0].read_bytes / 1e9, l.float32_flops / 1e12, l.bfloat16_flops / 1e12);
}

TEST_F(ExplainCuda, ItsCandidatesSayWhatTheyTake) {
  const auto product = [](const std::vector<Tensor>& x) { return std::vector<Tensor>{matmul(x[0], x[1])}; };
  const std::vector<Tensor> in{shaped({8, 4096}, bfloat16), shaped({4096, 4096}, bfloat16)};
  const Explanation e = explain(product, in, {.device = "cuda"});
  EXPECT_EQ(e.kernels.at(0).strategy, "rows");
}

TEST_F(ExplainCuda, MeasuringTakesTheMedianByEvents) {
  constexpr int64_t kRows = 8192, kCols = 8192;  // 512 MiB moved: beyond the L2 cache
  const Tensor x = full({kRows, kCols}, 2.0, {.device = kGpu});
  const auto twice = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{mul_(in[0], 1.5), transpose(in[0], 0, 1)};
  };
  const Explanation e = explain(twice, {x}, {.measure = true});
  const Explanation::Step& s = e.steps.at(0);
  std::printf("mul_ of 256 MiB: %.1f us, %.0f%% of the limit\n", s.time_us, 100 * s.share);
  EXPECT_GT(s.share, 0.5) << s.time_us;
  EXPECT_LT(s.share, 1.06) << "faster than memory: the L2 cache was warm, or the clock did not wait for the device";
  EXPECT_EQ(e.steps.at(1).time_us, 0) << "a view runs nothing";
  EXPECT_EQ(x.to(kCpu).data<float>()[0], 2) << "measured on a copy";
  ASSERT_FALSE(e.remarks.empty());
  EXPECT_NE(e.remarks[0].find("events on the current stream"), std::string::npos);
}

TEST_F(ExplainCuda, AStepReadsFromMemoryWhatTheOneBeforeLeftInTheCache) {
  const auto chain = [](const std::vector<Tensor>& x) { return std::vector<Tensor>{add(add(x[0], 1.0), 1.0)}; };
  const Explanation e =
      explain(chain, {shaped({2048, 1024}, float32)}, {.device = "cuda", .measure = true});  // 8 MiB each
  std::printf("add of 8 MiB: %.2f and %.2f us, floor %.2f us\n", e.steps[0].time_us, e.steps[1].time_us,
              e.steps[0].floor_us);
  for (const Explanation::Step& s : e.steps) {
    EXPECT_GT(s.time_us, s.floor_us) << "the cache was warm";
    EXPECT_LT(s.time_us, 6 * s.floor_us) << "the device waited for the host";
  }
}

TEST_F(ExplainCuda, ProductsAreMeasuredOnRandomNumbers) {
  const auto product = [](const std::vector<Tensor>& x) { return std::vector<Tensor>{matmul(x[0], x[1])}; };
  const std::vector<Tensor> in{shaped({8192, 4096}, bfloat16), shaped({4096, 8192}, bfloat16)};
  const Explanation e = explain(product, in, {.device = "cuda", .measure = true});
  std::printf("matmul %s: %.1f us, %.0f%% of the limit\n", e.kernels[0].strategy.c_str(), e.steps[0].time_us,
              100 * e.steps[0].share);
  EXPECT_GT(e.steps[0].share, 0.4);
  EXPECT_LT(e.steps[0].share, 1.1);
}

TEST_F(ExplainCuda, TheCurrentStreamIsTimed) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  {
    const StreamGuard guard(stream);
    const Explanation e = explain(kSquare, {shaped({4096, 4096}, float32)}, {.device = "cuda", .measure = true});
    EXPECT_GT(e.steps[0].share, 0.5);
    EXPECT_LT(e.steps[0].share, 1.06);
  }
  cudaStreamDestroy(stream);
}

TEST_F(ExplainCuda, AnIndexOutOfRangeIsAnErrorOfTheMeasurement) {
  const Tensor index = full({4}, 100, {.dtype = int64, .device = kGpu});
  const auto read = [](const std::vector<Tensor>& x) { return std::vector<Tensor>{embedding(x[0], x[1])}; };
  EXPECT_THROW(explain(read, {index, shaped({8, 8}, float32)}, {.measure = true}), IndexError);
}

}  // namespace
}  // namespace tenor
