// Attention on a GPU, against the float64 reference: every strategy that takes a problem, options crossed.
#include <functional>
#include <limits>

#include "src/core/output.h"
#include "src/cuda/capability.h"
#include "src/ops/attention/attention_cuda_testing.h"
#include "tenor/modes.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;
using AttentionCuda = CudaTest;

using AttentionCudaOf = AttentionKernelTest;
INSTANTIATE_TEST_SUITE_P(Kernels, AttentionCudaOf, attention_kernels(), kernel_name);

TEST_P(AttentionCudaOf, MatchesTheReferenceOnRandomProblems) {
  AttentionDraw random(1);
  for (int round = 0; round < 48; ++round) {
    const AttentionProblem p = draw_problem(random, round, dtype());
    SCOPED_TRACE(::testing::Message() << "round " << round << ": " << p.text());
    check(random, draw(random, dtype(), p.B, p.Hq, p.G, p.Sq, p.Sk, p.D, p.Dv, round % 3 == 1), p.options);
  }
}

// Head sizes about what a matrix unit takes and what a block holds, up to several blocks of columns.
TEST_P(AttentionCudaOf, MatchesTheReferenceOnEveryHeadSize) {
  AttentionDraw random(2);
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
      check(random, draw(random, dtype(), 1, 2, 1, Sq, Sk, D, Dv), {.causal = true});
    }
}

TEST_P(AttentionCudaOf, MatchesTheReferenceWithAllOptionsAtOnce) {
  AttentionDraw random(3);
  for (const int64_t D : {32, 64, 128, 256})
    for (const int64_t Sk : {281, 302}) {  // rows of mask and bias that are read one by one, and in pairs
      const Operands x = draw(random, dtype(), 2, 4, 2, 22, Sk, D, 24);
      const Tensor mask = random.mask({2, 1, 22, Sk}, 0.8),
                   bias = random.dense({4, 22, Sk}, D == 64 ? float32 : dtype()), sinks = random.dense({4}, float32);
      for (const auto& [causal, window] : {std::pair<Causal, Window>{true, {40, 0}},
                                           {false, {-1, -1}},
                                           {Causal::kTopLeft, {7, 20}},
                                           {false, {7, 20}},
                                           {true, {}}})
        check(random, x,
              {.mask = mask, .bias = bias, .causal = causal, .window = window, .softcap = 3.0, .sinks = sinks});
      check(random, x, {.causal = true, .softcap = 2.0});
      check(random, x, {.bias = random.dense({1, 4, 22, 1}, dtype()), .window = {100, -1}});
      check(random, x, {.mask = random.mask({Sk}, 0.5)});
    }
}

TEST_P(AttentionCudaOf, MatchesTheReferenceOverManyTiles) {
  AttentionDraw random(4);
  for (const int64_t D : {8, 64, 128}) {
    const Operands x = draw(random, dtype(), 1, 2, 1, 3, 2500, D, D);
    check(random, x, {});
    check(random, x, {.window = {1100, 0}});
    check(random, x, {.causal = Causal::kTopLeft});
    check(random, draw(random, dtype(), 1, 1, 1, 400, 520, D, D), {.causal = true, .window = {300, -1}});
  }
}

// More tasks than blocks, with every way in which scores are finished: bias by tiles, in lines, of float32, mask.
TEST_P(AttentionCudaOf, MatchesTheReferenceOverManyTasks) {
  AttentionDraw random(20);
  for (const auto& [D, Sk] : {std::pair<int64_t, int64_t>{16, 200}, {72, 203}, {136, 200}}) {
    const Operands x = draw(random, dtype(), 2, 70, 70, 2, Sk, D, 8);
    const Tensor mask = random.mask({2, 1, 2, Sk}, 0.7), bias = random.dense({70, 2, Sk}, dtype());
    check(random, x, {.bias = bias});
    check(random, x, {.bias = bias, .causal = true, .window = {150, 0}});
    check(random, x, {.mask = mask, .bias = bias});
    check(random, x, {.mask = mask, .softcap = 2.0});
    check(random, x, {.bias = random.dense({70, 2, Sk}, float32), .causal = true});
  }
}

