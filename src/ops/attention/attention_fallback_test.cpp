// "fallback": the same contract, out of the library's own operators.
#include <gtest/gtest.h>

#include "src/core/testing.h"
#include "src/ops/attention/attention_reference.h"
#include "src/ops/attention/attention_testing.h"
#include "tenor/tenor.h"

namespace tenor {
namespace {

using testing::expect_close;
using testing::full;
using testing::kInf;
using testing::kNan;
using testing::same_bits;

class AttentionFallback : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Floats, AttentionFallback, ::testing::Values(float64, float32, float16, bfloat16),
                         [](const auto& info) { return std::string(name(info.param)); });

/// Scores and sums are float32 as in the flash strategies, but not in splits.
void check(const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions o) {
  o.strategy = "fallback";
  testing::expect_attention(q, k, v, o, 1e-5);
}

TEST_P(AttentionFallback, MatchesTheReferenceOnRandomProblems) {
  testing::AttentionDraw random(31);
  for (int round = 0; round < 60; ++round) {
    const testing::AttentionProblem p = testing::draw_problem(random, round, GetParam());
    SCOPED_TRACE(::testing::Message() << "round " << round << ": " << p.text());
    check(random.view({p.B, p.Hq, p.Sq, p.D}, GetParam()), random.view({p.B, p.G, p.Sk, p.D}, GetParam()),
          random.view({p.B, p.G, p.Sk, p.Dv}, GetParam()), p.options);
  }
}

TEST_P(AttentionFallback, HiddenKeysNeverReachAResultAndVisibleOnesDo) {
  testing::AttentionDraw random(32);
  const Tensor q = random.dense({1, 2, 9, 8}, GetParam()), k = random.dense({1, 1, 12, 8}, GetParam());
  const Tensor v = random.dense({1, 1, 12, 4}, GetParam());
  for (const double junk : {kNan, kInf, -kInf}) {
    Tensor bad = v.clone();
    fill_(select(select(bad, 2, 6), 2, 1), junk);  // seen by rows 3 and on of the diagonal
    check(q, k, bad, {.causal = true});
    check(q, k, bad, {.mask = ne(arange(0, 12, 1), 6)});
    fill_(select(select(bad, 2, 8), 2, 1), -junk);
    check(q, k, bad, {.causal = true});
    Tensor bad_k = k.clone();
    fill_(select(bad_k, 2, 6), junk);
    check(q, bad_k, v, {.mask = ne(arange(0, 12, 1), 6)});
  }
}

TEST_P(AttentionFallback, RowsWithoutKeys) {
  testing::AttentionDraw random(33);
  const auto make = [&](int64_t rows, int64_t columns) { return random.dense({2, 2, rows, columns}, GetParam()); };
  check(make(5, 4), make(0, 4), make(0, 3), {});
  check(make(7, 4), make(3, 4), make(3, 3), {.causal = true, .sinks = random.dense({2}, float32)});
  check(make(2, 4), make(3, 4), make(3, 3), {.bias = full({3}, float32, -kInf)});
  check(make(2, 4), make(3, 4), make(3, 3), {.bias = full({3}, float32, std::numeric_limits<float>::lowest())});
  check(make(0, 4), make(3, 4), make(3, 3), {});
}

/// Scores of several blocks of rows, and of parts of a batch.
TEST(AttentionFallbackBlocks, MatchTheFlashStrategy) {
  testing::AttentionDraw random(34);
  for (const auto& [B, H, Sq, Sk] :
       {std::tuple<int64_t, int64_t, int64_t, int64_t>{1, 8, 600, 6000}, {5, 64, 1, 70000}}) {
    const Tensor q = random.dense({B, H, Sq, 4}, float32), k = random.dense({B, 1, Sk, 4}, float32);
    const AttentionOptions o{.causal = true, .return_lse = true};
    AttentionOptions named = o;
    named.strategy = "fallback";
    const AttentionResult got = attention(q, k, k, named), want = attention(q, k, k, o);
    EXPECT_LT(amax(abs(sub(got.out, want.out))).item_double(), 1e-5);
    EXPECT_LT(amax(abs(sub(got.lse, want.lse))).item_double(), 1e-5);
  }
}

TEST(AttentionFallbackVarlen, EqualsAttentionOfEachSequence) {
  testing::AttentionDraw random(35);
  const Tensor q = random.dense({20, 4, 8}, bfloat16), k = random.dense({30, 2, 8}, bfloat16);
  const Tensor cq = testing::tensor_of({4}, int32, {0, 7, 7, 18}), ck = testing::tensor_of({4}, int32, {0, 11, 20, 20});
  const AttentionVarlenOptions o{.causal = true, .return_lse = true};
  AttentionVarlenOptions named = o;
  named.strategy = "fallback", named.out = full({20, 4, 8}, bfloat16, kNan),
  named.out_lse = full({20, 4}, float32, kNan);
  const AttentionResult got = attention_varlen(q, k, k, cq, ck, named), want = attention_varlen(q, k, k, cq, ck, o);
  expect_close(got.out, testing::values(want.out), "out", 1, 1e-5);
  expect_close(got.lse, testing::values(want.lse), "lse", 2, 1e-5);
}

TEST(AttentionFallbackOut, MayAliasAnInput) {
  testing::AttentionDraw random(36);
  const Tensor q = random.dense({1, 2, 6, 4}, float32), k = random.dense({1, 2, 6, 4}, float32);
  const Tensor want = attention(q, k, k, {.strategy = "fallback"}).out, into = q.clone();
  attention(into, k, k, {.strategy = "fallback", .out = into});
  EXPECT_TRUE(same_bits(into, want));
}

}  // namespace
}  // namespace tenor
