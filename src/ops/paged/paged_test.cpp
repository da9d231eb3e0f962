#include "tenor/paged.h"

#include <gtest/gtest.h>

#include "src/core/output.h"
#include "src/ops/paged/paged_testing.h"
#include "tenor/create.h"

namespace tenor {
namespace {

using paged::DevicePlan;
using paged::HostPlan;
using paged::SplitWorkspace;
using reference::PagedProblem;
using testing::expect_error;
using testing::expect_values;
using testing::full;
using testing::kInf;
using testing::kNan;
using testing::same_bits;
using testing::Schedules;

paged::AttentionOptions options_of(const PagedProblem& p) {
  paged::AttentionOptions o;
  o.scale = p.scale, o.causal = p.causal, o.window = p.window, o.sinks = p.sinks, o.return_lse = true;
  if (p.softcap > 0) o.softcap = p.softcap;
  return o;
}

/// Runs into poisoned memory and compares out and lse with the reference.
void check(const PagedProblem& p, int64_t splits = 0) {
  const DevicePlan plan = DevicePlan::upload(p.plan, p.q);
  const int64_t rows = p.q.shape(0), Hq = p.q.shape(1), Dv = p.v.shape(3);
  paged::AttentionOptions o = options_of(p);
  if (splits) o.split_workspace.emplace(p.q, rows, Hq, Dv, splits);
  o.out = full({rows, Hq, Dv}, p.q.dtype(), kNan);
  o.out_lse = full({rows, Hq}, float32, kNan);
  const AttentionResult got = plan.attention(p.q, p.k, p.v, o);
  const reference::Attention want = reference::paged_attention(p);
  expect_values(splits && p.q.dtype() == float64 ? got.out.to(float32) : got.out, want.out,
                "out");  // partial states are float32
  expect_values(got.lse, want.lse, "lse");
}

class PagedOfDType : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Floats, PagedOfDType, ::testing::Values(float64, float32, float16, bfloat16),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(PagedOfDType, MatchesTheReferenceOnRandomSchedules) {
  Schedules random(1);
  for (int round = 0; round < 60; ++round) {
    const int64_t size = (int64_t[]){1, 3, 16, 64, 256}[round % 5], G = random.from_one_to(3),
                  Hq = G * random.from_one_to(4);
    const HostPlan plan = random.schedule(size, random.from_one_to(5), round % 4 ? 60 : 400);
    const int64_t D = round % 3 ? random.from_one_to(20) : 32 * random.from_one_to(3),
                  Dv = random.from_one_to(round % 5 ? 12 : 130);
    PagedProblem p{plan, random.view({plan.queries(), Hq, D}, GetParam()), random.cache(plan, G, D, GetParam()),
                   random.cache(plan, G, Dv, GetParam())};
    p.scale = round % 7 < 2 ? 0.3 : 1 / std::sqrt(static_cast<double>(D));
    p.causal = round % 4 != 1;
    if (round % 3 == 0) p.window = {random.upto(30) - 1, random.upto(30) - 1};
    if (round % 5 == 0) p.softcap = 2.5;
    if (round % 5 == 2) p.sinks = random.dense({Hq}, round % 2 ? float32 : GetParam());
    SCOPED_TRACE(::testing::Message() << "round " << round << ": page " << size << " Hq" << Hq << " G" << G << " D" << D
                                      << " Dv" << Dv);
    check(p);
    check(p, 2 + round % 5);
  }
}

TEST_P(PagedOfDType, MatchesTheReferenceOverLongSequences) {
  Schedules random(2);
  const HostPlan plan(16, 160, {std::vector<int64_t>(160)}, {2500}, {0, 0, 0}, {2497, 2498, 2499});
  PagedProblem p{plan, random.dense({3, 4, 32}, GetParam()), random.cache(plan, 1, 32, GetParam()),
                 random.cache(plan, 1, 8, GetParam())};
  p.scale = 0.2;
  check(p);
  check(p, 32);
}

TEST_P(PagedOfDType, MlaMatchesTheReference) {
  Schedules random(3);
  for (int round = 0; round < 12; ++round) {
    const int64_t H = random.from_one_to(5), R = round % 2 ? 64 : 7, P = round % 3 ? 32 : 3;
    const HostPlan plan = random.schedule(round % 2 ? 16 : 5, 3, 50);
    PagedProblem p{plan, random.view({plan.queries(), H, R}, GetParam()), random.cache(plan, 1, R, GetParam()), {}};
    p.v = p.k;
    p.qp = random.view({plan.queries(), H, P}, GetParam()), p.kp = random.cache(plan, 1, P, GetParam());
    p.scale = 0.17, p.causal = round % 4 != 0;
    const DevicePlan device = DevicePlan::upload(plan, p.q);
    paged::MlaOptions o;
    o.return_lse = true;
    if (round % 3 == 1) o.split_workspace.emplace(p.q, plan.queries(), H, R, 3);
    const AttentionResult got = device.mla(p.q, p.qp, p.k, p.kp, p.scale, p.causal, o);
    const reference::Attention want = reference::paged_attention(p);
    SCOPED_TRACE(::testing::Message() << "round " << round);
    expect_values(o.split_workspace && GetParam() == float64 ? got.out.to(float32) : got.out, want.out, "out");
    expect_values(got.lse, want.lse, "lse");
  }
}

// A sequence alone, among others, in other slots and pages, with other page sizes, prefill rows or decode rows.
TEST_P(PagedOfDType, BitsOfARowDependOnItselfAlone) {
  Schedules random(4);
  constexpr int64_t kKeys = 1300, kHeads = 4, D = 32;
  const Tensor k = random.dense({kKeys, 2, D}, GetParam()), v = random.dense({kKeys, 2, D}, GetParam()),
               q = random.dense({5, kHeads, D}, GetParam());
  const auto in_pages = [&](const Tensor& rows, int64_t size, int64_t pages, const std::vector<int64_t>& table) {
    const Tensor cache = random.dense({pages, size, 2, D}, GetParam());
    for (int64_t j = 0; j < kKeys; ++j)
      core::copy_into(narrow(rows, 0, j, 1),
                      reshape(narrow(narrow(cache, 0, table[j / size], 1), 1, j % size, 1), {1, 2, D}));
    return cache;
  };
  const auto table_of = [&](int64_t size, int64_t first) {
    std::vector<int64_t> table((kKeys + size - 1) / size);
    for (size_t i = 0; i < table.size(); ++i) table[i] = first + static_cast<int64_t>(table.size() - 1 - i);
    return table;
  };
  const std::vector<int64_t> alone = table_of(16, 0);
  const HostPlan one(16, 100, {alone}, {kKeys}, {0, 0, 0, 0, 0}, {1295, 1296, 1297, 1298, 1299});
  const Tensor want =
      DevicePlan::upload(one, q).attention(q, in_pages(k, 16, 100, alone), in_pages(v, 16, 100, alone)).out;
  const std::vector<int64_t> far = table_of(64, 3);
  const Tensor k64 = in_pages(k, 64, 40, far), v64 = in_pages(v, 64, 40, far);
  for (int64_t i = 0; i < 5; ++i) {
    // Decode as that row was reached: the sequence ends at its position.
    const HostPlan step(64, 40, {{1, 2, 0}, far}, {130, 1296 + i}, {0, 1, -1}, {129, 1295 + i, 0});
    const Tensor rows = random.dense({3, kHeads, D}, GetParam());
    core::copy_into(narrow(q, 0, i, 1), narrow(rows, 0, 1, 1));
    for (const int threads : {1, 3}) {
      const testing::Threads count(threads);
      const Tensor got = DevicePlan::upload(step, rows).attention(rows, k64, v64).out;
      EXPECT_TRUE(same_bits(narrow(got, 0, 1, 1), narrow(want, 0, i, 1)))
          << "row " << i << ", " << threads << " threads";
    }
  }
}

/// A split without keys, or whose keys all count as masked, follows one whose state is NaN.
TEST(Paged, ANaNOfASplitReachesTheResult) {
  const HostPlan plan(4, 1, {{0}}, {3}, {0}, {2});
  for (const double bad : {kNan, kInf}) {
    PagedProblem p{plan, full({1, 1, 4}, float32, 1), full({1, 4, 1, 4}, float32, 1), full({1, 4, 1, 4}, float32, 1)};
    p.k.data<float>()[0] = static_cast<float>(bad);
    check(p);
    for (const int64_t splits : {2, 5, 32}) check(p, splits);
    p.k.data<float>()[4] = p.k.data<float>()[8] = static_cast<float>(-kInf);
    for (const int64_t splits : {2, 5, 32}) check(p, splits);
  }
}

TEST(Paged, TableEntriesBehindTheLengthAreNeverRead) {
  const HostPlan plan(4, 2, {{1, 999, -7}, {-5}}, {3, 0}, {0, 1}, {2, 0});
  const Tensor q = zeros({2, 1, 8}), v = full({2, 4, 1, 8}, float32, kNan);
  for (int64_t j = 0; j < 3; ++j)
    for (int64_t c = 0; c < 8; ++c) v.data<float>()[(4 + j) * 8 + c] = static_cast<float>(j);
  const AttentionResult got = DevicePlan::upload(plan, q).attention(q, v, v, {.scale = 1.0, .return_lse = true});
  testing::expect_close(got.out, {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0}, "out");
  testing::expect_close(got.lse, {std::log(3.0), -kInf}, "lse");
}

TEST(Paged, ReservedPlansStartAsPaddingAndTakeSchedulesOfTheirSize) {
  Schedules random(5);
  const Tensor q = random.dense({4, 2, 8}, float32), k = random.dense({3, 4, 1, 8}, float32);
  DevicePlan plan =
      DevicePlan::reserve(q, {.page_size = 4, .pages = 3, .queries = 4, .sequences = 2, .pages_per_sequence = 2});
  const Tensor lengths = plan.lengths();
  EXPECT_TRUE(same_bits(plan.attention(q, k, k).out, zeros({4, 2, 8})));
  const HostPlan step(4, 3, {{2, 0}}, {6}, {0, 0}, {4, 5});
  const Tensor want = DevicePlan::upload(step, q).attention(narrow(q, 0, 0, 2), k, k).out;
  plan.update_(step);
  EXPECT_TRUE(same_bits(narrow(plan.attention(q, k, k).out, 0, 0, 2), want));
  EXPECT_TRUE(same_bits(narrow(plan.attention(q, k, k).out, 0, 2, 2), zeros({2, 2, 8})));
  plan.update_(testing::tensor_of({1, 2}, int64, {2, 0}), testing::list({6}, int32), testing::list({0, 0}, uint8),
               testing::list({4, 5}, int64));
  EXPECT_TRUE(same_bits(narrow(plan.attention(q, k, k).out, 0, 0, 2), want));
  EXPECT_EQ(lengths.raw(), plan.lengths().raw());
  expect_error<ValueError>(
      [&] { plan.update_(HostPlan(4, 3, {}, {}, std::vector<int64_t>(5, -1), std::vector<int64_t>(5))); },
      "paged.update_: 5 queries exceed the plan's capacity of 4");
  expect_error<ValueError>([&] { plan.update_(HostPlan(8, 3, {}, {}, {}, {})); },
                           "paged.update_: page_size is 8, but the plan's is 4");
  EXPECT_TRUE(same_bits(narrow(plan.attention(q, k, k).out, 0, 0, 2), want)) << "a refused update changes nothing";
}

TEST(Paged, HostPlanRefusesWhatDoesNotFit) {
  const auto plan = [](int64_t size, std::vector<std::vector<int64_t>> tables, std::vector<int64_t> lengths,
                       std::vector<int64_t> ids, std::vector<int64_t> positions) {
    return [=] { HostPlan(size, 3, tables, lengths, ids, positions); };
  };
  expect_error<ValueError>(plan(0, {}, {}, {}, {}), "paged.HostPlan: page_size is 0, expected 1 to 2147483647");
  expect_error<ValueError>(plan(4, {{0}}, {1, 2}, {}, {}), "paged.HostPlan: tables holds 1 sequences, but lengths 2");
  expect_error<ValueError>(plan(4, {{0}}, {1}, {0}, {}), "paged.HostPlan: sequence_ids has 1 rows, but positions 0");
  expect_error<ValueError>(plan(4, {{0}}, {-1}, {}, {}), "paged.HostPlan: lengths[0] is -1, expected 0 or more");
  expect_error<ValueError>(plan(4, {{0}}, {5}, {}, {}),
                           "paged.HostPlan: tables[0] has 1 pages, but lengths[0] = 5 needs 2");
  expect_error<IndexError>(plan(4, {{0, 3}}, {5}, {}, {}), "paged.HostPlan: tables[0][1] is page 3, expected 0 to 2");
  expect_error<IndexError>(plan(4, {{0}}, {4}, {1}, {0}),
                           "paged.HostPlan: sequence_ids[0] is 1, expected 0 to 0, or -1 for a padding row");
  expect_error<IndexError>(plan(4, {{0}}, {4}, {0}, {-1}), "paged.HostPlan: positions[0] is -1, expected 0 or more");
}

TEST(Paged, ArgumentsAreCheckedBeforeAnythingIsWritten) {
  const HostPlan host(4, 2, {{0, 1}}, {6}, {0}, {5});
  const Tensor q = zeros({1, 4, 8}), k = zeros({2, 4, 2, 8}), out = full({1, 4, 8}, float32, 7);
  const DevicePlan plan = DevicePlan::upload(host, q);
  const auto with = [&](const Tensor& q, const Tensor& k, const Tensor& v, paged::AttentionOptions o = {}) {
    o.out = out;
    return [=, &plan] { plan.attention(q, k, v, o); };
  };
  expect_error<ShapeError>(with(zeros({2, 4, 8}), k, k),
                           "paged.attention: q must have the plan's 1 rows, got shape (2, 4, 8)");
  expect_error<ShapeError>(with(q, zeros({3, 4, 2, 8}), k),
                           "paged.attention: k must have shape (2, 4, 2, 8), got (3, 4, 2, 8)");
  expect_error<ShapeError>(with(q, k, zeros({2, 4, 1, 8})),
                           "paged.attention: v must have shape (2, 4, 2, 8), got (2, 4, 1, 8)");
  expect_error<ShapeError>(with(q, zeros({2, 4, 3, 8}), zeros({2, 4, 3, 8})),
                           "paged.attention: k has 3 heads, which does not divide q's 4");
  expect_error<DTypeError>(with(q, k, k.to(float16)), "paged.attention: v must have q's dtype float32, got float16");
  expect_error<ValueError>(with(q, k, k, {.scale = 0.0}), "paged.attention: scale must be finite and > 0, got 0");
  expect_error<ValueError>(with(q, k, k, {.window = {-2, 0}}),
                           "paged.attention: window must be (left, right) with entries >= -1, got (-2, 0)");
  expect_error<ShapeError>(
      with(q, k, k, {.split_workspace = SplitWorkspace(q, 1, 4, 16, 2)}),
      "paged.attention: workspace was made for (queries, heads, value_dim) = (1, 4, 16), expected (1, 4, 8)");
  expect_error<ShapeError>(
      [&] {
        plan.attention(zeros({1, 4, 1025}), zeros({2, 4, 2, 1025}), k);
      },
      "paged.attention: q must have a head size of 1 to 1024, got 1025");
  expect_error<ShapeError>(
      [&] {
        plan.mla(q, zeros({1, 4, 257}), zeros({2, 4, 1, 8}), zeros({2, 4, 1, 257}), 1.0, true);
      },
      "paged.mla: qp must have a head size of 1 to 256, got 257");
  expect_error<ValueError>([&] { SplitWorkspace(q, 1, 4, 8, 33); },
                           "paged.SplitWorkspace: splits is 33, expected 2 to 32");
  expect_error<ValueError>(
      [&] { SplitWorkspace(q, 1024, 128, 126, 2); },
      "paged.SplitWorkspace: 134217728 bytes of partial states, expected at most 67108864 (64 MiB)");
  EXPECT_TRUE(same_bits(out, full({1, 4, 8}, float32, 7)));
}

TEST(Paged, StrategiesAreTakenOrRefusedByName) {
  const Tensor q = zeros({1, 2, 4}), cache = zeros({1, 4, 1, 4}), qp = zeros({1, 2, 3}), kp = zeros({1, 4, 1, 3});
  const DevicePlan plan = DevicePlan::upload(HostPlan(4, 1, {{0}}, {1}, {0}, {0}), q);
  EXPECT_NO_THROW(plan.attention(q, cache, cache, {.strategy = "flash_unit"}));
  EXPECT_NO_THROW(plan.mla(q, qp, cache, kp, 1, true, {.strategy = "flash_unit"}));
  expect_error<UnsupportedError>([&] { plan.attention(q, cache, cache, {.strategy = "flash_tensorcore"}); },
                                 "paged.attention: strategy 'flash_tensorcore' cannot do this: on the CPU needs AMX, "
                                 "bfloat16 and a head size that "
                                 "is a multiple of 32; flash_unit takes every problem");
  expect_error<ValueError>([&] { plan.mla(q, qp, cache, kp, 1, true, {.strategy = "quick"}); },
                           "paged.mla: strategy must be one of 'auto', 'flash_tensorcore', 'flash_unit', got "
                           "'quick'");
}

TEST(Paged, AppendWritesRowsAndCopiesSharedStorage) {
  const HostPlan host(4, 2, {{1}, {0}}, {2, 1}, {0, -1, 1}, {1, 0, 0});
  const Tensor k = testing::filled({3, 1, 2}, float16, [](int64_t i) { return 1 + i; });
  const DevicePlan plan = DevicePlan::upload(host, k);
  const Tensor keys = zeros({2, 4, 1, 2}, {.dtype = float16}), values = zeros({2, 4, 1, 2}, {.dtype = float16});
  const auto want = testing::tensor_of({2, 4, 1, 2}, float16, {5, 6, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0});
  {
    const Tensor other = keys;  // another holder
    const paged::Caches kept = plan.append(k, k, keys, values);
    EXPECT_NE(kept.key.raw(), keys.raw());
    EXPECT_EQ(kept.value.raw(), values.raw());
    EXPECT_TRUE(same_bits(kept.key, want) && same_bits(kept.value, want));
    EXPECT_TRUE(same_bits(keys, zeros({2, 4, 1, 2}, {.dtype = float16})));
  }
  EXPECT_EQ(plan.append(k, k, keys, values).key.raw(), keys.raw());
  const Tensor pool = zeros({2, 2, 4, 1, 2}, {.dtype = float16});
  plan.append_(k, k, select(pool, 0, 0), select(pool, 0, 1));
  EXPECT_TRUE(same_bits(select(pool, 0, 0), want) && same_bits(select(pool, 0, 1), want));
}

TEST(Paged, AppendRefusesBeforeItWrites) {
  const Tensor k = full({2, 1, 2}, float32, 9), cache = zeros({2, 4, 1, 2});
  const auto append = [&](std::vector<int64_t> lengths, std::vector<int64_t> positions) {
    return [=] {
      DevicePlan::upload(HostPlan(4, 2, {{0, 1}, {0}}, lengths, {0, 1}, positions), k)
          .append_(k, k, cache, cache.clone());
    };
  };
  expect_error<IndexError>(append({5, 4}, {1, 4}), "paged.append_: positions[1] is 4, but sequence 1 has 4 keys");
  expect_error<ValueError>(append({5, 4}, {1, 1}), "paged.append_: rows 0 and 1 go to the same slot 1 of page 0");
  EXPECT_TRUE(same_bits(cache, zeros({2, 4, 1, 2})));
}

TEST(Paged, CopyPagesReadsBeforeItWrites) {
  const Tensor cache = testing::filled({4, 2, 1, 1}, float32, [](int64_t i) { return i; });
  const Tensor kept = paged::copy_pages(cache, {0, 1}, {1, 0});
  EXPECT_EQ(kept.raw(), cache.raw());
  EXPECT_TRUE(same_bits(kept, testing::tensor_of({4, 2, 1, 1}, float32, {2, 3, 0, 1, 4, 5, 6, 7})));
  const Tensor other = cache;
  EXPECT_NE(paged::copy_pages(cache, {0}, {3}).raw(), cache.raw());
  expect_error<ValueError>([&] { paged::copy_pages(cache, {0, 1}, {2, 2}); }, "paged.copy_pages: dst has page 2 twice");
  expect_error<ValueError>(
      [&] {
        paged::copy_pages(cache, {0, 1}, {2});
      },
      "paged.copy_pages: src has 2 pages, but dst 1");
  expect_error<IndexError>([&] { paged::copy_pages(cache, {0}, {4}); },
                           "paged.copy_pages: dst[0] is page 4, expected 0 to 3");
}

}  // namespace
}  // namespace tenor
