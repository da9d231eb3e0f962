// The family on CUDA against the float64 reference, and its rows alone, again and in other company bit for bit.
#include "src/cuda/testing.h"
#include "src/ops/gated_delta/gated_delta_testing.h"
#include "tenor/modes.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using testing::delta_tolerance;
using testing::delta_wanted;
using testing::DeltaCase;
using testing::DeltaShape;
using testing::Draw;
using testing::full;
using testing::kFloats;
using testing::kGpu;
using testing::kNan;
using testing::list;
using testing::on_cpu;
using testing::on_gpu;
using testing::random_delta;
using testing::relative_error;
using testing::run_delta;
using testing::same_bits;
using testing::values;

using GatedDeltaCuda = testing::CudaTest;

GatedDeltaOptions moved(GatedDeltaOptions o) {
  for (Tensor* x : {&o.initial_state, &o.cu_seqlens, &o.state, &o.state_indices, &o.has_initial_state}) *x = on_gpu(*x);
  return o;
}
DeltaCase moved(const DeltaCase& c) {
  return {on_gpu(c.query), on_gpu(c.key), on_gpu(c.value), on_gpu(c.beta), on_gpu(c.decay), moved(c.options)};
}
/// Rows [begin, end) of the batch.
DeltaCase rows(const DeltaCase& c, int64_t begin, int64_t end) {
  const auto cut = [&](const Tensor& x) { return slice(x, 0, begin, end); };
  return {cut(c.query), cut(c.key), cut(c.value), cut(c.beta), cut(c.decay), c.options};
}

/// Whether "auto" takes the chunk form to Hopper's tensor cores.
bool takes_tensor_cores(const DeltaCase& c, int64_t chunk) {
  const int64_t K = c.query.shape(3), V = c.value.shape(3);
  if (chunk == 0 || V == 0 || (K != 64 && K != 128)) return false;
  if (c.query.dtype() == bfloat16) return V % 64 == 0;
  return c.query.dtype() != float64 && V % 16 == 0;
}

double output_tolerance(const DeltaCase& c, int64_t chunk) {
  return delta_tolerance(c.query.dtype(), takes_tensor_cores(c, chunk));
}
/// What the tensor cores' rounding of factors may leave in a state.
double state_tolerance(const DeltaCase& c, int64_t chunk) {
  if (!takes_tensor_cores(c, chunk) || c.query.dtype() == float32) return 2e-5;
  return c.query.dtype() == bfloat16 ? 0x1p-7 : 0x1p-10;
}

/// Every form into poisoned results, against the reference.
void check(Draw& draw, const DeltaCase& c, const std::string& what,
           std::initializer_list<int64_t> chunks = {0, 1, 16, 32, 64, 128}) {
  const auto want = delta_wanted(c);
  for (int64_t chunk : chunks) {
    DeltaCase gpu = moved(c);
    gpu.options.out = {
        on_gpu(draw.poisoned(c.value.shape(), c.query.dtype())),
        on_gpu(draw.poisoned({c.states(), c.value_heads(), c.query.shape(3), c.value.shape(3)}, float32))};
    const GatedDeltaResult got = run_delta(gpu, chunk);
    EXPECT_LE(relative_error(values(on_cpu(got.output)), want.output), output_tolerance(c, chunk))
        << what << " chunk " << chunk;
    EXPECT_LE(relative_error(values(on_cpu(got.final_state)), want.final_state), state_tolerance(c, chunk))
        << what << " chunk " << chunk;
  }
}

TEST_F(GatedDeltaCuda, MatchesTheReferenceOnRandomShapes) {
  Draw draw(1);
  for (DType dtype : kFloats)
    for (int round = 0; round < 12; ++round)
      check(draw, testing::varied_delta(draw, round, dtype),
            std::string(name(dtype)) + " round " + std::to_string(round));
}

TEST_F(GatedDeltaCuda, TheSizesOfFastKernels) {
  Draw draw(2);
  for (DType dtype : {bfloat16, float16, float32})
    for (int64_t K : {64, 128, 256})
      for (int64_t steps : {1, 5, 64, 130, 200}) {
        const bool by_channel = K == 256 || steps == 5 || steps == 200;
        const DeltaShape s{2, 1, 2, steps, K, K == 64 ? 64 : 128, by_channel, steps % 2 == 1};
        DeltaCase c = random_delta(draw, s, dtype);
        c.options.initial_state = draw.dense({2, 2, K, s.value_dim}, float32);
        c.options.qk_normalize = steps == 130;
        check(draw, c, std::string(name(dtype)) + " K " + std::to_string(K) + " T " + std::to_string(steps),
              {0, 16, 64, 128});
      }
}

