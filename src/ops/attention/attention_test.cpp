#include "tenor/attention.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <functional>
#include <limits>

#include "hwy/highway.h"
#include "src/core/registry.h"
#include "src/core/testing.h"
#include "src/ops/attention/attention_problem.h"
#include "src/ops/attention/attention_reference.h"
#include "src/ops/attention/attention_testing.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using testing::expect_close;
using testing::full;
using testing::kInf;
using testing::kNan;
using testing::same_bits;

Tensor filled(const Dims& shape, DType dtype, const std::function<double(int64_t)>& value) {
  std::vector<double> elements;
  for (int64_t i = 0; i < product(shape); ++i) elements.push_back(value(i));
  return testing::tensor_of(shape, dtype, elements);
}

class Random : public testing::AttentionDraw {
 public:
  using AttentionDraw::AttentionDraw;
  Tensor normal(const Dims& shape, DType dtype) { return dense(shape, dtype); }
};

/// One rounding for 16 bits; what is left of a few thousand float32 operations otherwise.
void expect_values(const Tensor& got, const std::vector<double>& want, const std::string& what) {
  expect_close(got, want, what, item_size(got.dtype()) == 2 ? 0.5 : 2, 4e-6);
}

void check(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  testing::expect_attention(q, k, v, o, 4e-6);
}

class AttentionOfDType : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Floats, AttentionOfDType, ::testing::Values(float64, float32, float16, bfloat16),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(AttentionOfDType, MatchesTheReferenceOnRandomProblems) {
  Random random(1);
  for (int round = 0; round < 60; ++round) {
    const testing::AttentionProblem p = testing::draw_problem(random, round, GetParam());
    SCOPED_TRACE(::testing::Message() << "round " << round << ": " << p.text());
    check(random.normal({p.B, p.Hq, p.Sq, p.D}, GetParam()), random.normal({p.B, p.G, p.Sk, p.D}, GetParam()),
          random.normal({p.B, p.G, p.Sk, p.Dv}, GetParam()), p.options);
  }
}

TEST_P(AttentionOfDType, MatchesTheReferenceOverSeveralSplits) {
  Random random(2);
  const Tensor q = random.normal({1, 2, 3, 8}, GetParam()), k = random.normal({1, 1, 2500, 8}, GetParam());
  const Tensor v = random.normal({1, 1, 2500, 5}, GetParam());
  check(q, k, v, {});
  check(q, k, v, {.window = {1100, 0}});
  check(q, k, v, {.causal = Causal::kTopLeft});
}

// Head sizes that a matrix unit takes.
TEST_P(AttentionOfDType, MatchesTheReferenceOnWholeTiles) {
  Random random(15);
  for (const int64_t D : {32, 64, 128})
    for (const auto& [Sq, Sk, Dv] :
         {std::tuple<int64_t, int64_t, int64_t>{1, 40, D}, {17, 65, 16}, {33, 33, 80}, {100, 130, 5}}) {
      SCOPED_TRACE(::testing::Message() << "D" << D << " Sq" << Sq << " Sk" << Sk << " Dv" << Dv);
      const Tensor q = random.normal({2, 4, Sq, D}, GetParam()), k = random.normal({2, 2, Sk, D}, GetParam());
      const Tensor v = random.normal({2, 2, Sk, Dv}, GetParam());
      check(q, k, v, {});
      check(q, k, v, {.mask = random.mask({2, 1, 1, Sk}, 0.6), .causal = true, .softcap = 5.0});
      check(transpose(q, 0, 0), slice(random.normal({2, 2, Sk, 2 * D}, GetParam()), 3, 0, 2 * D, 2), v,
            {.window = {20, 0}});
    }
}

TEST_P(AttentionOfDType, ReadsAnyStridesAndKeepsTheirOrder) {
  Random random(3);
  const Tensor q = transpose(random.normal({2, 7, 4, 6}, GetParam()), 1, 2);       // [B, S, H, D] seen as [B, H, S, D]
  const Tensor k = slice(random.normal({2, 2, 19, 12}, GetParam()), 3, 0, 12, 2);  // every other column
  const Tensor v = expand(transpose(random.normal({1, 1, 10, 19}, GetParam()), 2, 3), {2, 2, 19, 10});
  const AttentionResult got = attention(q, k, v, {.causal = true, .return_lse = true});
  const reference::Attention want = reference::attention(q, k, v, {.causal = true});
  expect_values(got.out, want.out, "out");
  expect_values(got.lse, want.lse, "lse");
  EXPECT_TRUE(transpose(got.out, 1, 2).is_contiguous());
  EXPECT_TRUE(got.lse.is_contiguous());
}

