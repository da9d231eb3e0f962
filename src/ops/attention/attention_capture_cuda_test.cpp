// Attention captured in a CUDA graph, by every strategy and with every operand: small shapes, which the sanitizers run.
#include "src/cuda/capture_testing.h"
#include "src/ops/attention/attention_cuda_testing.h"
#include "tenor/attention.h"

namespace tenor {
namespace {

using AttentionCudaCapture = testing::CudaCaptureTest;

TEST_F(AttentionCudaCapture, Dense) {
  const int64_t B = 2, H = 4, G = 2, Sq = 70, Sk = 133;
  for (DType dtype : {bfloat16, float32})
    for (int64_t D : {64, 128, 36}) {
      const Tensor q = normal({B, H, Sq, D}, dtype), k = normal({B, G, Sk, D}, dtype), v = normal({B, G, Sk, D}, dtype),
                   bias = normal({B, 1, Sq, Sk}, dtype), allowed = mask({1, H, Sq, Sk}), sinks = normal({H}),
                   out = result({B, H, Sq, D}, dtype), lse = result({B, H, Sq});
      for (const std::string& strategy : testing::strategies_for(dtype, D, D)) {
        const std::string what = strategy + " " + std::string(name(dtype)) + " D" + std::to_string(D);
        expect_replays("attention " + what, {out},
                       [&] { attention(q, k, v, {.causal = true, .strategy = strategy, .out = out}); });
        expect_replays("attention with every option " + what, {out, lse}, [&] {
          attention(q, k, v,
                    {.mask = allowed,
                     .bias = bias,
                     .causal = true,
                     .window = {60, -1},
                     .softcap = 20.0,
                     .sinks = sinks,
                     .strategy = strategy,
                     .return_lse = true,
                     .out = out,
                     .out_lse = lse});
        });
      }
    }
}

TEST_F(AttentionCudaCapture, RaggedAndMerged) {
  const int64_t T = 150, H = 4, G = 2, D = 64;
  for (DType dtype : {bfloat16, float32}) {
    const Tensor q = normal({T, H, D}, dtype), k = normal({T, G, D}, dtype), v = normal({T, G, D}, dtype),
                 out = result({T, H, D}, dtype), lse = result({T, H}),
                 offsets = input({4}, int32, [n = 0](testing::Draw&draw) mutable {
                   const int64_t at[] = {0, draw.upto(60), 60 + draw.upto(30), 150};
                   return static_cast<double>(at[n++ % 4]);
                 });
    for (const std::string& strategy : testing::flash_strategies_for(dtype, D, D))
      expect_replays("attention_varlen " + strategy + " " + std::string(name(dtype)), {out, lse}, [&] {
        attention_varlen(q, k, v, offsets, offsets,
                         {.causal = true, .strategy = strategy, .return_lse = true, .out = out, .out_lse = lse});
      });
    const Tensor a = normal({2, H, 30, D}, dtype), b = normal({2, H, 30, D}, dtype), la = normal({2, H, 30}),
                 lb = normal({2, H, 30}), merged = result({2, H, 30, D}, dtype), both = result({2, H, 30});
    expect_replays("merge_states " + std::string(name(dtype)), {merged, both},
                   [&] { merge_states(a, la, b, lb, {.out = merged, .out_lse = both}); });
  }
}

}  // namespace
}  // namespace tenor
