// Autotuning of attention on CUDA.
#include "src/core/tuning_testing.h"
#include "src/ops/attention/attention_cuda_testing.h"
#include "tenor/modes.h"

namespace tenor {
namespace {

using namespace testing;
using AttentionTuningCuda = CudaTest;

TEST_F(AttentionTuningCuda, TheFastestStrategyIsRememberedAndTaken) {
  const FreshTuning fresh;
  AttentionDraw random(23);
  const Operands x = draw(random, bfloat16, 1, 4, 2, 70, 130, 32, 32);
  const Tensor q = on_gpu(x.q), k = on_gpu(x.k), v = on_gpu(x.v);
  attention(q, k, v, {.causal = true});
  const std::vector<core::Tuning> kept = core::tunings();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].op, "attention");
  ASSERT_EQ(kept[0].microseconds.size(), 2u) << "both strategies for CUDA take this";
  for (const auto& [name, us] : kept[0].microseconds) EXPECT_GT(us, 0) << name;
  for (const std::string strategy : {"flash_unit", "flash_tensorcore"}) {
    core::remember_tuning("attention", kept[0].problem, {{strategy, 1.0}}, kGpu);
    EXPECT_TRUE(same_bits(on_cpu(attention(q, k, v, {.causal = true}).out),
                          on_cpu(attention(q, k, v, {.causal = true, .strategy = strategy}).out)))
        << strategy;
  }
  attention(q, k, v, {});
  EXPECT_EQ(core::tunings().size(), 2u) << "another problem";
  const BatchInvariantGuard invariant;
  attention(q, k, v, {.window = {3, -1}});
  EXPECT_EQ(core::tunings().size(), 2u) << "nothing is measured where bits must not depend on it";
}

}  // namespace
}  // namespace tenor