/// Columns that do not fill a block's warps, strides and addresses that rows have to be copied from, several heads.
TEST_F(GatedDeltaCuda, ValuesOfAnyMultipleOfSixteen) {
  Draw draw(14);
  for (DType dtype : {float16, float32})
    for (int64_t V : {16, 48, 80, 144})
      for (const auto& [steps, by_channel] : {std::pair{63, false}, {129, false}, {63, true}, {201, true}}) {
        DeltaCase c = random_delta(draw, {2, 2, 2, steps, V == 48 ? 64 : 128, V, by_channel, V == 16}, dtype);
        c.options.qk_normalize = V == 80;
        if (V == 144) c.options.initial_state = draw.view({2, 4, 128, V}, float32);
        check(draw, c, std::string(name(dtype)) + " V " + std::to_string(V) + (by_channel ? " by channel" : ""),
              {32, 64});
      }
}

TEST_F(GatedDeltaCuda, PackedSequencesAndPools) {
  Draw draw(3);
  struct Variant {
    DType dtype;
    int64_t key_dim;
    bool by_channel;
  };
  for (const auto& [dtype, K, by_channel] :
       {Variant{bfloat16, 24, false}, Variant{bfloat16, 128, false}, Variant{bfloat16, 128, true},
        Variant{bfloat16, 64, true}, Variant{float32, 24, false}, Variant{float32, 128, true},
        Variant{float32, 128, false}, Variant{float16, 64, false}, Variant{float16, 64, true},
        Variant{float16, 128, true}}) {
    DeltaCase c = random_delta(draw, {1, 2, 2, 300, K, 64, by_channel}, dtype);
    c.options.cu_seqlens = list({0, 0, 17, 17, 18, 183, 283, 283}, K == 24 ? int32 : int64);  // ends below T
    c.options.initial_state = draw.dense({7, 4, K, 64}, float32);
    check(draw, c, "packed", {0, 16, 64});
    for (int64_t chunk : {0, 64}) {
      const GatedDeltaResult got = run_delta(moved(c), chunk);
      for (int64_t empty : {0, 2, 6})
        EXPECT_TRUE(same_bits(on_cpu(select(got.final_state, 0, empty)), select(c.options.initial_state, 0, empty)));
    }
    const Tensor pool = draw.dense({9, 4, K, 64}, float32);
    c.options.initial_state = {}, c.options.state = pool;
    c.options.state_indices = list({8, 1, -1, 0, 5, 3, 2}, int32);
    c.options.has_initial_state = list({1, 0, 1, 1, 1, 1, 0}, boolean);
    const auto want = delta_wanted(c);
    const int64_t n = 4 * K * 64;
    for (int64_t chunk : {0, 16, 64}) {
      const DeltaCase gpu = moved(c);
      const GatedDeltaResult got = run_delta(gpu, chunk);
      EXPECT_LE(relative_error(values(on_cpu(got.output)), want.output), output_tolerance(c, chunk));
      const Tensor after = on_cpu(gpu.options.state);
      for (const auto& [slot, sequence] : {std::pair{8, 0}, {1, 1}, {0, 3}, {5, 4}, {3, 5}, {2, 6}})
        EXPECT_LE(relative_error(values(select(after, 0, slot)), {want.final_state.begin() + sequence * n,
                                                                  want.final_state.begin() + (sequence + 1) * n}),
                  state_tolerance(c, chunk))
            << slot;
      for (int64_t slot : {4, 6, 7}) EXPECT_TRUE(same_bits(select(after, 0, slot), select(pool, 0, slot)));
    }
  }
}

