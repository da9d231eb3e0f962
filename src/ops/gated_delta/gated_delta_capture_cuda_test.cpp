// The family captured in a CUDA graph.
#include "src/cuda/capture_testing.h"
#include "tenor/gated_delta.h"

namespace tenor {
namespace {

using testing::Draw;
using GatedDeltaCudaCapture = testing::CudaCaptureTest;

TEST_F(GatedDeltaCudaCapture, Rules) {
  for (DType dtype : {bfloat16, float32})
    for (int64_t K : {128, 20})
      for (bool by_channel : {false, true}) {
        const int64_t B = 2, H = 2, T = 70, V = 64;
        const auto small = [&](const Dims& shape) {
          return input(shape, dtype, [&](Draw& draw) { return draw.normal() / std::sqrt(static_cast<double>(K)); });
        };
        const Tensor q = small({B, H, T, K}), k = small({B, H, T, K}), v = normal({B, H, T, V}, dtype),
                     beta = input({B, H, T}, dtype, [](Draw&draw) { return draw.coin() ? 0.5 : 0.25; }),
                     g = input(by_channel ? Dims{B, H, T, K} : Dims{B, H, T}, float32,
                               [](Draw&draw) { return -0.1 * draw.upto(5); }),
                     s = normal({B, H, K, V}), out = result({B, H, T, V}, dtype), last = result({B, H, K, V}),
                     pool = normal({5, H, K, V}), slots = input({B}, int32, [](Draw&) { return -1.0; }),
                     kept = mask({B});
        const std::string what =
            std::string(name(dtype)) + " K " + std::to_string(K) + (by_channel ? " by channel" : "");
        expect_replays("gated_delta_rule " + what, {out, last}, [&] {
          gated_delta_rule(q, k, v, beta, g, {.initial_state = s, .out = {out, last}});
        });
        expect_replays("gated_delta_rule in a pool " + what, {out}, [&] {
          gated_delta_rule(q, k, v, beta, g,
                           {.state = pool,
                            .state_indices = slots,
                            .has_initial_state = kept,
                            .qk_normalize = true,
                            .out = {out, {}}});
        });
        for (int64_t chunk : {16, 64})
          expect_replays("chunk_gated_delta_rule " + what, {out, last}, [&] {
            chunk_gated_delta_rule(q, k, v, beta, g,
                                   {.initial_state = s, .chunk_size = chunk, .qk_normalize = true, .out = {out, last}});
          });
      }
}

TEST_F(GatedDeltaCudaCapture, Packed) {
  const Tensor q = normal({1, 1, 90, 64}, bfloat16), v = normal({1, 1, 90, 64}, bfloat16),
               beta = normal({1, 1, 90}, bfloat16),
               g = input({1, 1, 90}, float32, [](Draw&draw) { return -0.1 * draw.upto(5); }),
               cu = input({1}, int64, [](Draw&) { return 0.0; }), out = result({1, 1, 90, 64}, bfloat16),
               last = result({0, 1, 64, 64});
  expect_replays("no sequences", {out}, [&] {
    chunk_gated_delta_rule(q, q, v, beta, g, {.cu_seqlens = cu, .qk_normalize = true, .out = {out, last}});
  });
}

TEST_F(GatedDeltaCudaCapture, Around) {
  for (DType dtype : {bfloat16, float32}) {
    const Tensor a = normal({2, 3, 9}, dtype), A_log = normal({3}), bias = normal({3}), g = result({2, 3, 9}),
                 x = normal({2, 33, 20}, dtype), w = normal({33, 4}, dtype), y = result({2, 33, 20}, dtype),
                 last = result({2, 33, 3}, dtype), gate = normal({2, 33, 20}, dtype), gamma = normal({20});
    expect_replays("gated_delta_gate", {g}, [&] { gated_delta_gate(a, A_log, bias, {.out = g}); });
    expect_replays("causal_conv1d", {y, last}, [&] { causal_conv1d(x, w, {.activation = "silu", .out = {y, last}}); });
    expect_replays("gated_rms_norm", {y}, [&] { gated_rms_norm(x, gate, gamma, {.out = y}); });
  }
}

}  // namespace
}  // namespace tenor
