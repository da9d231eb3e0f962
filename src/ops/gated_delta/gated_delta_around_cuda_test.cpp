// What models put around the rule, on CUDA against the CPU.
#include "src/cuda/testing.h"
#include "src/ops/gated_delta/gated_delta_testing.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using testing::Draw;
using testing::kFloats;
using testing::list;
using testing::on_cpu;
using testing::on_gpu;
using testing::same_bits;
using testing::values;

using GatedDeltaAroundCuda = testing::CudaTest;

/// Layouts that the convolution reads by vectors, and ones next to them; few steps, long rows, taps that it has no
/// window for; states in place.
TEST_F(GatedDeltaAroundCuda, ConvolutionsSideBySideInTimeAndInChannels) {
  Draw draw(16);
  for (DType dtype : {bfloat16, float16, float32})
    for (int64_t taps : {2, 3, 4, 5})
      for (const auto& [steps, channels] : {std::pair{64, 12}, {91, 24}, {1, 8}, {2, 16}, {5000, 4}, {40, 7}})
        for (bool last : {false, true}) {
          const int64_t T = steps, C = channels;
          const Tensor x = last ? swapdims(draw.dense({3, T, C}, dtype), 1, 2) : draw.dense({3, C, T}, dtype),
                       w = draw.view({C, taps}, dtype), b = draw.view({C}, float32),
                       pool = draw.dense({5, C, taps - 1}, dtype), slots = list({4, -1, 1}, int64),
                       kept = list({1, 1, T % 2}, boolean);
          const Tensor there = on_gpu(pool), here = pool.clone();
          CausalConvOptions o{.bias = b, .activation = "silu", .state = here, .state_indices = slots};
          o.has_initial_state = kept;
          const Tensor want = causal_conv1d(x, w, o).y;
          o.bias = on_gpu(b), o.state = there, o.state_indices = on_gpu(slots), o.has_initial_state = on_gpu(kept);
          o.out.y = on_gpu(last ? swapdims(draw.poisoned({3, T, C}, dtype), 1, 2) : draw.poisoned({3, C, T}, dtype));
          const std::string what = std::string(name(dtype)) + " T " + std::to_string(T) + " C " + std::to_string(C) +
                                   " taps " + std::to_string(taps) + (last ? " channels last" : "");
          testing::expect_close(on_cpu(causal_conv1d(on_gpu(x), on_gpu(w), o).y), values(want), what, 2, 1e-5);
          EXPECT_TRUE(same_bits(on_cpu(there), here)) << what;
        }
}

/// Sequences packed where channels lie side by side, one without steps and one shorter than the taps among them.
TEST_F(GatedDeltaAroundCuda, PackedConvolutionsOfChannelsSideBySide) {
  Draw draw(17);
  for (DType dtype : {bfloat16, float32}) {
    const Tensor x = swapdims(draw.dense({1, 300, 20}, dtype), 1, 2), w = draw.view({20, 4}, dtype),
                 s = draw.dense({5, 20, 3}, dtype), cu = list({0, 2, 2, 150, 151, 290}, int32);
    const CausalConvResult want = causal_conv1d(x, w, {.initial_state = s, .cu_seqlens = cu}),
                           got = causal_conv1d(on_gpu(x), on_gpu(w),
                                               {.initial_state = on_gpu(s), .cu_seqlens = on_gpu(cu)});
    testing::expect_close(on_cpu(got.y), values(want.y), "packed", 2, 1e-5);
    EXPECT_TRUE(same_bits(on_cpu(got.final_state), want.final_state));
  }
}

/// Rows that a few lanes hold, and the lengths around them; in place too.
TEST_F(GatedDeltaAroundCuda, NormsOfShortRows) {
  Draw draw(18);
  for (DType dtype : {bfloat16, float16, float32})
    for (int64_t n : {8, 40, 64, 128, 136, 256, 264})
      for (int64_t rows : {1, 17, 1000}) {
        const Tensor x = draw.dense({rows, n}, dtype), gate = draw.dense({rows, n}, dtype),
                     gamma = draw.view({n}, float32), there = on_gpu(x);
        const std::vector<double> want = values(gated_rms_norm(x, gate, gamma));
        const std::string what = std::string(name(dtype)) + " " + std::to_string(rows) + " x " + std::to_string(n);
        testing::expect_close(on_cpu(gated_rms_norm(there, on_gpu(gate), on_gpu(gamma))), want, what, 2);
        testing::expect_close(on_cpu(gated_rms_norm(there, on_gpu(gate), on_gpu(gamma), {.out = there})), want, what,
                              2);
      }
}

TEST_F(GatedDeltaAroundCuda, AroundIsTheCpus) {
  Draw draw(9);
  for (DType dtype : kFloats) {
    const double units = dtype == float64 ? 10 : 2;
    for (bool by_channel : {false, true}) {
      const Tensor a = draw.view(by_channel ? Dims{2, 3, 40, 17} : Dims{2, 3, 40}, dtype),
                   A_log = draw.view({3}, float32), bias = draw.view(by_channel ? Dims{3, 17} : Dims{3}, float32);
      for (const auto& bound : {std::optional<double>(), std::optional<double>(-5)})
        testing::expect_close(on_cpu(gated_delta_gate(on_gpu(a), on_gpu(A_log), on_gpu(bias), {.lower_bound = bound})),
                              values(gated_delta_gate(a, A_log, bias, {.lower_bound = bound})), "gate", 2);
    }
    const Tensor x = draw.view({2, 37, 90}, dtype), w = draw.view({37, 4}, dtype), b = draw.view({37}, float32),
                 s = draw.view({2, 37, 3}, dtype);
    const CausalConvResult want = causal_conv1d(x, w, {.bias = b, .initial_state = s, .activation = "silu"}),
                           got = causal_conv1d(on_gpu(x), on_gpu(w),
                                               {.bias = on_gpu(b), .initial_state = on_gpu(s), .activation = "silu"});
    testing::expect_close(on_cpu(got.y), values(want.y), "conv", units, 1e-5);
    EXPECT_TRUE(same_bits(on_cpu(got.final_state), want.final_state));
    const Tensor packed = draw.view({1, 37, 90}, dtype), cu = list({0, 2, 2, 50}, int64),
                 pool = draw.dense({5, 37, 3}, dtype), slots = list({4, -1, 1}, int64);
    const Tensor there = on_gpu(pool), here = pool.clone();
    const Tensor y = causal_conv1d(packed, w, {.cu_seqlens = cu, .state = here, .state_indices = slots}).y;
    testing::expect_close(
        on_cpu(causal_conv1d(on_gpu(packed), on_gpu(w),
                             {.cu_seqlens = on_gpu(cu), .state = there, .state_indices = on_gpu(slots)})
                   .y),
        values(y), "packed", units, 1e-5);
    EXPECT_TRUE(same_bits(on_cpu(there), here));
    for (int64_t n : {1, 7, 128, 1000}) {
      const Tensor z = draw.view({3, 5, n}, dtype), gate = draw.view({3, 5, n}, dtype), gamma = draw.view({n}, float32);
      testing::expect_close(on_cpu(gated_rms_norm(on_gpu(z), on_gpu(gate), on_gpu(gamma))),
                            values(gated_rms_norm(z, gate, gamma)), "norm", units);
    }
  }
}

}  // namespace
}  // namespace tenor
