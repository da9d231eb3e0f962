#include "tenor/gated_delta.h"

#include "src/ops/gated_delta/gated_delta_testing.h"
#include "tenor/explain.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using testing::delta_tolerance;
using testing::delta_wanted;
using testing::DeltaCase;
using testing::DeltaShape;
using testing::Draw;
using testing::expect_error;
using testing::full;
using testing::kNan;
using testing::list;
using testing::random_delta;
using testing::relative_error;
using testing::run_delta;
using testing::same_bits;
using testing::values;

constexpr int64_t kForms[] = {0, 1, 16, 32, 64, 128};  // step by step, and sizes of chunks

/// Every form into poisoned results, against the reference.
void check(Draw& draw, const DeltaCase& c, const std::string& what) {
  const auto want = delta_wanted(c);
  const DType dtype = c.query.dtype();
  for (int64_t chunk : kForms) {
    auto o = c.options;
    o.out = {draw.poisoned(c.value.shape(), dtype),
             draw.poisoned({c.states(), c.value_heads(), c.query.shape(3), c.value.shape(3)}, float32)};
    const GatedDeltaResult got = run_delta(c, chunk, o);
    EXPECT_LE(relative_error(values(got.output), want.output), delta_tolerance(dtype)) << what << " chunk " << chunk;
    EXPECT_LE(relative_error(values(got.final_state), want.final_state), dtype == float64 ? 1e-7 : 2e-5)
        << what << " chunk " << chunk;
  }
}

class GatedDelta : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Floats, GatedDelta, ::testing::Values(float64, float32, float16, bfloat16),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(GatedDelta, MatchesTheReferenceOnRandomShapes) {
  Draw draw(1);
  for (int round = 0; round < 24; ++round)
    check(draw, testing::varied_delta(draw, round, GetParam()), "round " + std::to_string(round));
}

TEST_P(GatedDelta, PackedSequences) {
  Draw draw(2);
  for (bool by_channel : {false, true}) {
    const DeltaShape s{1, 2, 2, 100, 24, 40, by_channel};
    DeltaCase c = random_delta(draw, s, GetParam());
    c.options.cu_seqlens = list({0, 0, 17, 17, 18, 83, 83}, by_channel ? int32 : int64);  // ends below T
    c.options.initial_state = draw.view({6, 4, 24, 40}, float32);
    check(draw, c, "packed");
    const GatedDeltaResult got = run_delta(c, 64);
    for (int64_t empty : {0, 2, 5})
      EXPECT_TRUE(same_bits(select(got.final_state, 0, empty), select(c.options.initial_state, 0, empty)));
    for (double v : values(slice(got.output, 2, 83, 100))) EXPECT_EQ(v, 0);
    for (int64_t chunk : {0, 64}) {  // a sequence alone gives the same bits
      const DeltaCase alone{slice(c.query, 2, 18, 83), slice(c.key, 2, 18, 83),
                            slice(c.value, 2, 18, 83), slice(c.beta, 2, 18, 83),
                            slice(c.decay, 2, 18, 83), {.initial_state = slice(c.options.initial_state, 0, 4, 5)}};
      const GatedDeltaResult one = run_delta(alone, chunk), all = run_delta(c, chunk);
      EXPECT_TRUE(same_bits(one.output, slice(all.output, 2, 18, 83))) << chunk;
      EXPECT_TRUE(same_bits(one.final_state, slice(all.final_state, 0, 4, 5))) << chunk;
    }
  }
}

TEST_P(GatedDelta, APoolIsUpdatedInPlace) {
  Draw draw(3);
  const DeltaShape s{3, 1, 2, 5, 12, 20};
  for (int64_t chunk : kForms) {
    DeltaCase c = random_delta(draw, s, GetParam());
    const Tensor pool = draw.view({6, 2, 12, 20}, float32), before = pool.clone();
    c.options.state = pool;
    c.options.state_indices = list({4, -1, 0}, int32);
    c.options.has_initial_state = list({1, 1, 0}, boolean);
    const auto want = delta_wanted(c);
    const GatedDeltaResult got = run_delta(c, chunk);
    EXPECT_EQ(got.final_state.raw(), pool.raw());
    EXPECT_LE(relative_error(values(got.output), want.output), delta_tolerance(GetParam()));
    const auto state = [&](int64_t n) {
      return std::vector<double>(want.final_state.begin() + n * 480, want.final_state.begin() + (n + 1) * 480);
    };
    EXPECT_LE(relative_error(values(select(pool, 0, 4)), state(0)), 2e-5);
    EXPECT_LE(relative_error(values(select(pool, 0, 0)), state(2)), 2e-5);
    for (int64_t slot : {1, 2, 3, 5}) EXPECT_TRUE(same_bits(select(pool, 0, slot), select(before, 0, slot)));
    for (double v : values(select(got.output, 0, 1))) EXPECT_EQ(v, 0);
  }
}

