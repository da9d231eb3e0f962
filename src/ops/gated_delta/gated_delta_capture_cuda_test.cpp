// The family captured in a CUDA graph. A test of the rules is one form of one kernel, of a few steps: what a checker of
// memory accesses ends within seconds.
#include "src/cuda/capture_testing.h"
#include "src/ops/gated_delta/gated_delta_testing.h"
#include "tenor/gated_delta.h"

namespace tenor {
namespace {

using testing::Draw;
using GatedDeltaCudaCapture = testing::CudaCaptureTest;

struct RuleCase {
  std::string form;
  int64_t chunk;  // 0: step by step
  bool pool;
  DType dtype;
  int64_t key_dim;
  bool by_channel;
};

class GatedDeltaRuleCapture : public testing::CudaCaptureTest, public ::testing::WithParamInterface<RuleCase> {};

std::vector<RuleCase> rule_cases() {
  struct Form {
    const char* name;
    int64_t chunk;
    bool pool;
  };
  std::vector<RuleCase> all;
  for (const Form& form : {Form{"Steps", 0, false},
                           {"StepsInAPool", 0, true},
                           {"ChunksOf16", 16, false},
                           {"Chunks", 64, false},
                           {"ChunksInAPool", 64, true}})
    for (DType dtype : {bfloat16, float16, float32})
      for (int64_t K : {128, 20})
        for (bool by_channel : {false, true})
          all.push_back({std::string(form.name) + "_" + std::string(name(dtype)) + "_K" + std::to_string(K) +
                             (by_channel ? "_ByChannel" : ""),
                         form.chunk, form.pool, dtype, K, by_channel});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Forms, GatedDeltaRuleCapture, ::testing::ValuesIn(rule_cases()),
                         [](const auto& info) { return info.param.form; });

TEST_P(GatedDeltaRuleCapture, Replays) {
  const RuleCase& c = GetParam();
  // Two chunks where they are of 64 steps on the tensor cores; elsewhere two of 16, or a few steps.
  const int64_t B = 2, H = 1, K = c.key_dim, V = 64, T = c.chunk == 0 ? 3 : c.chunk == 64 && K == 128 ? 70 : 18;
  const auto small = [&](const Dims& shape) {
    return input(shape, c.dtype, [&](Draw& draw) { return draw.normal() / std::sqrt(static_cast<double>(K)); });
  };
  const Tensor q = small({B, H, T, K}), k = small({B, H, T, K}), v = normal({B, H, T, V}, c.dtype),
               beta = input({B, H, T}, c.dtype, [](Draw&draw) { return draw.coin() ? 0.5 : 0.25; }),
               g = input(c.by_channel ? Dims{B, H, T, K} : Dims{B, H, T}, float32,
                         [](Draw&draw) { return -0.1 * draw.upto(5); }),
               s = normal({B, H, K, V}), out = result({B, H, T, V}, c.dtype), last = result({B, H, K, V});
  GatedDeltaOptions o;
  o.qk_normalize = c.chunk > 0;
  if (c.pool) {
    o.state = normal({5, H, K, V}), o.has_initial_state = mask({B}), o.out = {out, {}};
    o.state_indices = input({B}, int32, [next = 3](Draw&) mutable { return static_cast<double>(next = 3 - next); });
  } else {
    o.initial_state = s, o.out = {out, last};
  }
  const std::vector<Tensor> outs = c.pool ? std::vector<Tensor>{out, o.state} : std::vector<Tensor>{out, last};
  expect_replays(c.form, outs, [&] {
    if (c.chunk == 0)
      gated_delta_rule(q, k, v, beta, g, o);
    else
      chunk_gated_delta_rule(q, k, v, beta, g, testing::chunk_options(o, c.chunk));
  });
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