TEST_P(AttentionOfDType, WritesOutOfAnyStrides) {
  Random random(4);
  const Tensor q = random.normal({1, 3, 5, 4}, GetParam()), k = random.normal({1, 3, 9, 4}, GetParam());
  const Tensor v = random.normal({1, 3, 9, 6}, GetParam());
  const Tensor want = attention(q, k, v).out;
  const Tensor wide = full({1, 3, 5, 12}, GetParam(), 7);
  attention(q, k, v, {.out = slice(wide, 3, 0, 12, 2)});
  EXPECT_TRUE(same_bits(slice(wide, 3, 0, 12, 2), want));
  EXPECT_TRUE(same_bits(slice(wide, 3, 1, 12, 2), full({1, 3, 5, 6}, GetParam(), 7)));
}

class AttentionBits : public ::testing::TestWithParam<std::tuple<DType, int64_t>> {};
INSTANTIATE_TEST_SUITE_P(HeadSizes, AttentionBits,
                         ::testing::Combine(::testing::Values(float64, float32, float16, bfloat16),
                                            ::testing::Values(24, 64)));

TEST_P(AttentionBits, OfARowDependOnItselfAlone) {
  Random random(5);
  const auto [dtype, D] = GetParam();
  const Tensor q = random.normal({3, 4, 130, D}, dtype), k = random.normal({3, 2, 1400, D}, dtype);
  const Tensor v = random.normal({3, 2, 1400, 40}, dtype);
  const AttentionOptions o{.causal = true, .softcap = 3.0};
  const Tensor all = attention(q, k, v, o).out;
  const auto part = [](const Tensor& x, int64_t b) { return narrow(x, 0, b, 1); };
  EXPECT_TRUE(same_bits(attention(part(q, 1), part(k, 1), part(v, 1), o).out, part(all, 1))) << "alone in the batch";
  // The last rows of the sequence alone, as a decode step asks for them, down to one head.
  for (const int64_t rows : {1, 2, 5, 64}) {
    const Tensor last = narrow(part(q, 2), 2, 130 - rows, rows);
    EXPECT_TRUE(same_bits(attention(last, part(k, 2), part(v, 2), o).out, narrow(part(all, 2), 2, 130 - rows, rows)))
        << rows << " rows";
    const Tensor head =
        attention(narrow(last, 1, 3, 1), narrow(part(k, 2), 1, 1, 1), narrow(part(v, 2), 1, 1, 1), o).out;
    EXPECT_TRUE(same_bits(head, narrow(narrow(part(all, 2), 2, 130 - rows, rows), 1, 3, 1)))
        << rows << " rows of one head";
  }
  for (const int count : {1, 2, 5}) {
    const testing::Threads threads(count);
    EXPECT_TRUE(same_bits(attention(q, k, v, o).out, all)) << count << " threads";
  }
}