/// One step of each sequence, which has a kernel of its own: in place, some skipped, some from zeros, values that are
/// more than a block's columns, grouped heads.
TEST_F(GatedDeltaCuda, OneStepInAPool) {
  Draw draw(19);
  for (DType dtype : {bfloat16, float16, float32})
    for (const auto& [K, V] : {std::pair{128, 128}, {64, 192}, {128, 96}})
      for (bool by_channel : {false, true}) {
        DeltaCase c = random_delta(draw, {6, 2, 2, 1, K, V, by_channel, by_channel}, dtype);
        for (Tensor* x : {&c.query, &c.key, &c.value, &c.decay}) *x = x->clone();  // dense, as the kernel takes them
        const Tensor pool = draw.dense({9, 4, K, V}, float32);
        c.options.state = pool, c.options.qk_normalize = V == 192;
        c.options.state_indices = list({8, -1, 0, 5, -1, 2}, int64);
        c.options.has_initial_state = list({1, 1, 0, 1, 0, 1}, boolean);
        const auto want = delta_wanted(c);
        DeltaCase gpu = moved(c);
        gpu.options.out.output = on_gpu(draw.poisoned({6, 4, 1, V}, dtype));
        const std::string what =
            std::string(name(dtype)) + " K " + std::to_string(K) + " V " + std::to_string(V) + (by_channel ? " c" : "");
        EXPECT_LE(relative_error(values(on_cpu(run_delta(gpu).output)), want.output), output_tolerance(c, 0)) << what;
        const Tensor after = on_cpu(gpu.options.state);
        const int64_t n = int64_t{4} * K * V;
        for (const auto& [slot, sequence] : {std::pair{8, 0}, {0, 2}, {5, 3}, {2, 5}})
          EXPECT_LE(relative_error(values(select(after, 0, slot)), {want.final_state.begin() + sequence * n,
                                                                    want.final_state.begin() + (sequence + 1) * n}),
                    2e-5)
              << what << " " << slot;
        for (int64_t slot : {1, 3, 4, 6, 7}) EXPECT_TRUE(same_bits(select(after, 0, slot), select(pool, 0, slot)));
      }
}

TEST_F(GatedDeltaCuda, RowsAloneAgainAndInOtherCompany) {
  Draw draw(4);
  // 512 heads of 128 x 128: enough for the kernel that streams states, and for two warpgroups a block.
  for (const auto& [dtype, chunk] : {std::pair{bfloat16, 0}, {bfloat16, 64}, {float16, 64}, {float32, 64}}) {
    const DeltaCase all = moved(random_delta(draw, {64, 8, 1, 3, 128, 128}, dtype));
    const GatedDeltaResult got = run_delta(all, chunk), again = run_delta(all, chunk),
                           one = run_delta(rows(all, 5, 6), chunk);
    EXPECT_TRUE(same_bits(on_cpu(got.output), on_cpu(again.output)));
    EXPECT_TRUE(same_bits(on_cpu(got.final_state), on_cpu(again.final_state)));
    EXPECT_TRUE(same_bits(on_cpu(one.output), on_cpu(slice(got.output, 0, 5, 6)))) << chunk;
    EXPECT_TRUE(same_bits(on_cpu(one.final_state), on_cpu(slice(got.final_state, 0, 5, 6)))) << chunk;
  }
}

TEST_F(GatedDeltaCuda, LaterStepsChangeNothingBefore) {
  Draw draw(5);
  struct Variant {
    DType dtype;
    bool by_channel;
  };
  for (const auto& [dtype, by_channel] : {Variant{bfloat16, false}, Variant{bfloat16, true}, Variant{float32, false},
                                          Variant{float16, false}, Variant{float32, true}, Variant{float16, true}})
    for (int64_t chunk : {0, 16, 64}) {
      const DeltaCase a = random_delta(draw, {1, 1, 1, 90, 128, 64, by_channel}, dtype);
      const DeltaCase b = testing::poisoned_after(a, 41);
      const Tensor before = slice(on_cpu(run_delta(moved(a), chunk).output), 2, 0, 41),
                   after = slice(on_cpu(run_delta(moved(b), chunk).output), 2, 0, 41);
      EXPECT_TRUE(same_bits(before, after)) << chunk;
      EXPECT_TRUE(std::isnan(values(on_cpu(run_delta(moved(b), chunk).output))[41 * 64])) << chunk;
    }
}

TEST_F(GatedDeltaCuda, StrongDecaysGiveNoNan) {
  Draw draw(6);
  for (bool by_channel : {false, true})
    for (double decay : {-30.0, -1e4, -testing::kInf})
      for (const auto& [steps, dtype] :
           {std::pair{17, bfloat16}, {65, bfloat16}, {130, bfloat16}, {130, float16}, {65, float32}}) {
        DeltaCase c = random_delta(draw, {1, 1, 1, steps, 64, 64, by_channel}, dtype);
        c.decay = testing::filled(c.decay.shape(), float32, [&](int64_t i) { return i % 3 ? decay : -0.1; });
        check(draw, c, "decay " + std::to_string(decay), {0, 16, 64});
      }
}

