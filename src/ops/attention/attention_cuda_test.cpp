// Attention on a GPU, against the float64 reference: every strategy that takes a problem, options crossed.
#include <cuda_runtime_api.h>

#include <functional>
#include <limits>

#include "src/core/output.h"
#include "src/cuda/testing.h"
#include "src/ops/attention/attention_reference.h"
#include "tenor/modes.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;
using AttentionCuda = CudaTest;

class Random : public Draw {
 public:
  using Draw::Draw;
  Tensor mask(const Dims& shape, double p) {
    return filled(shape, boolean, [&](int64_t) { return static_cast<double>(upto(99)) < 100 * p; });
  }
  int64_t from_one_to(int64_t n) { return 1 + upto(n - 1); }
};

struct Operands {
  Tensor q, k, v;
};
Operands draw(Random& random, DType dtype, int64_t B, int64_t Hq, int64_t G, int64_t Sq, int64_t Sk, int64_t D,
              int64_t Dv, bool any_layout = false) {
  const auto make = [&](const Dims& shape) {
    return any_layout ? random.view(shape, dtype) : random.dense(shape, dtype);
  };
  const Tensor q = make({B, Hq, Sq, D}), k = make({B, G, Sk, D});
  return {q, k, make({B, G, Sk, Dv})};
}

AttentionOptions on_gpu_too(AttentionOptions o) {
  o.mask = on_gpu(o.mask), o.bias = on_gpu(o.bias), o.sinks = on_gpu(o.sinks);
  return o;
}

/// sum_j p_j |v_j|, over which the rounding of weights to 16 bits is spread.
std::vector<double> mass(const Operands& x, const AttentionOptions& o) {
  std::vector<double> sizes = values(x.v);
  for (double& size : sizes) size = std::fabs(size);
  return reference::attention(x.q, x.k, tensor_of(x.v.shape(), float64, sizes), o).out;
}

/// Each within its own bound; NaN and infinities exact.
void expect_within(const Tensor& got, const std::vector<double>& want, const std::vector<double>& bound,
                   const std::string& what) {
  const std::vector<double> have = values(got);
  ASSERT_EQ(have.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i])   ? std::isnan(have[i])
        : std::isinf(want[i]) ? have[i] == want[i]
                              : std::fabs(have[i] - want[i]) <= bound[i])
      continue;
    FAIL() << what << ": element " << i << " is " << have[i] << ", expected " << want[i] << " within " << bound[i];
  }
}

/// What a strategy may be off by: one rounding of the result, and of 16-bit weights as well.
std::vector<double> bounds(const std::vector<double>& want, const std::vector<double>& mass, DType dtype,
                           bool tensorcore) {
  std::vector<double> bound;
  const double weight = !tensorcore        ? 0
                        : dtype == float16 ? 0x1p-11
                                           : 0x1p-8,
               round = item_size(dtype) == 2 ? unit(dtype) / 2 : 2 * unit(dtype);
  for (size_t i = 0; i < want.size(); ++i)
    bound.push_back(round * std::fabs(want[i]) + weight * mass[i] + 4e-6 + (tensorcore ? 1e-5 : 0));
  return bound;
}

std::vector<std::string> strategies_for(const Operands& x) {
  std::vector<std::string> names = {"flash_unit"};
  if (item_size(x.q.dtype()) == 2 && x.q.shape(3) <= 256 && x.v.shape(3) <= 256) names.emplace_back("flash_tensorcore");
  return names;
}