TEST_P(AttentionOfDType, HiddenKeysNeverReachAResult) {
  Random random(6);
  for (const int64_t D : {8, 32}) {
    const Tensor q = random.normal({1, 2, 70, D}, GetParam()), k = random.normal({1, 1, 90, D}, GetParam());
    const Tensor v = random.normal({1, 1, 90, 8}, GetParam());
    const AttentionOptions causal{.causal = true}, masked{.mask = random.mask({90}, 0.5)};
    const Tensor clean_causal = attention(q, k, v, causal).out, clean_masked = attention(q, k, v, masked).out;
    Tensor bad_k = k.clone(), bad_v = v.clone();
    core::visit_float(GetParam(), [&]<class T>() {
      const double junk[] = {kNan, kInf, -kInf};
      for (int64_t j = 0; j < 90; ++j) {
        if (reference::at(masked.mask, {j}) != 0) continue;
        bad_k.data<T>()[j * D + j % D] = core::cast<T>(junk[j % 3]);
        bad_v.data<T>()[j * 8 + 3] = core::cast<T>(junk[(j + 1) % 3]);
      }
    });
    EXPECT_TRUE(same_bits(attention(q, bad_k, bad_v, masked).out, clean_masked));
    // Row i sees keys up to i + 20.
    Tensor late_k = k.clone(), late_v = v.clone();
    core::visit_float(GetParam(), [&]<class T>() {
      late_k.data<T>()[80 * D] = core::cast<T>(kNan);
      late_v.data<T>()[80 * 8 + 5] = core::cast<T>(kInf);
    });
    const Tensor got = attention(q, late_k, late_v, causal).out;
    EXPECT_TRUE(same_bits(narrow(got, 2, 0, 60), narrow(clean_causal, 2, 0, 60)));
    EXPECT_TRUE(std::isnan(reference::at(got, {0, 0, 60, 0})));
  }
}

TEST_P(AttentionOfDType, VisibleNanAndInfinityPropagate) {
  Random random(7);
  for (const int64_t D : {8, 32}) {
    const Tensor q = random.normal({1, 1, 4, D}, GetParam()), k = random.normal({1, 1, 9, D}, GetParam());
    for (const double junk : {kNan, kInf, -kInf}) {
      Tensor v = random.normal({1, 1, 9, 8}, GetParam());
      core::visit_float(GetParam(), [&]<class T>() { v.data<T>()[3 * 8 + 2] = core::cast<T>(junk); });
      check(q, k, v, {});
    }
    Tensor bad_q = q.clone();
    core::visit_float(GetParam(), [&]<class T>() { bad_q.data<T>()[D] = core::cast<T>(kNan); });
    check(bad_q, k, random.normal({1, 1, 9, 8}, GetParam()), {});
  }
}

TEST_P(AttentionOfDType, AKeyOfMinusInfiniteScoreIsHidden) {
  Random random(21);
  for (const int64_t D : {8, 32}) {
    Tensor q = full({1, 2, 5, D}, GetParam(), 0.25), k = random.normal({1, 1, 90, D}, GetParam()),
           v = random.normal({1, 1, 90, 8}, GetParam());
    core::visit_float(GetParam(), [&]<class T>() {
      for (const int64_t key : {0, 40, 89}) {
        for (int64_t d = 0; d < D; ++d) k.data<T>()[key * D + d] = core::cast<T>(-kInf);
        v.data<T>()[key * 8 + 2] = core::cast<T>(key == 40 ? kInf : kNan);
      }
    });
    check(q, k, v, {});
    check(q, k, v, {.causal = true});
  }
}