TEST_P(GatedDelta, ThreadsAndNeighboursDoNotShow) {
  Draw draw(4);
  const DeltaCase c = random_delta(draw, {3, 2, 2, 70, 32, 100}, GetParam());
  for (int64_t chunk : {0, 16, 64}) {
    const testing::Threads one(1);
    const GatedDeltaResult serial = run_delta(c, chunk);
    const testing::Threads many(7);
    const GatedDeltaResult parallel = run_delta(c, chunk);
    EXPECT_TRUE(same_bits(serial.output, parallel.output));
    EXPECT_TRUE(same_bits(serial.final_state, parallel.final_state));
    const auto row = [](const Tensor& x) { return slice(x, 0, 1, 2); };
    const GatedDeltaResult alone =
        run_delta({row(c.query), row(c.key), row(c.value), row(c.beta), row(c.decay)}, chunk);
    EXPECT_TRUE(same_bits(alone.output, row(serial.output)));
    EXPECT_TRUE(same_bits(alone.final_state, row(serial.final_state)));
  }
}

TEST_P(GatedDelta, LaterStepsChangeNothingBefore) {
  Draw draw(5);
  for (bool by_channel : {false, true})
    for (int64_t chunk : kForms) {
      const DeltaCase a = random_delta(draw, {1, 1, 1, 90, 16, 24, by_channel}, GetParam());
      const DeltaCase b = testing::poisoned_after(a, 41);
      EXPECT_TRUE(same_bits(slice(run_delta(a, chunk).output, 2, 0, 41), slice(run_delta(b, chunk).output, 2, 0, 41)))
          << chunk;
    }
}

TEST(GatedDeltaRule, StrongDecaysGiveNoNan) {
  Draw draw(6);
  for (bool by_channel : {false, true})
    for (double decay : {-30.0, -1e4, -1e30, -testing::kInf})
      for (int64_t steps : {1, 17, 63, 65, 130})
        for (int64_t chunk : kForms) {
          DeltaCase c = random_delta(draw, {1, 1, 1, steps, 20, 12, by_channel}, float32);
          const Dims shape = c.decay.shape();
          c.decay = testing::filled(shape, float32, [&](int64_t i) { return i % 3 ? decay : -0.1; });
          const auto want = delta_wanted(c);
          const GatedDeltaResult got = run_delta(c, chunk);
          EXPECT_LE(relative_error(values(got.output), want.output), 2e-5) << decay << " " << steps << " " << chunk;
          EXPECT_LE(relative_error(values(got.final_state), want.final_state), 2e-5)
              << decay << " " << steps << " " << chunk;
        }
}

TEST(GatedDeltaRule, NanIsTheSequencesAlone) {
  Draw draw(7);
  DeltaCase c = random_delta(draw, {2, 1, 1, 20, 8, 8}, float32);
  testing::put(c.value, 3 * c.value.stride(2), kNan);
  for (int64_t chunk : kForms) {
    const GatedDeltaResult got = run_delta(c, chunk);
    EXPECT_TRUE(std::isnan(values(select(got.output, 0, 0))[3 * 8]));
    for (double v : values(slice(select(got.output, 0, 0), 1, 0, 3))) EXPECT_FALSE(std::isnan(v));
    for (double v : values(select(got.output, 0, 1))) EXPECT_FALSE(std::isnan(v));
  }
}

TEST(GatedDeltaRule, LongSequencesStayWithinTheBound) {
  Draw draw(8);
  const DeltaCase c = random_delta(draw, {1, 1, 1, 16384, 32, 16, false, false, 0.05}, bfloat16);
  const auto want = delta_wanted(c);
  for (int64_t chunk : {0, 64}) {
    const GatedDeltaResult got = run_delta(c, chunk);
    EXPECT_LE(relative_error(values(got.output), want.output), 0x1p-8);
    EXPECT_LE(relative_error(values(got.final_state), want.final_state), 0x1p-8);
  }
}