/// Every strategy, into poisoned memory, beside the reference.
void check(Random& random, const Operands& x, AttentionOptions o) {
  const reference::Attention want = reference::attention(x.q, x.k, x.v, o);
  const std::vector<double> spread = mass(x, o);
  const Dims rows{x.q.shape(0), x.q.shape(1), x.q.shape(2)};
  Dims shape = rows;
  shape.push_back(x.v.shape(3));
  for (const std::string& strategy : strategies_for(x)) {
    AttentionOptions options = on_gpu_too(o);
    options.strategy = strategy, options.return_lse = true;
    options.out = on_gpu(random.coin() ? full(shape, x.q.dtype(), kNan) : random.poisoned(shape, x.q.dtype()));
    options.out_lse = on_gpu(random.coin() ? full(rows, float32, kNan) : random.poisoned(rows, float32));
    const AttentionResult got = attention(on_gpu(x.q), on_gpu(x.k), on_gpu(x.v), options);
    const bool tensorcore = strategy == "flash_tensorcore";
    expect_within(on_cpu(got.out), want.out, bounds(want.out, spread, x.q.dtype(), tensorcore), strategy + " out");
    expect_close(on_cpu(got.lse), want.lse, strategy + " lse", 2, tensorcore ? 1e-5 : 4e-6);
  }
}