TEST(Attention, MatchesTheReferenceOnEveryInstructionSet) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    Random random(16);
    for (const DType dtype : {float64, float32, float16, bfloat16}) {
      const Tensor q = random.normal({1, 4, 21, 32}, dtype), k = random.normal({1, 2, 71, 32}, dtype);
      const Tensor v = random.normal({1, 2, 71, 19}, dtype);
      check(q, k, v,
            {.mask = random.mask({71}, 0.8), .bias = random.normal({21, 71}, dtype), .causal = true, .softcap = 2.0});
      Tensor junk = v.clone();
      core::visit_float(dtype, [&]<class T>() { junk.data<T>()[3] = core::cast<T>(kNan); });
      check(q, k, junk, {.window = {30, 0}});
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// One block and many threads: its splits are shared out, with the bits of one thread.
TEST_P(AttentionBits, OfSplitsOnManyThreadsAreThoseOfOne) {
  Random random(17);
  const auto [dtype, D] = GetParam();
  const Tensor q = random.normal({1, 4, 1, D}, dtype), k = random.normal({1, 1, 5000, D}, dtype);
  Tensor v = random.normal({1, 1, 5000, 20}, dtype);
  for (const bool junk : {false, true}) {
    if (junk) core::visit_float(dtype, [&]<class T>() { v.data<T>()[3000 * 20 + 7] = core::cast<T>(kInf); });
    for (const AttentionOptions& o : {AttentionOptions{}, AttentionOptions{.causal = true, .window = {2500, 0}}}) {
      AttentionResult one, many;
      AttentionOptions with_lse = o;
      with_lse.return_lse = true;
      {
        const testing::Threads threads(1);
        one = attention(q, k, v, with_lse);
      }
      const testing::Threads threads(4);
      many = attention(q, k, v, with_lse);
      EXPECT_TRUE(same_bits(one.out, many.out));
      EXPECT_TRUE(same_bits(one.lse, many.lse));
    }
    check(q, k, v, {});
  }
}

TEST(Attention, AWeightThatUnderflowsStillCarriesNan) {
  const Tensor q = full({1, 1, 1, 1}, float32, 1),
               k = filled({1, 1, 2, 1}, float32, [](int64_t i) { return i ? -500.0 : 0.0; });
  const Tensor v = filled({1, 1, 2, 1}, float32, [](int64_t i) { return i ? kNan : 1.0; });
  EXPECT_TRUE(std::isnan(reference::at(attention(q, k, v).out, {0, 0, 0, 0})));
  const Tensor mask = filled({2}, boolean, [](int64_t i) { return i == 0; });
  EXPECT_EQ(reference::at(attention(q, k, v, {.mask = mask}).out, {0, 0, 0, 0}), 1.0);
  const Tensor bias = filled({2}, float32, [](int64_t i) { return i ? -kInf : 0.0; });
  EXPECT_EQ(reference::at(attention(q, k, v, {.bias = bias}).out, {0, 0, 0, 0}), 1.0);
}

TEST(Attention, EmptyRowsAreZero) {
  Random random(8);
  const Tensor q = random.normal({2, 2, 5, 4}, float32), none = Tensor::empty({2, 1, 0, 4}, float32);
  const Tensor k = random.normal({2, 1, 3, 4}, float32);
  const Tensor sinks = random.normal({2}, float32);
  check(q, none, none, {});
  check(q, none, none, {.causal = true, .sinks = sinks});
  check(q, k, k, {.causal = true, .sinks = sinks});  // the first two rows see no key
  check(q, k, k, {.bias = full({1}, float32, -kInf)});
  check(q, k, k, {.mask = full({1, 1, 1, 3}, boolean, 0)});
  check(q, k, k, {.causal = Causal::kTopLeft, .window = {0, 0}});
}

TEST(Attention, LowestFloatIsAUniformRow) {
  Random random(9);
  const Tensor q = random.normal({1, 1, 3, 4}, float32), k = random.normal({1, 1, 5, 4}, float32);
  const Tensor v = random.normal({1, 1, 5, 4}, float32);
  const double lowest = static_cast<double>(std::numeric_limits<float>::lowest());
  const AttentionResult got = attention(q, k, v, {.bias = full({5}, float32, lowest), .return_lse = true});
  for (int64_t c = 0; c < 4; ++c) {
    double mean = 0;
    for (int64_t j = 0; j < 5; ++j) mean += reference::at(v, {0, 0, j, c}) / 5;
    EXPECT_NEAR(reference::at(got.out, {0, 0, 1, c}), mean, 1e-6);
  }
  EXPECT_EQ(reference::at(got.lse, {0, 0, 1}), lowest);
}

TEST(Attention, ZeroSizesGiveEmptyResults) {
  for (const auto& [q, k, v] : {std::tuple<Dims, Dims, Dims>{{0, 2, 3, 4}, {0, 1, 3, 4}, {0, 1, 3, 4}},
                                {{1, 2, 0, 4}, {1, 1, 3, 4}, {1, 1, 3, 4}},
                                {{1, 2, 3, 4}, {1, 1, 3, 4}, {1, 1, 3, 0}},
                                {{1, 0, 3, 4}, {1, 1, 3, 4}, {1, 1, 3, 4}}}) {
    const AttentionResult r =
        attention(full(q, float32, 1), full(k, float32, 1), full(v, float32, 1), {.return_lse = true});
    EXPECT_EQ(r.out.shape(), (Dims{q[0], q[1], q[2], v[3]}));
    EXPECT_EQ(r.lse.shape(), (Dims{q[0], q[1], q[2]}));
    for (int64_t i = 0; i < r.lse.numel(); ++i) EXPECT_NEAR(r.lse.data<float>()[i], 2 + std::log(3.0), 1e-6);
  }
}

TEST(Attention, OutMayAliasAnInput) {
  Random random(10);
  const Tensor q = random.normal({1, 2, 6, 4}, float32), k = random.normal({1, 2, 6, 4}, float32);
  const Tensor want = attention(q, k, k).out, into_q = q.clone(), into_k = k.clone();
  attention(into_q, k, k, {.out = into_q});
  EXPECT_TRUE(same_bits(into_q, want));
  attention(q, into_k, into_k, {.out = into_k});
  EXPECT_TRUE(same_bits(into_k, want));
}

TEST(Attention, OffsetsBeyondTwoToThe31) {
  constexpr int64_t kStride = (int64_t{1} << 31) + 64, kBytes = 2 * kStride * 2;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space for " << kBytes << " bytes";
  const Tensor far = Tensor::wrap(memory, kCpu, float16, {1, 2, 3, 4}, {8, kStride, 4, 1});
  Random random(11);
  const Tensor near = random.normal({1, 2, 3, 4}, float16);
  for (int64_t h = 0; h < 2; ++h) std::memcpy(far.data<char>() + h * kStride * 2, near.data<char>() + h * 24, 24);
  EXPECT_TRUE(same_bits(attention(far, far, far).out, attention(near, near, near).out));
  munmap(memory, kBytes);
}

TEST(Attention, StrategiesAreListedAndDecline) {
  const Tensor x = full({1, 1, 2, 4}, float32, 1);
  EXPECT_TRUE(same_bits(attention(x, x, x, {.strategy = "flash_unit"}).out, attention(x, x, x).out));
  EXPECT_THROW(attention(x, x, x, {.strategy = "flash_tensorcore"}), UnsupportedError);
  EXPECT_THROW(attention(x, x, x, {.strategy = "fast"}), ValueError);
  for (const core::OpInfo& info : core::operators()) {
    if (std::string(info.name) != "attention") continue;
    EXPECT_EQ(info.strategies, (std::vector<std::string>{"flash_tensorcore", "flash_unit", "fallback"}));
  }
}

// bfloat16 on a machine with AMX has two strategies, and both keep to the reference.
TEST(Attention, VectorsAndTheMatrixUnitBothMatchTheReference) {
  Random random(21);
  const Tensor q = random.normal({1, 4, 50, 64}, bfloat16), k = random.normal({1, 2, 130, 64}, bfloat16);
  check(q, k, k, {.causal = true, .strategy = "flash_unit"});
  if (attn::cpu_matrix_unit_takes(bfloat16, 64)) check(q, k, k, {.causal = true, .strategy = "flash_tensorcore"});
  EXPECT_FALSE(attn::cpu_matrix_unit_takes(bfloat16, 40));
  EXPECT_FALSE(attn::cpu_matrix_unit_takes(float32, 64));
}

/// fn() throws an E whose text holds that.
template <class E>
void expect_mention(const std::function<void()>& fn, const std::string& text) {
  try {
    fn();
    FAIL() << "no error, expected: " << text;
  } catch (const E& e) {
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
  }
}

TEST(Attention, ErrorsNameTheArgument) {
  const Tensor q = full({1, 8, 2, 4}, float32, 1), k = full({1, 2, 3, 4}, float32, 1);
  const auto run = [&](AttentionOptions o) { return [&, o] { attention(q, k, k, o); }; };
  const Tensor k3 = full({1, 3, 3, 4}, float32, 1);
  expect_mention<ShapeError>([&] { attention(q, k3, k3); },
                             "attention: key has 3 heads, which does not divide query's 8");
  expect_mention<ShapeError>([&] { attention(q, k, k3); },
                             "attention: value must have shape (1, 2, 3, 4), got (1, 3, 3, 4)");
  expect_mention<ShapeError>(
      [&] {
        attention(q, full({1, 2, 3, 5}, float32, 1), k);
      },
      "attention: key must have shape");
  expect_mention<ShapeError>([&] { attention(select(q, 0, 0), k, k); }, "attention: query must have 4 dims");
  expect_mention<ShapeError>(
      [&] {
        attention(full({1, 2, 2, 0}, float32, 1), full({1, 2, 2, 0}, float32, 1), full({1, 2, 2, 4}, float32, 1));
      },
      "head size");
  expect_mention<DTypeError>(
      [&] {
        attention(q, k, full({1, 2, 3, 4}, float16, 1));
      },
      "attention: value must have query's dtype float32, got float16");
  expect_mention<DTypeError>([&] { attention(q.to(int32), k, k); }, "attention: query must be float16");
  expect_mention<DTypeError>([&] { attention(Tensor(), k, k); }, "attention: query is required");
  expect_mention<DTypeError>(run({.mask = full({3}, float32, 1)}),
                             "attention: mask must be bool, got float32; what is added to the scores is bias");
  expect_mention<DTypeError>(run({.mask = full({3}, uint8, 1)}), "attention: mask must be bool, got uint8");
  expect_mention<ShapeError>(run({.mask = full({2}, boolean, 1)}),
                             "attention: mask has shape (2,), which does not broadcast to (1, 8, 2, 3)");
  expect_mention<ShapeError>(run({.mask = full({1, 1, 1, 1, 3}, boolean, 1)}), "attention: mask has shape");
  expect_mention<DTypeError>(run({.bias = full({3}, float16, 1)}),
                             "attention: bias must be float32 or query's float32, got float16");
  expect_mention<ShapeError>(run({.bias = full({4, 3}, float32, 1)}), "attention: bias has shape (4, 3)");
  expect_mention<ShapeError>(run({.sinks = full({2}, float32, 1)}), "attention: sinks must have shape (8");
  expect_mention<DTypeError>(run({.sinks = full({8}, float16, 1)}),
                             "attention: sinks must be float32 or query's float32");
  for (const double bad : {0.0, -1.0, kNan, kInf}) {
    expect_mention<ValueError>(run({.scale = bad}), "attention: scale must be finite and > 0");
    expect_mention<ValueError>(run({.softcap = bad}), "attention: softcap must be finite and > 0");
  }
  expect_mention<ValueError>(run({.window = {-2, 0}}),
                             "attention: window must be (left, right) with entries >= -1, got (-2, 0)");
  expect_mention<ShapeError>(run({.out = full({1, 8, 2, 5}, float32, 1)}), "attention: out must have shape");
  expect_mention<DTypeError>(run({.out = full({1, 8, 2, 4}, float16, 1)}), "attention: out must be float32");
  expect_mention<ValueError>(run({.return_lse = true, .out = full({1, 8, 2, 4}, float32, 1)}),
                             "attention: with return_lse, out must be the pair");
  expect_mention<UnsupportedError>(run({.strategy = "flash_tensorcore"}), "on the CPU needs AMX");
}

TEST(AttentionVarlen, EqualsAttentionOfEachSequence) {
  Random random(12);
  for (const DType dtype : {float32, bfloat16}) {
    const Tensor q = random.normal({40, 4, 8}, dtype), k = random.normal({70, 2, 8}, dtype),
                 v = random.normal({70, 2, 6}, dtype);
    const std::vector<int32_t> cq{0, 0, 7, 7, 30, 37}, ck{0, 3, 3, 20, 64, 64};
    const Tensor tq = filled({6}, int32, [&](int64_t i) { return cq[i]; }),
                 tk = filled({6}, int64, [&](int64_t i) { return ck[i]; });
    const AttentionResult all =
        attention_varlen(q, k, v, tq, tk, {.causal = true, .window = {12, -1}, .return_lse = true});
    EXPECT_EQ(all.lse.shape(), (Dims{40, 4}));
    for (size_t n = 0; n + 1 < cq.size(); ++n) {
      const auto part = [&](const Tensor& x, int64_t a, int64_t b) {
        return unsqueeze(transpose(narrow(x, 0, a, b - a), 0, 1), 0);
      };
      const AttentionResult one =
          attention(part(q, cq[n], cq[n + 1]), part(k, ck[n], ck[n + 1]), part(v, ck[n], ck[n + 1]),
                    {.causal = true, .window = {12, -1}, .return_lse = true});
      EXPECT_TRUE(same_bits(one.out, part(all.out, cq[n], cq[n + 1]))) << n;
      EXPECT_TRUE(same_bits(squeeze(one.lse, {0}), transpose(narrow(all.lse, 0, cq[n], cq[n + 1] - cq[n]), 0, 1))) << n;
    }
    EXPECT_EQ(reference::at(all.out, {38, 1, 2}), 0.0);
    EXPECT_EQ(reference::at(all.lse, {39, 3}), -kInf);
  }
}

TEST(AttentionVarlen, RefusesBadOffsets) {
  const Tensor x = full({5, 1, 4}, float32, 1);
  const auto cu = [](std::vector<int64_t> values) {
    return filled({static_cast<int64_t>(values.size())}, int64, [=](int64_t i) { return values[i]; });
  };
  const auto run = [&](const Tensor& a, const Tensor& b) { return [&, a, b] { attention_varlen(x, x, x, a, b); }; };
  expect_mention<ValueError>(run(cu({1, 5}), cu({0, 5})), "attention_varlen: cu_seqlens_q");
  expect_mention<ValueError>(run(cu({0, 5}), cu({0, 6})),
                             "attention_varlen: cu_seqlens_k must end at 5 at most, got 6");
  expect_mention<ValueError>(run(cu({0, 3, 2}), cu({0, 1, 5})),
                             "attention_varlen: cu_seqlens_q must start at 0 and never decrease");
  expect_mention<ShapeError>(run(cu({}), cu({})), "attention_varlen: cu_seqlens_q");
  expect_mention<ShapeError>(run(cu({0, 5}), cu({0, 1, 5})), "attention_varlen: cu_seqlens_k must have shape");
  expect_mention<DTypeError>(run(cu({0, 5}).to(float32), cu({0, 5})),
                             "attention_varlen: cu_seqlens_q must be int32 or int64");
}

TEST(MergeStates, EqualsAttentionOverBothParts) {
  Random random(13);
  for (const DType dtype : {float64, float32}) {
    const Tensor q = random.normal({2, 2, 5, 8}, dtype), k = random.normal({2, 2, 30, 8}, dtype),
                 v = random.normal({2, 2, 30, 8}, dtype);
    const AttentionResult a = attention(q, narrow(k, 2, 0, 11), narrow(v, 2, 0, 11), {.return_lse = true});
    const AttentionResult b = attention(q, narrow(k, 2, 11, 19), narrow(v, 2, 11, 19), {.return_lse = true});
    const AttentionResult merged = merge_states(a.out, a.lse, b.out, b.lse);
    const reference::Attention want = reference::attention(q, k, v, {});
    expect_values(merged.out.to(float32), want.out, "out");  // lse is float32 for float64 too
    expect_values(merged.lse, want.lse, "lse");
  }
}

TEST(MergeStates, AnEmptyStateIsTheIdentity) {
  Random random(14);
  const Tensor out = random.normal({3, 5}, float16), lse = random.normal({3}, float32);
  const Tensor none = full({3, 5}, float16, 0), never = full({3}, float32, -kInf);
  for (const AttentionResult& r : {merge_states(out, lse, none, never), merge_states(none, never, out, lse)}) {
    EXPECT_TRUE(same_bits(r.out, out));
    EXPECT_TRUE(same_bits(r.lse, lse));
  }
  const AttentionResult empty = merge_states(none, never, none, never);
  EXPECT_TRUE(same_bits(empty.out, none));
  EXPECT_TRUE(same_bits(empty.lse, never));
  Tensor a = out.clone(), la = lse.clone();
  merge_states(a, la, none, never, {.out = a, .out_lse = la});
  EXPECT_TRUE(same_bits(a, out));
  expect_mention<ShapeError>([&] { merge_states(out, lse, out, full({5}, float32, 0)); },
                             "merge_states: lse_b must have shape (3");
  expect_mention<DTypeError>([&] { merge_states(out, lse.to(float64), out, lse); },
                             "merge_states: lse_a must be float32");
  expect_mention<ShapeError>([&] { merge_states(full({}, float32, 0), lse, out, lse); },
                             "merge_states: out_a must have at least 1 dim");
}

}  // namespace
}  // namespace tenor