TEST_F(GatedDeltaCuda, LongSequencesStayWithinTheBound) {
  Draw draw(7);
  const DeltaCase c = random_delta(draw, {1, 1, 1, 16384, 128, 64, false, false, 0.05}, bfloat16);
  const auto want = delta_wanted(c);
  for (int64_t chunk : {0, 64}) {
    const GatedDeltaResult got = run_delta(moved(c), chunk);
    const auto o = values(on_cpu(got.output)), s = values(on_cpu(got.final_state));
    const auto root_mean_square = [](const std::vector<double>& x, const std::vector<double>& y) {
      double error = 0, all = 0;
      for (size_t i = 0; i < y.size(); ++i) error += (x[i] - y[i]) * (x[i] - y[i]), all += y[i] * y[i];
      return std::sqrt(error / all);
    };
    EXPECT_LE(root_mean_square(o, want.output), 0x1p-8) << chunk;
    // The worst of single elements, relative to the largest; a rounding to bfloat16 alone leaves half of 2^-8.
    EXPECT_LE(relative_error(o, want.output), 1.25 * 0x1p-8) << chunk;
    EXPECT_LE(relative_error(s, want.final_state), 0x1p-8) << chunk;
    EXPECT_LE(root_mean_square(s, want.final_state), 0x1p-8) << chunk;
  }
}

/// Without decays nothing is forgotten: what each product cut off would add up.
TEST_F(GatedDeltaCuda, LongSequencesOfOtherTypesStayWithinTheirs) {
  Draw draw(15);
  for (DType dtype : {float32, float16})
    for (const auto& [strongest, by_channel] : {std::pair{0.0, false}, {0.05, false}, {0.0, true}, {0.05, true}}) {
      DeltaCase c = random_delta(draw, {1, 1, 1, 16384, 128, 16, by_channel, false, strongest}, dtype);
      c.options.qk_normalize = true;
      check(draw, c, std::string(name(dtype)) + (by_channel ? " long by channel" : " long"), {0, 64});
    }
}

/// A call in segments, twice. Steps change little and nothing decays fast, so that a segment's end depends on its
/// start.
void check_segments(Draw& draw, DeltaCase c, const std::string& what) {
  std::vector<double> weak = values(c.beta);
  for (double& x : weak) x /= 16;
  testing::assign(c.beta, weak);
  check(draw, c, what, {64});
  const GatedDeltaResult got = run_delta(moved(c), 64), again = run_delta(moved(c), 64);
  EXPECT_TRUE(same_bits(on_cpu(got.output), on_cpu(again.output))) << what;
  EXPECT_TRUE(same_bits(on_cpu(got.final_state), on_cpu(again.final_state))) << what;
  const BatchInvariantGuard guard;  // which has none of them: that the case is in segments at all
  EXPECT_FALSE(same_bits(on_cpu(got.final_state), on_cpu(run_delta(moved(c), 64).final_state))) << what;
}

/// Long enough for a sequence of few heads to be computed in segments, which with decays by channel pay later.
TEST_F(GatedDeltaCuda, SegmentsOfALongSequence) {
  Draw draw(10);
  for (bool by_channel : {false, true})
    for (int64_t K : {64, 128})
      for (int64_t steps : {3072, 3200, 4133}) {
        if (by_channel) steps += 5120;
        DeltaCase c = random_delta(draw, {1, 1, 2, steps, K, 128, by_channel, false, 0.001}, bfloat16);
        if (steps % 100 != 0) c.options.initial_state = draw.dense({1, 2, K, 128}, float32);
        check_segments(draw, c, "K " + std::to_string(K) + " T " + std::to_string(steps));
      }
}

/// The shortest that float32 and float16 cut, for checkers of races too.
TEST_F(GatedDeltaCuda, TheFewestSegments) {
  Draw draw(17);
  for (DType dtype : {float32, float16})
    for (bool by_channel : {false, true}) {
      DeltaCase c = random_delta(draw, {1, 1, 1, 1500, 64, 16, by_channel, false, 0.001}, dtype);
      c.options.initial_state = draw.dense({1, 1, 64, 16}, float32);
      check_segments(draw, c, std::string(name(dtype)) + (by_channel ? " by channel" : ""));
    }
}