class AttentionCudaOf : public CudaTest, public ::testing::WithParamInterface<DType> {};
INSTANTIATE_TEST_SUITE_P(Floats, AttentionCudaOf, ::testing::Values(float64, float32, float16, bfloat16),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(AttentionCudaOf, MatchesTheReferenceOnRandomProblems) {
  Random random(1);
  for (int round = 0; round < 48; ++round) {
    const int64_t B = random.from_one_to(2), G = random.from_one_to(3), Hq = G * random.from_one_to(4),
                  Sq = random.from_one_to(round % 3 ? 20 : 150), Sk = random.from_one_to(round % 4 ? 90 : 300),
                  D = random.from_one_to(round % 2 ? 10 : 90), Dv = random.from_one_to(round % 5 ? 12 : 130);
    AttentionOptions o;
    if (round % 2) o.causal = round % 4 == 1 ? Causal(true) : Causal(Causal::kTopLeft);
    if (round % 3 == 0) o.window = {random.from_one_to(30) - 2, random.from_one_to(30) - 2};
    if (round % 5 == 0) o.softcap = 0.5 * static_cast<double>(random.from_one_to(10));
    if (round % 7 < 2) o.scale = 0.3;
    if (round % 4 == 0) o.mask = random.mask(round % 8 ? Dims{B, 1, 1, Sk} : Dims{Sq, Sk}, 0.7);
    if (round % 6 == 1) o.bias = random.dense({Hq, 1, Sk}, round % 12 == 1 ? float32 : GetParam());
    if (round % 5 == 2) o.sinks = random.dense({Hq}, round % 2 ? float32 : GetParam());
    SCOPED_TRACE(::testing::Message() << "round " << round << ": B" << B << " Hq" << Hq << " G" << G << " Sq" << Sq
                                      << " Sk" << Sk << " D" << D << " Dv" << Dv);
    check(random, draw(random, GetParam(), B, Hq, G, Sq, Sk, D, Dv, round % 3 == 1), o);
  }
}

// Head sizes about what a matrix unit takes and what a block holds, up to several blocks of columns.
TEST_P(AttentionCudaOf, MatchesTheReferenceOnEveryHeadSize) {
  Random random(2);
  for (const auto& [D, Dv] : {std::pair<int64_t, int64_t>{64, 64},
                              {128, 128},
                              {256, 256},
                              {64, 24},
                              {128, 64},
                              {192, 128},
                              {80, 80},
                              {40, 200},
                              {8, 8},
                              {1, 1},
                              {96, 256},
                              {257, 64},
                              {576, 512},
                              {33, 300}})
    for (const auto& [Sq, Sk] : {std::pair<int64_t, int64_t>{130, 200}, {3, 70}}) {
      SCOPED_TRACE(::testing::Message() << "D" << D << " Dv" << Dv << " Sq" << Sq << " Sk" << Sk);
      check(random, draw(random, GetParam(), 1, 2, 1, Sq, Sk, D, Dv), {.causal = true});
    }
}

TEST_P(AttentionCudaOf, MatchesTheReferenceWithAllOptionsAtOnce) {
  Random random(3);
  for (const int64_t D : {32, 64, 128, 256})
    for (const int64_t Sk : {281, 302}) {  // rows of mask and bias that are read one by one, and in pairs
      const Operands x = draw(random, GetParam(), 2, 4, 2, 22, Sk, D, 24);
      const Tensor mask = random.mask({2, 1, 22, Sk}, 0.8),
                   bias = random.dense({4, 22, Sk}, D == 64 ? float32 : GetParam()), sinks = random.dense({4}, float32);
      for (const auto& [causal, window] : {std::pair<Causal, Window>{true, {40, 0}},
                                           {false, {-1, -1}},
                                           {Causal::kTopLeft, {7, 20}},
                                           {false, {7, 20}},
                                           {true, {}}})
        check(random, x,
              {.mask = mask, .bias = bias, .causal = causal, .window = window, .softcap = 3.0, .sinks = sinks});
      check(random, x, {.causal = true, .softcap = 2.0});
      check(random, x, {.bias = random.dense({1, 4, 22, 1}, GetParam()), .window = {100, -1}});
      check(random, x, {.mask = random.mask({Sk}, 0.5)});
    }
}

TEST_P(AttentionCudaOf, MatchesTheReferenceOverManyTiles) {
  Random random(4);
  for (const int64_t D : {8, 64, 128}) {
    const Operands x = draw(random, GetParam(), 1, 2, 1, 3, 2500, D, D);
    check(random, x, {});
    check(random, x, {.window = {1100, 0}});
    check(random, x, {.causal = Causal::kTopLeft});
    check(random, draw(random, GetParam(), 1, 1, 1, 400, 520, D, D), {.causal = true, .window = {300, -1}});
  }
}

TEST_P(AttentionCudaOf, ReadsAnyStridesAndKeepsTheirOrder) {
  Random random(5);
  for (const int64_t D : {6, 64}) {
    const Operands x{transpose(random.dense({2, 7, 4, D}, GetParam()), 1, 2),
                     slice(random.dense({2, 2, 19, 2 * D}, GetParam()), 3, 0, 2 * D, 2),
                     expand(transpose(random.dense({1, 1, 10, 19}, GetParam()), 2, 3), {2, 2, 19, 10})};
    check(random, x, {.causal = true});
    const AttentionResult got = attention(on_gpu(x.q), on_gpu(x.k), on_gpu(x.v), {.causal = true, .return_lse = true});
    EXPECT_TRUE(transpose(got.out, 1, 2).is_contiguous());
    EXPECT_TRUE(got.lse.is_contiguous());
  }
}

TEST_P(AttentionCudaOf, LeavesWhatLiesBetweenTheRowsOfOut) {
  Random random(6);
  for (const int64_t D : {6, 64}) {
    const Operands x = draw(random, GetParam(), 1, 3, 3, 5, 9, D, D);
    const Tensor q = on_gpu(x.q), k = on_gpu(x.k), v = on_gpu(x.v), want = on_cpu(attention(q, k, v).out);
    for (const int64_t step : {1, 2}) {
      const Tensor wide = on_gpu(full({1, 3, 5, 2 * D}, GetParam(), 7)), out = slice(wide, 3, 0, step * D, step);
      attention(q, k, v, {.out = out});
      EXPECT_TRUE(same_bits(on_cpu(out), want));
      EXPECT_TRUE(same_bits(on_cpu(step == 2 ? slice(wide, 3, 1, 2 * D, 2) : slice(wide, 3, D, 2 * D, 1)),
                            full({1, 3, 5, D}, GetParam(), 7)));
    }
  }
}

TEST_P(AttentionCudaOf, BitsOfARowDependOnItselfAlone) {
  Random random(7);
  for (const int64_t D : {24, 64, 128, 256}) {
    const Operands x = draw(random, GetParam(), 3, 4, 2, 260, 700, D, 40);
    const Tensor q = on_gpu(x.q), k = on_gpu(x.k), v = on_gpu(x.v);
    for (const std::string& strategy : strategies_for(x)) {
      AttentionOptions o{.causal = true, .softcap = 3.0, .strategy = strategy};
      const auto part = [](const Tensor& t, int64_t b) { return narrow(t, 0, b, 1); };
      const Tensor batched = attention(q, k, v, o).out;
      EXPECT_TRUE(same_bits(on_cpu(attention(part(q, 1), part(k, 1), part(v, 1), o).out), on_cpu(part(batched, 1))))
          << strategy << " alone in the batch, D " << D;
      // Whatever other rows there are: the last of the sequence, as a decode step asks for them, down to one head.
      const BatchInvariantGuard invariant;
      const Tensor all = attention(q, k, v, o).out;
      for (const int64_t rows : {1, 2, 5, 64, 200}) {
        const Tensor last = narrow(part(q, 2), 2, 260 - rows, rows), want = narrow(part(all, 2), 2, 260 - rows, rows);
        EXPECT_TRUE(same_bits(on_cpu(attention(last, part(k, 2), part(v, 2), o).out), on_cpu(want)))
            << strategy << " " << rows << " rows, D " << D;
        const Tensor head =
            attention(narrow(last, 1, 3, 1), narrow(part(k, 2), 1, 1, 1), narrow(part(v, 2), 1, 1, 1), o).out;
        EXPECT_TRUE(same_bits(on_cpu(head), on_cpu(narrow(want, 1, 3, 1))))
            << strategy << " " << rows << " rows of one head, D " << D;
      }
    }
  }
}

TEST_P(AttentionCudaOf, HiddenKeysNeverReachAResult) {
  Random random(8);
  for (const int64_t D : {8, 32, 64, 128, 256})
    for (const int64_t Sk : {90, 300}) {
      const Operands x = draw(random, GetParam(), 1, 2, 1, 70, Sk, D, 16);
      const Tensor mask = random.mask({Sk}, 0.5),
                   bias = filled({Sk}, float32, [&](int64_t j) { return get(mask, j) != 0 ? 0.5 : -kInf; });
      Tensor bad_k = x.k.clone(), bad_v = x.v.clone(), late_k = x.k.clone(), late_v = x.v.clone();
      const double junk[] = {kNan, kInf, -kInf};
      for (int64_t j = 0; j < Sk; ++j) {
        if (get(mask, j) != 0) continue;
        put(bad_k, j * D + j % D, junk[j % 3]);
        put(bad_v, j * 16 + 3, junk[(j + 1) % 3]);
      }
      put(late_k, (Sk - 10) * D, kNan);  // row i sees keys up to i + Sk - 70
      put(late_v, (Sk - 10) * 16 + 5, kInf);
      for (const std::string& strategy : strategies_for(x)) {
        const auto run = [&](const Tensor& k, const Tensor& v, AttentionOptions o) {
          o.strategy = strategy;
          return on_cpu(attention(on_gpu(x.q), on_gpu(k), on_gpu(v), on_gpu_too(o)).out);
        };
        for (const AttentionOptions& o :
             {AttentionOptions{.mask = mask}, AttentionOptions{.mask = mask, .causal = true}})
          EXPECT_TRUE(same_bits(run(bad_k, bad_v, o), run(x.k, x.v, o))) << strategy << " D" << D << " Sk" << Sk;
        // A NaN plus a bias of -inf is a NaN, but a finite score plus it hides the key.
        EXPECT_TRUE(same_bits(run(x.k, bad_v, {.bias = bias}), run(x.k, x.v, {.bias = bias})))
            << strategy << " D" << D << " Sk" << Sk;
        const Tensor clean = run(x.k, x.v, {.causal = true}), got = run(late_k, late_v, {.causal = true});
        EXPECT_TRUE(same_bits(narrow(got, 2, 0, 60), narrow(clean, 2, 0, 60))) << strategy << " D" << D << " Sk" << Sk;
        for (int64_t i = 60; i < 70; ++i) EXPECT_TRUE(std::isnan(reference::at(got, {0, 1, i, 0}))) << strategy;
      }
    }
}

TEST_P(AttentionCudaOf, VisibleNanAndInfinityPropagate) {
  Random random(9);
  for (const int64_t D : {8, 64, 128}) {
    const Operands x = draw(random, GetParam(), 1, 1, 1, 40, 90, D, 8);
    for (const double junk : {kNan, kInf, -kInf})
      for (const int64_t key : {3, 70}) {
        Operands bad = x;
        bad.v = x.v.clone();
        put(bad.v, key * 8 + 2, junk);
        check(random, bad, {});
        check(random, bad, {.causal = true});
        check(random, bad, {.mask = random.mask({40, 90}, 0.5)});
      }
    Operands bad = x;
    bad.q = x.q.clone();
    put(bad.q, D, kNan);
    check(random, bad, {});
  }
}

TEST_F(AttentionCuda, AWeightThatUnderflowsStillCarriesNan) {
  const Tensor q = on_gpu(full({1, 1, 1, 1}, float32, 1)),
               k = on_gpu(filled({1, 1, 2, 1}, float32, [](int64_t i) { return i ? -500.0 : 0.0; }));
  const Tensor v = on_gpu(filled({1, 1, 2, 1}, float32, [](int64_t i) { return i ? kNan : 1.0; }));
  EXPECT_TRUE(std::isnan(get(on_cpu(attention(q, k, v).out), 0)));
  EXPECT_EQ(
      get(on_cpu(attention(q, k, v, {.mask = on_gpu(filled({2}, boolean, [](int64_t i) { return i == 0; }))}).out), 0),
      1.0);
  EXPECT_EQ(
      get(on_cpu(attention(q, k, v, {.bias = on_gpu(filled({2}, float32, [](int64_t i) { return i ? -kInf : 0.0; }))})
                     .out),
          0),
      1.0);
}

TEST_P(AttentionCudaOf, EmptyRowsAreZero) {
  Random random(10);
  const Operands x = draw(random, GetParam(), 2, 2, 1, 5, 3, 8, 8);
  const Operands none{x.q, Tensor::empty({2, 1, 0, 8}, GetParam()), Tensor::empty({2, 1, 0, 8}, GetParam())};
  const Tensor sinks = random.dense({2}, float32);
  check(random, none, {});
  check(random, none, {.causal = true, .sinks = sinks});
  check(random, x, {.causal = true, .sinks = sinks});  // the first two rows see no key
  check(random, x, {.bias = full({1}, float32, -kInf)});
  check(random, x, {.mask = full({1, 1, 1, 3}, boolean, 0)});
  check(random, x, {.causal = Causal::kTopLeft, .window = {0, 0}});
}

TEST_P(AttentionCudaOf, LowestFloatIsAUniformRow) {
  Random random(11);
  const Operands x = draw(random, GetParam(), 1, 1, 1, 3, 5, 8, 4);
  const double lowest = static_cast<double>(std::numeric_limits<float>::lowest());
  for (const std::string& strategy : strategies_for(x)) {
    const AttentionResult got =
        attention(on_gpu(x.q), on_gpu(x.k), on_gpu(x.v),
                  {.bias = on_gpu(full({5}, float32, lowest)), .strategy = strategy, .return_lse = true});
    const Tensor out = on_cpu(got.out);
    for (int64_t c = 0; c < 4; ++c) {
      double mean = 0;
      for (int64_t j = 0; j < 5; ++j) mean += reference::at(x.v, {0, 0, j, c}) / 5;
      EXPECT_NEAR(reference::at(out, {0, 0, 1, c}), mean, item_size(GetParam()) == 2 ? 0.01 : 1e-6) << strategy;
    }
    EXPECT_EQ(get(on_cpu(got.lse), 1), lowest) << strategy;
  }
}

TEST_F(AttentionCuda, ZeroSizesGiveEmptyResults) {
  for (const DType dtype : {float32, bfloat16})
    for (const auto& [q, k, v] : {std::tuple<Dims, Dims, Dims>{{0, 2, 3, 4}, {0, 1, 3, 4}, {0, 1, 3, 4}},
                                  {{1, 2, 0, 4}, {1, 1, 3, 4}, {1, 1, 3, 4}},
                                  {{1, 2, 3, 4}, {1, 1, 3, 4}, {1, 1, 3, 0}},
                                  {{1, 0, 3, 4}, {1, 1, 3, 4}, {1, 1, 3, 4}}}) {
      const AttentionResult r = attention(on_gpu(full(q, dtype, 1)), on_gpu(full(k, dtype, 1)),
                                          on_gpu(full(v, dtype, 1)), {.return_lse = true});
      EXPECT_EQ(r.out.shape(), (Dims{q[0], q[1], q[2], v[3]}));
      const Tensor lse = on_cpu(r.lse);
      for (int64_t i = 0; i < lse.numel(); ++i) EXPECT_NEAR(get(lse, i), 2 + std::log(3.0), 1e-5);
    }
}

TEST_F(AttentionCuda, OutMayAliasAnInput) {
  Random random(12);
  for (const DType dtype : {float32, bfloat16}) {
    const Tensor q = on_gpu(random.dense({1, 2, 6, 64}, dtype)), k = on_gpu(random.dense({1, 2, 6, 64}, dtype));
    const Tensor want = on_cpu(attention(q, k, k).out), into_q = q.clone(), into_k = k.clone();
    attention(into_q, k, k, {.out = into_q});
    EXPECT_TRUE(same_bits(on_cpu(into_q), want));
    attention(q, into_k, into_k, {.out = into_k});
    EXPECT_TRUE(same_bits(on_cpu(into_k), want));
  }
}

TEST_F(AttentionCuda, StrategiesDeclineWithTheirReason) {
  const Tensor x = on_gpu(full({1, 1, 2, 4}, float32, 1));
  const auto text = [&](const std::string& strategy) -> std::string {
    try {
      attention(x, x, x, {.strategy = strategy});
    } catch (const UnsupportedError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(text("flash_tensorcore").find("float16 or bfloat16"), std::string::npos) << text("flash_tensorcore");
  EXPECT_NE(text("fallback").find("CPU"), std::string::npos);
  EXPECT_EQ(text("flash_unit"), "");
}

/// cu_seqlens of either width.
Tensor offsets(const std::vector<int64_t>& at, DType dtype) {
  return on_gpu(filled({static_cast<int64_t>(at.size())}, dtype,
                       [&](int64_t i) { return static_cast<double>(at[static_cast<size_t>(i)]); }));
}

TEST_P(AttentionCudaOf, VarlenEqualsAttentionOfEachSequence) {
  Random random(13);
  const std::vector<int64_t> cq{0, 0, 7, 7, 230, 300, 301}, ck{0, 3, 3, 20, 364, 364, 500};
  for (const int64_t D : {8, 64, 128}) {
    const Tensor q = on_gpu(random.dense({310, 4, D}, GetParam())), k = on_gpu(random.dense({520, 2, D}, GetParam())),
                 v = on_gpu(random.dense({520, 2, 16}, GetParam()));
    AttentionVarlenOptions o{
        .causal = true, .window = {90, -1}, .sinks = on_gpu(random.dense({4}, float32)), .return_lse = true};
    const auto part = [](const Tensor& x, int64_t a, int64_t b) {
      return unsqueeze(transpose(narrow(x, 0, a, b - a), 0, 1), 0);
    };
    for (const std::string& strategy : strategies_for({unsqueeze(q, 0), k, unsqueeze(v, 0)})) {
      o.strategy = strategy;
      o.out = on_gpu(full({310, 4, 16}, GetParam(), kNan)), o.out_lse = on_gpu(full({310, 4}, float32, kNan));
      const AttentionResult all = attention_varlen(q, k, v, offsets(cq, int32), offsets(ck, int64), o);
      const BatchInvariantGuard invariant;
      for (size_t n = 0; n + 1 < cq.size(); ++n) {
        const AttentionResult one =
            attention(part(q, cq[n], cq[n + 1]), part(k, ck[n], ck[n + 1]), part(v, ck[n], ck[n + 1]),
                      {.causal = true, .window = {90, -1}, .sinks = o.sinks, .strategy = strategy, .return_lse = true});
        EXPECT_TRUE(same_bits(on_cpu(one.out), on_cpu(part(all.out, cq[n], cq[n + 1]))))
            << strategy << " D" << D << " sequence " << n;
        EXPECT_TRUE(same_bits(on_cpu(squeeze(one.lse, {0})),
                              on_cpu(transpose(narrow(all.lse, 0, cq[n], cq[n + 1] - cq[n]), 0, 1))))
            << strategy << " D" << D << " sequence " << n;
      }
      for (int64_t i = 301; i < 310; ++i) {
        EXPECT_EQ(reference::at(on_cpu(all.out), {i, 1, 2}), 0.0) << strategy;
        EXPECT_EQ(reference::at(on_cpu(all.lse), {i, 3}), -kInf) << strategy;
      }
    }
  }
}

// The neighbour's keys follow a sequence's own in memory.
TEST_P(AttentionCudaOf, VarlenHidesTheNextSequence) {
  Random random(14);
  for (const int64_t D : {16, 64, 128}) {
    const Tensor q = random.dense({64, 2, D}, GetParam()), k = random.dense({150, 2, D}, GetParam());
    Tensor bad = k.clone();
    for (int64_t j = 100; j < 150; ++j) put(bad, j * 2 * D + j % (2 * D), kNan);
    const Tensor cq = offsets({0, 40, 64}, int32), ck = offsets({0, 100, 150}, int32);
    for (const std::string& strategy : strategies_for({unsqueeze(q, 0), k, unsqueeze(k, 0)})) {
      const AttentionVarlenOptions o{.strategy = strategy};
      const Tensor clean = on_cpu(attention_varlen(on_gpu(q), on_gpu(k), on_gpu(k), cq, ck, o).out),
                   got = on_cpu(attention_varlen(on_gpu(q), on_gpu(bad), on_gpu(bad), cq, ck, o).out);
      EXPECT_TRUE(same_bits(narrow(got, 0, 0, 40), narrow(clean, 0, 0, 40))) << strategy << " D" << D;
      EXPECT_TRUE(std::isnan(reference::at(got, {50, 0, 0}))) << strategy;
    }
  }
}

TEST_F(AttentionCuda, VarlenReplaysWithNewOffsets) {
  Random random(17);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  for (const std::string strategy : {"flash_unit", "flash_tensorcore"}) {
    const StreamGuard guard(stream);
    const Tensor q = on_gpu(random.dense({300, 40, 64}, bfloat16)), k = on_gpu(random.dense({310, 8, 64}, bfloat16));
    const Tensor cq = offsets({0, 10, 20}, int32), ck = offsets({0, 10, 20}, int32), out = q.clone();
    const AttentionVarlenOptions o{.causal = true, .strategy = strategy, .out = out};
    attention_varlen(q, k, k, cq, ck, o);
    synchronize(kGpu);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    attention_varlen(q, k, k, cq, ck, o);
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (const int64_t middle : {1, 130, 280}) {
      core::copy_into(offsets({0, middle, 300}, int32), cq);
      core::copy_into(offsets({0, middle + 5, 310}, int32), ck);
      ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
      synchronize(kGpu);
      EXPECT_TRUE(
          same_bits(on_cpu(out), on_cpu(attention_varlen(q, k, k, cq, ck, {.causal = true, .strategy = strategy}).out)))
          << strategy << " " << middle;
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
  }
  cudaStreamDestroy(stream);
}

// Few queries: heads of a group share tiles, and keys are cut into parts.
TEST_P(AttentionCudaOf, DecodeStepsMatchTheReference) {
  Random random(18);
  for (const int64_t D : {64, 128}) {
    const Operands x = draw(random, GetParam(), 2, 6, 2, 2, 1300, D, 32);
    check(random, x, {.causal = true, .sinks = random.dense({6}, float32)});
    check(random, x, {.mask = random.mask({2, 1, 1, 1300}, 0.5), .softcap = 2.0});
    check(random, x, {.mask = filled({1300}, boolean, [](int64_t j) { return j > 600 && j < 700; })});
    Operands bad = x;
    bad.v = x.v.clone();
    for (const int64_t key : {3, 650, 1299}) put(bad.v, key * 32 + 1, key == 650 ? kInf : kNan);
    check(random, bad, {.window = {900, -1}});
    check(random, bad, {.mask = filled({1300}, boolean, [](int64_t j) { return j > 600 && j < 1200; })});
    const Tensor both = attention(on_gpu(x.q), on_gpu(x.k), on_gpu(x.v), {.causal = true}).out;
    const auto second = [](const Tensor& t) { return on_gpu(narrow(t, 0, 1, 1)); };
    EXPECT_TRUE(same_bits(on_cpu(attention(second(x.q), second(x.k), second(x.v), {.causal = true}).out),
                          on_cpu(narrow(both, 0, 1, 1))));
  }
}

TEST_F(AttentionCuda, VarlenSaysWhatIsWrongWithItsOffsets) {
  const Tensor x = on_gpu(full({5, 1, 64}, bfloat16, 1));
  for (const std::string strategy : {"flash_unit", "flash_tensorcore"})
    for (const auto& at : {std::vector<int64_t>{0, 3, 2}, {0, 5, 9}, {1, 3, 5}, {0, -4, 5}}) {
      attention_varlen(x, x, x, offsets(at, int64), offsets({0, 2, 5}, int64), {.strategy = strategy});
      EXPECT_THROW(synchronize(kGpu), Error) << strategy;
      attention_varlen(x, x, x, offsets({0, 2, 5}, int32), offsets(at, int32), {.strategy = strategy});
      EXPECT_THROW(synchronize(kGpu), Error) << strategy;
    }
}

TEST_F(AttentionCuda, MergeStatesEqualsAttentionOverBothParts) {
  Random random(15);
  for (const DType dtype : {float64, float32}) {
    const Operands x = draw(random, dtype, 2, 2, 2, 5, 30, 8, 8);
    const Tensor q = on_gpu(x.q), k = on_gpu(x.k), v = on_gpu(x.v);
    const AttentionResult a = attention(q, narrow(k, 2, 0, 11), narrow(v, 2, 0, 11), {.return_lse = true});
    const AttentionResult b = attention(q, narrow(k, 2, 11, 19), narrow(v, 2, 11, 19), {.return_lse = true});
    const AttentionResult merged = merge_states(a.out, a.lse, b.out, b.lse);
    const reference::Attention want = reference::attention(x.q, x.k, x.v, {});
    expect_close(on_cpu(merged.out).to(float32), want.out, "out", 2, 4e-6);
    expect_close(on_cpu(merged.lse), want.lse, "lse", 2, 4e-6);
  }
}

TEST_F(AttentionCuda, MergeStatesOnAnyLayoutEqualsTheCpu) {
  Random random(16);
  for (int round = 0; round < 24; ++round) {
    const DType dtype = kFloats[round % 4];
    const Dims rows{1 + random.upto(3), 1 + random.upto(40)};
    Dims shape = rows;
    shape.push_back(1 + random.upto(70));
    Tensor a = random.view(shape, dtype), b = random.view(shape, dtype), lse_a = random.view(rows, float32),
           lse_b = random.view(rows, float32);
    if (round % 3 == 0) lse_a = full(rows, float32, -kInf);
    if (round % 5 == 0) lse_b = full(rows, float32, -kInf);
    const AttentionResult want = merge_states(a, lse_a, b, lse_b);
    const Tensor out = on_gpu(random.poisoned(shape, dtype)), lse = on_gpu(random.poisoned(rows, float32));
    merge_states(on_gpu(a), on_gpu(lse_a), on_gpu(b), on_gpu(lse_b), {.out = out, .out_lse = lse});
    expect_close(on_cpu(out), values(want.out), "out", 1, 1e-6);
    expect_close(on_cpu(lse), values(want.lse), "lse", 1, 1e-6);
  }
}

}  // namespace
}  // namespace tenor