TEST(GatedDeltaRule, ResultsMayLieOnOperands) {
  Draw draw(9);
  const DeltaCase c = random_delta(draw, {2, 2, 1, 30, 16, 16}, float32);
  const GatedDeltaResult want = run_delta(c, 64);
  DeltaCase moved = c;
  moved.value = c.value.clone();
  moved.options.initial_state = full({2, 2, 16, 16}, float32, 0);
  moved.options.out = {moved.value, moved.options.initial_state};
  const GatedDeltaResult got = run_delta(moved, 64);
  EXPECT_EQ(got.output.raw(), moved.value.raw());
  EXPECT_TRUE(same_bits(got.output, want.output));
  EXPECT_TRUE(same_bits(got.final_state, want.final_state));
}

/// In place, without memory of its own: the bits of states that are written elsewhere.
TEST(GatedDeltaRule, StatesInPlace) {
  Draw draw(10);
  for (bool packed : {false, true})
    for (int64_t chunk : kForms) {
      DeltaCase c = random_delta(draw, {packed ? 1 : 3, 2, 2, 70, 16, 80}, float32);
      if (packed) c.options.cu_seqlens = list({0, 0, 33, 70}, int64);
      c.options.initial_state = draw.dense({3, 4, 16, 80}, float32);
      const GatedDeltaResult want = run_delta(c, chunk);
      c.options.out = {draw.poisoned(c.value.shape(), float32), c.options.initial_state};
      const GatedDeltaResult got = run_delta(c, chunk);
      EXPECT_EQ(got.final_state.raw(), c.options.initial_state.raw());
      EXPECT_TRUE(same_bits(got.output, want.output)) << chunk;
      EXPECT_TRUE(same_bits(got.final_state, want.final_state)) << chunk;
    }
}

TEST(GatedDeltaRule, ExplainSaysWhatRunsOnHopper) {
  struct Variant {
    DType dtype;
    int64_t key_dim, chunk;
    bool by_channel;
    const char *strategy, *note;
  };
  for (const auto& v : {Variant{bfloat16, 128, 64, false, "tensorcore", ""},
                        {bfloat16, 128, 16, true, "tensorcore", "64 steps at once, for chunk_size 16"},
                        {float16, 64, 128, false, "tensorcore", "64 steps at once, for chunk_size 128"},
                        {float32, 128, 64, false, "tensorcore", ""},
                        {float32, 128, 32, true, "tensorcore", "64 steps at once, for chunk_size 32"},
                        {float16, 64, 64, true, "tensorcore", ""},
                        {float64, 128, 64, false, "general", ""},
                        {bfloat16, 96, 32, false, "general", ""}}) {
    const Dims keys{1, 2, 100, v.key_dim}, values{1, 2, 100, 128}, gates{1, 2, 100};
    const std::vector<Tensor> in{full(keys, v.dtype, 0), full(keys, v.dtype, 0), full(values, v.dtype, 0),
                                 full(gates, v.dtype, 0), full(v.by_channel ? keys : gates, float32, 0)};
    const auto fn = [&](const std::vector<Tensor>& x) {
      return std::vector<Tensor>{chunk_gated_delta_rule(x[0], x[1], x[2], x[3], x[4], {.chunk_size = v.chunk}).output};
    };
    const Explanation e = explain(fn, in, {.device = "h200"});
    EXPECT_EQ(e.kernels.at(0).strategy, v.strategy) << name(v.dtype) << " " << v.key_dim << " " << v.chunk;
    EXPECT_EQ(e.steps.at(0).note, v.note);
  }
}