/// Of float32 and float16, whose last unit of columns may be narrower; by channel at K of 64 and not, no decay at all.
TEST_F(GatedDeltaCuda, SegmentsOfOtherTypes) {
  Draw draw(16);
  struct Variant {
    DType dtype;
    bool by_channel;
    int64_t K, V, steps;
    double strongest;
  };
  for (const auto& [dtype, by_channel, K, V, steps, strongest] :
       {Variant{float32, false, 128, 80, 4133, 0.001}, Variant{float32, false, 64, 16, 3072, 0},
        Variant{float32, true, 128, 128, 3200, 0.001}, Variant{float32, true, 64, 48, 4133, 0},
        Variant{float16, false, 128, 144, 3200, 0.001}, Variant{float16, false, 64, 64, 4133, 0},
        Variant{float16, true, 128, 112, 4133, 0.001}, Variant{float16, true, 64, 32, 3072, 0}}) {
    DeltaCase c = random_delta(draw, {1, 1, 2, steps, K, V, by_channel, false, strongest}, dtype);
    c.options.qk_normalize = true;
    if (steps != 3200) c.options.initial_state = draw.dense({1, 2, K, V}, float32);
    check_segments(draw, c, std::string(name(dtype)) + (by_channel ? " by channel" : "") + " K " + std::to_string(K));
  }
}

/// A state that a call starts from and leaves: the bits of one that is written elsewhere, whole and in segments.
TEST_F(GatedDeltaCuda, StatesInPlace) {
  Draw draw(20);
  struct Variant {
    DType dtype;
    int64_t steps, chunk;
    bool by_channel;
  };
  for (const auto& [dtype, steps, chunk, by_channel] :
       {Variant{bfloat16, 1, 0, false}, Variant{bfloat16, 5, 0, true}, Variant{bfloat16, 4133, 64, false},
        Variant{bfloat16, 4133, 64, true}, Variant{float32, 4133, 64, false}, Variant{float16, 4133, 64, true},
        Variant{float16, 130, 64, true}, Variant{float32, 130, 64, true}, Variant{float32, 130, 64, false},
        Variant{float64, 70, 16, false}}) {
    DeltaCase c = random_delta(draw, {1, 1, 2, steps, 128, 128, by_channel, false, 0.05}, dtype);
    c.options.initial_state = draw.dense({1, 2, 128, 128}, float32);
    const DeltaCase apart = moved(c);
    DeltaCase onto = moved(c);
    onto.options.out = {on_gpu(draw.poisoned(c.value.shape(), dtype)), onto.options.initial_state};
    const GatedDeltaResult want = run_delta(apart, chunk), got = run_delta(onto, chunk);
    EXPECT_EQ(got.final_state.raw(), onto.options.initial_state.raw());
    EXPECT_TRUE(same_bits(on_cpu(got.output), on_cpu(want.output))) << name(dtype) << " " << steps;
    EXPECT_TRUE(same_bits(on_cpu(got.final_state), on_cpu(want.final_state))) << name(dtype) << " " << steps;
  }
}

TEST_F(GatedDeltaCuda, SegmentsOfPackedSequences) {
  Draw draw(11);
  for (DType dtype : {bfloat16, float32, float16}) {
    DeltaCase c = random_delta(draw, {1, 1, 1, 9000, 128, 64, false, false, 0.05}, dtype);
    c.options.cu_seqlens = list({0, 0, 4100, 4101, 4165, 4165, 7999, 8990}, int64);  // ends below T
    const Tensor pool = draw.dense({9, 1, 128, 64}, float32);
    c.options.state = pool;
    c.options.state_indices = list({8, 1, -1, 0, 5, 3, 2}, int32);
    c.options.has_initial_state = list({1, 1, 1, 1, 1, 0, 1}, boolean);
    const auto want = delta_wanted(c);
    const DeltaCase gpu = moved(c);
    const GatedDeltaResult got = run_delta(gpu, 64);
    EXPECT_LE(relative_error(values(on_cpu(got.output)), want.output), delta_tolerance(dtype, true)) << name(dtype);
    const Tensor after = on_cpu(gpu.options.state);
    const int64_t n = 128 * 64;
    for (const auto& [slot, sequence] : {std::pair{8, 0}, {1, 1}, {0, 3}, {5, 4}, {3, 5}, {2, 6}})
      EXPECT_LE(relative_error(values(select(after, 0, slot)), {want.final_state.begin() + sequence * n,
                                                                want.final_state.begin() + (sequence + 1) * n}),
                state_tolerance(c, 64))
          << slot << " " << name(dtype);
    for (int64_t slot : {4, 6, 7}) EXPECT_TRUE(same_bits(select(after, 0, slot), select(pool, 0, slot)));
  }
}