TEST_P(AttentionCudaOf, ReadsAnyStridesAndKeepsTheirOrder) {
  AttentionDraw random(5);
  for (const int64_t D : {6, 64}) {
    const Operands x{transpose(random.dense({2, 7, 4, D}, dtype()), 1, 2),
                     slice(random.dense({2, 2, 19, 2 * D}, dtype()), 3, 0, 2 * D, 2),
                     expand(transpose(random.dense({1, 1, 10, 19}, dtype()), 2, 3), {2, 2, 19, 10})};
    check(random, x, {.causal = true});
    const AttentionResult got = attention(on_gpu(x.q), on_gpu(x.k), on_gpu(x.v), {.causal = true, .return_lse = true});
    EXPECT_TRUE(transpose(got.out, 1, 2).is_contiguous());
    EXPECT_TRUE(got.lse.is_contiguous());
  }
}

TEST_P(AttentionCudaOf, LeavesWhatLiesBetweenTheRowsOfOut) {
  AttentionDraw random(6);
  for (const int64_t D : {6, 64}) {
    const Operands x = draw(random, dtype(), 1, 3, 3, 5, 9, D, D);
    const Tensor q = on_gpu(x.q), k = on_gpu(x.k), v = on_gpu(x.v), want = on_cpu(attention(q, k, v).out);
    for (const int64_t step : {1, 2}) {
      const Tensor wide = on_gpu(full({1, 3, 5, 2 * D}, dtype(), 7)), out = slice(wide, 3, 0, step * D, step);
      attention(q, k, v, {.out = out});
      EXPECT_TRUE(same_bits(on_cpu(out), want));
      EXPECT_TRUE(same_bits(on_cpu(step == 2 ? slice(wide, 3, 1, 2 * D, 2) : slice(wide, 3, D, 2 * D, 1)),
                            full({1, 3, 5, D}, dtype(), 7)));
    }
  }
}