TEST(GatedDeltaRule, Errors) {
  const Tensor q = full({1, 2, 3, 4}, float32, 1), v = full({1, 4, 3, 5}, float32, 1), b = full({1, 4, 3}, float32, 1),
               g = b;
  const auto run = [&](const GatedDeltaOptions& o) { return [=] { gated_delta_rule(q, q, v, b, g, o); }; };
  const std::string op = "gated_delta_rule: ";
  expect_error<ShapeError>(
      [&] {
        gated_delta_rule(q, full({1, 2, 3, 5}, float32, 1), v, b, g);
      },
      op + "key must have shape (1, 2, 3, 4), got (1, 2, 3, 5)");
  expect_error<ShapeError>(
      [&] {
        gated_delta_rule(q, q, full({1, 3, 3, 5}, float32, 1), b, g);
      },
      op + "value has 3 heads, which is no multiple of query's 2");
  expect_error<ShapeError>(
      [&] {
        gated_delta_rule(q, q, v, b, full({1, 4, 2}, float32, 1));
      },
      op + "log_decay must have shape (1, 4, 3) or (1, 4, 3, 4), got (1, 4, 2)");
  expect_error<DTypeError>(
      [&] {
        gated_delta_rule(q, q, v, b, full({1, 4, 3}, bfloat16, 1));
      },
      op + "log_decay must be float32, got bfloat16");
  expect_error<DTypeError>(
      [&] {
        gated_delta_rule(q, q, v, full({1, 4, 3}, bfloat16, 1), g);
      },
      op + "beta must be float32 or query's float32, got bfloat16");
  expect_error<ValueError>(run({.query_scale = kNan}), op + "query_scale must be finite, got nan");
  expect_error<DTypeError>(run({.initial_state = full({1, 4, 4, 5}, bfloat16, 0)}),
                           op + "initial_state must be float32, got bfloat16");
  expect_error<ShapeError>(run({.initial_state = full({1, 4, 5, 4}, float32, 0)}),
                           op + "initial_state must have shape (1, 4, 4, 5), got (1, 4, 5, 4)");
  expect_error<ValueError>(run({.cu_seqlens = list({0, 4}, int64)}), op + "cu_seqlens must end at 3 at most, got 4");
  expect_error<ValueError>(run({.cu_seqlens = list({0, 2, 1}, int64)}),
                           op + "cu_seqlens must start at 0 and never decrease, got 1 at 2");
  const Tensor pool = full({3, 4, 4, 5}, float32, 0);
  expect_error<ValueError>(run({.state = pool}), op + "state needs state_indices");
  expect_error<ValueError>(run({.state_indices = list({0}, int64)}), op + "state_indices needs state");
  expect_error<ValueError>(
      run({.initial_state = full({1, 4, 4, 5}, float32, 0), .state = pool, .state_indices = list({0}, int64)}),
      op + "initial_state and state exclude each other");
  expect_error<IndexError>(run({.state = pool, .state_indices = list({3}, int64)}),
                           op + "state_indices holds 3 at 0, outside -1..2");
  expect_error<IndexError>(run({.state = pool, .state_indices = list({-2}, int32)}),
                           op + "state_indices holds -2 at 0, outside -1..2");
  expect_error<IndexError>(run({.state = pool, .state_indices = list({-1}, int64).to(uint64)}),
                           op + "state_indices holds 18446744073709551615 at 0, outside -1..2");
  expect_error<ValueError>(
      run({.cu_seqlens = list({0, 1, 2}, int64), .state = pool, .state_indices = list({1, 1}, int64)}),
      op + "state_indices names slot 1 twice, at 0 and 1");
  expect_error<ValueError>(run({.has_initial_state = full({1}, boolean, 1)}),
                           op + "has_initial_state needs state or initial_state");
  expect_error<ShapeError>(
      [&] {
        gated_delta_rule(full({2, 2, 3, 4}, float32, 1), full({2, 2, 3, 4}, float32, 1), full({2, 4, 3, 5}, float32, 1),
                         full({2, 4, 3}, float32, 1), full({2, 4, 3}, float32, 1), {.cu_seqlens = list({0, 1}, int64)});
      },
      op + "cu_seqlens needs query with B = 1, got shape (2, 2, 3, 4)");
  for (double x : values(pool)) EXPECT_EQ(x, 0);
  expect_error<ValueError>([&] { chunk_gated_delta_rule(q, q, v, b, g, {.chunk_size = 0}); },
                           "chunk_gated_delta_rule: chunk_size must be > 0, got 0");
  expect_error<UnsupportedError>([&] { chunk_gated_delta_rule(q, q, v, b, g, {.strategy = "tensorcore"}); },
                                 "chunk_gated_delta_rule: strategy 'tensorcore' cannot do this: needs a CUDA device");
}

}  // namespace
}  // namespace tenor