TEST_F(GatedDeltaCuda, SegmentsLetNothingLaterReachWhatIsBefore) {
  Draw draw(12);
  for (DType dtype : {bfloat16, float32, float16}) {
    const DeltaCase a = random_delta(draw, {1, 1, 1, 4000, 128, 64, false, false, 0.05}, dtype);
    for (int64_t at : {41, 1500, 3990}) {
      const DeltaCase b = testing::poisoned_after(a, at);
      const Tensor before = on_cpu(run_delta(moved(a), 64).output), after = on_cpu(run_delta(moved(b), 64).output);
      EXPECT_TRUE(same_bits(slice(before, 2, 0, at), slice(after, 2, 0, at))) << at << " " << name(dtype);
      for (double v : values(slice(after, 2, at, 4000))) ASSERT_TRUE(std::isnan(v)) << at << " " << name(dtype);
    }
  }
}

TEST_F(GatedDeltaCuda, NoSegmentsWhereRowsMustNotDependOnTheBatch) {
  Draw draw(13);
  for (DType dtype : {bfloat16, float32, float16}) {
    const DeltaCase all = moved(random_delta(draw, {5, 4, 2, 3100, 64, 64, false, false, 0.05}, dtype));
    const BatchInvariantGuard guard;
    const GatedDeltaResult got = run_delta(all, 64), one = run_delta(rows(all, 3, 4), 64);
    EXPECT_TRUE(same_bits(on_cpu(one.output), on_cpu(slice(got.output, 0, 3, 4)))) << name(dtype);
    EXPECT_TRUE(same_bits(on_cpu(one.final_state), on_cpu(slice(got.final_state, 0, 3, 4)))) << name(dtype);
  }
}

/// The next wait reports a bad entry of that argument.
void expect_flag(const std::string& argument) {
  try {
    synchronize(kGpu);
    ADD_FAILURE() << "no error about " << argument;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(argument), std::string::npos) << e.what();
  }
}

TEST_F(GatedDeltaCuda, BadContentsRaiseTheFlagAndTouchNothing) {
  Draw draw(8);
  DeltaCase c = moved(random_delta(draw, {3, 1, 1, 4, 128, 128}, bfloat16));
  const Tensor pool = draw.dense({4, 1, 128, 128}, float32);
  for (int64_t chunk : {0, 16, 64}) {
    c.options.state = on_gpu(pool);
    c.options.state_indices = on_gpu(list({2, 7, 2}, int64));  // out of range, and a slot named twice
    const Tensor out = run_delta(c, chunk).output;
    expect_flag("state_indices");
    const Tensor after = on_cpu(c.options.state), y = on_cpu(out);
    for (int64_t slot : {0, 1, 3}) EXPECT_TRUE(same_bits(select(after, 0, slot), select(pool, 0, slot)));
    for (int64_t row : {1, 2})
      for (double v : values(select(y, 0, row))) EXPECT_EQ(v, 0);
  }
  // One step of each, which has a kernel of its own; the greatest number of uint64 skips nothing.
  DeltaCase one = moved(random_delta(draw, {3, 1, 1, 1, 128, 128}, bfloat16));
  for (const Tensor& slots : {list({2, 7, 2}, int64), list({2, -1, 2}, int64).to(uint64)}) {
    one.options.state = on_gpu(pool), one.options.state_indices = on_gpu(slots);
    one.options.out.output = on_gpu(draw.poisoned({3, 1, 1, 128}, bfloat16));
    const Tensor out = run_delta(one).output;
    expect_flag("state_indices");
    const Tensor after = on_cpu(one.options.state), y = on_cpu(out);
    for (int64_t slot : {0, 1, 3}) EXPECT_TRUE(same_bits(select(after, 0, slot), select(pool, 0, slot)));
    for (int64_t row : {1, 2})
      for (double v : values(select(y, 0, row))) EXPECT_EQ(v, 0);
  }
  DeltaCase packed = moved(random_delta(draw, {1, 1, 1, 70, 128, 64}, bfloat16));
  packed.options.cu_seqlens = on_gpu(list({0, 50, 40, 90}, int64));
  for (int64_t chunk : {0, 16, 64}) {
    run_delta(packed, chunk);
    expect_flag("cu_seqlens");
  }
  EXPECT_THROW(chunk_gated_delta_rule(c.query, c.key, c.value, c.beta, c.decay, {.chunk_size = 241}), UnsupportedError);
}

}  // namespace
}  // namespace tenor