TEST_P(AttentionCudaOf, BitsOfARowDependOnItselfAlone) {
  AttentionDraw random(7);
  for (const int64_t D : {24, 64, 128, 256}) {
    const Operands x = draw(random, dtype(), 3, 4, 2, 260, 700, D, 40);
    const Tensor q = on_gpu(x.q), k = on_gpu(x.k), v = on_gpu(x.v);
    for (const std::string& strategy : strategies_for(x)) {
      AttentionOptions o{.causal = true, .softcap = 3.0, .strategy = strategy};
      const auto part = [](const Tensor& t, int64_t b) { return narrow(t, 0, b, 1); };
      const auto expect_alone = [&](const char* mode) {
        const Tensor batched = attention(q, k, v, o).out;
        EXPECT_TRUE(same_bits(on_cpu(attention(part(q, 1), part(k, 1), part(v, 1), o).out), on_cpu(part(batched, 1))))
            << strategy << " alone in the batch, D " << D << mode;
      };
      if (strategy != "fallback") expect_alone("");  // whose products are contractions
      // Whatever other rows there are: the last of the sequence, as a decode step asks for them, down to one head.
      const BatchInvariantGuard invariant;
      expect_alone(", batch_invariant");
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

// Alone a sequence has tiles of few rows, in a batch of many wide ones.
TEST_P(AttentionCudaOf, TilesOfFewRowsHaveTheBitsOfWideOnes) {
  AttentionDraw random(17);
  for (const int64_t D : {32, 64, 128, 256}) {
    const Operands x = draw(random, dtype(), 1, 4, 2, 192, 192, D, D);
    const Tensor q = on_gpu(x.q), k = on_gpu(x.k), v = on_gpu(x.v);
    const auto many = [&](const Tensor& t) { return expand(t, {80, t.shape(1), t.shape(2), t.shape(3)}); };
    const BatchInvariantGuard invariant;
    for (const std::string& strategy : strategies_for(x))
      for (const bool causal : {false, true}) {
        AttentionOptions o{.strategy = strategy};
        if (causal) o.causal = true, o.window = {100, -1};
        const Tensor alone = on_cpu(attention(q, k, v, o).out), batched = attention(many(q), many(k), many(v), o).out;
        for (const int64_t b : {0, 79})
          EXPECT_TRUE(same_bits(on_cpu(narrow(batched, 0, b, 1)), alone)) << strategy << " D " << D << " " << causal;
      }
  }
}

TEST_P(AttentionCudaOf, HiddenKeysNeverReachAResult) {
  AttentionDraw random(8);
  for (const int64_t D : {8, 32, 64, 128, 256})
    for (const int64_t Sk : {90, 300}) {
      const Operands x = draw(random, dtype(), 1, 2, 1, 70, Sk, D, 16);
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
  AttentionDraw random(9);
  for (const int64_t D : {8, 64, 128}) {
    const Operands x = draw(random, dtype(), 1, 1, 1, 40, 90, D, 8);
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

// Without a mask or a bias, by the product alone, in tiles that hide nothing by place.
TEST_P(AttentionCudaOf, AKeyOfMinusInfiniteScoreIsHidden) {
  AttentionDraw random(19);
  for (const int64_t D : {8, 64, 128, 256}) {
    Operands x = draw(random, dtype(), 1, 2, 1, 130, 300, D, 24);
    x.q = full({1, 2, 130, D}, dtype(), 0.25);
    for (const int64_t key : {0, 5, 128, 299}) {
      for (int64_t d = 0; d < D; ++d) put(x.k, key * D + d, -kInf);
      for (const int64_t c : {0, 9, 23}) put(x.v, key * 24 + c, c == 9 ? kInf : kNan);
    }
    check(random, x, {});
    check(random, x, {.causal = true, .sinks = random.dense({2}, float32)});
    put(x.v, 7 * 24 + 9, kInf);  // of a visible key
    check(random, x, {});
    x.q = narrow(x.q, 2, 0, 1);
    check(random, x, {.causal = true});
    for (int64_t i = 0; i < x.k.numel(); ++i) put(x.k, i, -kInf);
    check(random, x, {});
  }
}

// A kernel whose tiles do not stay in registers is right and slow. What is planned once a task may lie elsewhere.
TEST_F(AttentionCuda, HopperKernelsKeepTilesInRegisters) {
  if (!cuda::capability(kGpu).hopper) GTEST_SKIP() << "of Hopper's kernels";
  for (const auto& kernels : {attn::flash_spilled_bytes_bfloat16(), attn::flash_spilled_bytes_float16()})
    for (size_t i = 0; i < kernels.size(); ++i) EXPECT_LE(kernels[i], 128) << "kernel " << i;
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
  AttentionDraw random(10);
  const Operands x = draw(random, dtype(), 2, 2, 1, 5, 3, 8, 8);
  const Operands none{x.q, Tensor::empty({2, 1, 0, 8}, dtype()), Tensor::empty({2, 1, 0, 8}, dtype())};
  const Tensor sinks = random.dense({2}, float32);
  check(random, none, {});
  check(random, none, {.causal = true, .sinks = sinks});
  check(random, x, {.causal = true, .sinks = sinks});  // the first two rows see no key
  check(random, x, {.bias = full({1}, float32, -kInf)});
  check(random, x, {.mask = full({1, 1, 1, 3}, boolean, 0)});
  check(random, x, {.causal = Causal::kTopLeft, .window = {0, 0}});
}

TEST_P(AttentionCudaOf, LowestFloatIsAUniformRow) {
  AttentionDraw random(11);
  const Operands x = draw(random, dtype(), 1, 1, 1, 3, 5, 8, 4);
  const double lowest = static_cast<double>(std::numeric_limits<float>::lowest());
  for (const std::string& strategy : strategies_for(x)) {
    const AttentionResult got =
        attention(on_gpu(x.q), on_gpu(x.k), on_gpu(x.v),
                  {.bias = on_gpu(full({5}, float32, lowest)), .strategy = strategy, .return_lse = true});
    const Tensor out = on_cpu(got.out);
    for (int64_t c = 0; c < 4; ++c) {
      double mean = 0;
      for (int64_t j = 0; j < 5; ++j) mean += reference::at(x.v, {0, 0, j, c}) / 5;
      EXPECT_NEAR(reference::at(out, {0, 0, 1, c}), mean, item_size(dtype()) == 2 ? 0.01 : 1e-6) << strategy;
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
  AttentionDraw random(12);
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
  Tensor x = on_gpu(full({1, 1, 2, 4}, float64, 1));
  const auto text = [&](const std::string& strategy) -> std::string {
    try {
      attention(x, x, x, {.strategy = strategy});
    } catch (const UnsupportedError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(text("flash_tensorcore").find("float16, bfloat16 or float32"), std::string::npos)
      << text("flash_tensorcore");
  EXPECT_EQ(text("fallback"), "");
  EXPECT_EQ(text("flash_unit"), "");
  x = on_gpu(full({1, 1, 2, 129}, float32, 1));
  EXPECT_NE(text("flash_tensorcore").find("up to 128 of float32"), std::string::npos) << text("flash_tensorcore");
}

// Few queries: heads of a group share tiles, and keys are cut into parts.
TEST_P(AttentionCudaOf, DecodeStepsMatchTheReference) {
  AttentionDraw random(18);
  for (const int64_t D : {64, 128}) {
    const Operands x = draw(random, dtype(), 2, 6, 2, 2, 1300, D, 32);
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

}  // namespace
}  // namespace tenor
