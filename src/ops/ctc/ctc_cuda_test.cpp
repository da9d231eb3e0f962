#include <cuda_runtime_api.h>

#include <algorithm>

#include "src/cuda/testing.h"
#include "src/ops/ctc/ctc_testing.h"

namespace tenor {
namespace {

using CtcCuda = testing::CudaTest;
using testing::CtcShape;
using testing::expect_error;
using testing::kGpu;

TEST_F(CtcCuda, Random) { testing::test_ctc_random(kGpu, testing::kCtcShapes, 4); }
/// Labels of several warps, of several panels (beyond 255), classes beyond shared memory.
TEST_F(CtcCuda, LongLabels) {
  testing::test_ctc_random(kGpu, {{200, 2, 20, 100}, {700, 2, 20, 320, false}, {1500, 1, 5, 600}, {300, 2, 3000, 40}},
                           1);
  testing::CtcDraw draw(21, kGpu);
  for (const CtcShape& s : std::vector<CtcShape>{{20, 2, 40001, 8}, {700, 1, 600, 260}})
    testing::check_ctc(draw, draw.batch(s, float32), kGpu);
}
TEST_F(CtcCuda, Bits) { testing::test_ctc_bits(kGpu); }
TEST_F(CtcCuda, Extremes) { testing::test_ctc_extremes(kGpu); }
TEST_F(CtcCuda, Greedy) { testing::test_ctc_greedy(kGpu); }
TEST_F(CtcCuda, BeamFindsTheBest) { testing::test_ctc_beam_exhaustive(kGpu); }

/// Many samples whose flat targets start anywhere.
TEST_F(CtcCuda, ManySamples) {
  testing::CtcDraw draw(22, kGpu);
  testing::check_ctc(draw, draw.batch({12, 700, 5, 6}, float32), kGpu);
}

/// The CPU and CUDA search alike, bit for bit.
TEST_F(CtcCuda, BeamsAgree) {
  testing::CtcDraw draw(23, kGpu);
  for (int round = 0; round < 40; ++round) {
    const testing::CtcBatch b =
        draw.batch({1 + draw.upto(60), 3, 1 + draw.upto(round % 2 ? 80 : 6), 0, true, 1.5}, float32);
    const Tensor x = testing::tensor_of({b.T, b.N, b.C}, float32, b.log_probs);
    const CtcBeamDecodeOptions options{
        .input_lengths = b.frames, .blank = b.blank, .beam_width = 1 + draw.upto(round < 20 ? 7 : 40)};
    const CtcDecodeResult host = ctc_beam_decode(x, options), device = ctc_beam_decode(x.to(kGpu), options);
    EXPECT_TRUE(testing::same_bits(host.ids, device.ids.to(kCpu).contiguous())) << round;
    EXPECT_TRUE(testing::same_bits(host.lengths, device.lengths.to(kCpu))) << round;
  }
}

/// What arrays hold is found by the kernels: the sample is dropped, the others are as they were, and the flag says
/// what.
TEST_F(CtcCuda, BadContents) {
  const Tensor x = testing::full({3, 2, 4}, float32, std::log(0.25)).to(kGpu);
  const auto loss = [&](const std::vector<double>& targets, const std::vector<double>& frames,
                        const std::vector<double>& counts, bool flat = false) {
    const auto size = static_cast<int64_t>(targets.size());
    return ctc_loss(x, testing::tensor_of(flat ? Dims{size} : Dims{2, size / 2}, int64, targets).to(kGpu),
                    testing::list(frames, int64).to(kGpu), testing::list(counts, int32).to(kGpu),
                    {.reduction = "none", .return_grad = true});
  };
  const auto flagged = [&](const std::string& text, const CtcLossResult& got, bool second_too = false) {
    cudaDeviceSynchronize();
    const auto found = take_error(kGpu);
    ASSERT_TRUE(found.has_value()) << text;
    EXPECT_EQ(*found, text);
    const std::vector<double> losses = testing::values(got.loss.to(kCpu)), g = testing::values(got.gradient.to(kCpu));
    if (second_too) return;
    EXPECT_EQ(losses[0], 0);
    EXPECT_NEAR(losses[1], 3 * std::log(4.0) - std::log(5.0), 1e-5);
    for (int t = 0; t < 3; ++t)
      for (int c = 0; c < 4; ++c) EXPECT_EQ(g[static_cast<size_t>(t * 8 + c)], 0);
    EXPECT_NEAR(g[4 + 1], 0.25 - 0.8, 1e-6);
  };
  flagged("ctc_loss: targets holds 4 at position 1, which is out of range", loss({1, 4, 1, 2}, {3, 3}, {2, 2}));
  flagged("ctc_loss: targets holds -1 at position 0, which is out of range", loss({-1, 2, 1, 2}, {3, 3}, {2, 2}));
  flagged("ctc_loss: input_lengths holds 4 at position 0, which is out of range", loss({1, 2, 1, 2}, {4, 3}, {2, 2}));
  flagged("ctc_loss: target_lengths holds -2 at position 0, which is out of range",
          loss({1, 2, 1, 2}, {3, 3}, {-2, 2}));
  flagged("ctc_loss: targets must hold as many labels as target_lengths add up to, 4, got 5",
          loss({1, 2, 1, 2, 3}, {3, 3}, {2, 2}, true), true);
  loss({1, 4, 1, 2}, {3, 3}, {2, 2});
  EXPECT_THROW(synchronize(kGpu), IndexError);
  loss({1, 2, 1, 2}, {4, 3}, {2, 2});
  EXPECT_THROW(synchronize(kGpu), ValueError);
  loss({1, 2, 1}, {3, 3}, {2, 2}, true);
  EXPECT_THROW(synchronize(kGpu), ShapeError);
  ctc_greedy_decode(x, {.input_lengths = testing::list({3, 9}, int64).to(kGpu)});
  EXPECT_THROW(synchronize(kGpu), ValueError);
  // Numbers are checked at once.
  const Tensor targets = testing::full({2, 2}, int64, 1).to(kGpu);
  expect_error<ValueError>(
      [&] {
        ctc_loss(x, targets, {4, 3}, {2, 2});
      },
      "ctc_loss: input_lengths must be 0 to 3, got 4 at 0");
  expect_error<DeviceError>(
      [&] {
        ctc_loss(x, targets.to(kCpu), {3, 3}, {2, 2});
      },
      "ctc_loss: targets is on cpu, but log_probs is on cuda:0");
  EXPECT_NO_THROW(synchronize(kGpu));
}

/// Rows beyond 2^31 elements: the last sample's frames lie there.
TEST_F(CtcCuda, BeyondInt32) {
  const int64_t T = 3, N = 3, C = int64_t{240} << 20;  // 2.3e9 elements, 4.2 GiB of bfloat16
  size_t free = 0, all = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &all), cudaSuccess);
  if (free < (size_t{12} << 30)) GTEST_SKIP() << "needs 12 GiB of device memory";
  const Tensor x = Tensor::empty({T, N, C}, bfloat16, kGpu);
  cudaMemset(x.raw(), 0x80, static_cast<size_t>(x.numel()) * 2);  // about -1e-38: every class e^0
  const Tensor targets = testing::tensor_of({N, 1}, int64, {1, 2, static_cast<double>(C - 1)}).to(kGpu);
  const CtcLossResult r = ctc_loss(x, targets, {T, T, T}, {1, 1, 1}, {.reduction = "none", .return_grad = true});
  for (double loss : testing::values(r.loss.to(kCpu))) EXPECT_NEAR(loss, -std::log(6.0), 0.01);  // six alignments
  const Tensor last = r.gradient.with_layout({T, 3}, {r.gradient.stride(0), 1}, r.gradient.offset() + 3 * C - 3);
  const std::vector<double> g = testing::values(last.to(kCpu));
  for (int64_t t = 0; t < T; ++t) {
    EXPECT_EQ(g[static_cast<size_t>(3 * t)], 1);
    EXPECT_NEAR(g[static_cast<size_t>(3 * t + 2)], 1 - (t == 1 ? 4 : 3) / 6.0, 0.004);
  }
}

}  // namespace
}  // namespace tenor
