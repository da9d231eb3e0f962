// Paged attention on CUDA against the float64 reference.
#include "src/ops/paged/paged_cuda.h"

#include <cuda_runtime_api.h>

#include "src/core/output.h"
#include "src/cuda/testing.h"
#include "src/ops/paged/paged_testing.h"
#include "tenor/create.h"
#include "tenor/modes.h"
#include "tenor/paged.h"

namespace tenor {
namespace {

using paged::DevicePlan;
using paged::HostPlan;
using paged::SplitWorkspace;
using reference::PagedProblem;
using testing::dense_cache;
using testing::expect_tensorcore;
using testing::expect_values;
using testing::full;
using testing::kGpu;
using testing::kNan;
using testing::on_cpu;
using testing::on_gpu;
using testing::same_bits;
using testing::Schedules;

class PagedCuda : public testing::CudaTest {};

struct Run {
  Tensor out, lse;
};
Run run(const PagedProblem& p, int64_t splits = 0) {
  const Tensor q = on_gpu(p.q);
  const DevicePlan plan = DevicePlan::upload(p.plan, q);
  paged::AttentionOptions o;
  o.scale = p.scale, o.causal = p.causal, o.window = p.window, o.sinks = on_gpu(p.sinks), o.return_lse = true;
  if (p.softcap > 0) o.softcap = p.softcap;
  const int64_t rows = p.q.shape(0), Hq = p.q.shape(1), Dv = p.v.shape(3);
  if (splits) o.split_workspace.emplace(q, rows, Hq, Dv, splits);
  o.out = on_gpu(full({rows, Hq, Dv}, p.q.dtype(), kNan));
  o.out_lse = on_gpu(full({rows, Hq}, float32, kNan));
  const AttentionResult got = plan.attention(q, on_gpu(p.k), on_gpu(p.v), o);
  return {on_cpu(got.out), on_cpu(got.lse)};
}

/// With the plan's own splits, and with that many.
void check(const PagedProblem& p, int64_t splits) {
  const reference::Attention want = reference::paged_attention(p);
  for (const int64_t asked : {int64_t{0}, splits}) {
    const Run got = run(p, asked);
    const bool single = asked > 0 && p.q.dtype() == float64;  // partial states are float32
    expect_tensorcore(single ? got.out.to(float32) : got.out, want.out);
    expect_values(got.lse, want.lse, "lse");
  }
}

TEST_F(PagedCuda, MatchesTheReferenceOnRandomSchedules) {
  for (const DType dtype : testing::kFloats) {
    Schedules random(1);
    for (int round = 0; round < 20; ++round) {
      const int64_t size = (int64_t[]){1, 3, 16, 64, 256}[round % 5], G = random.from_one_to(3),
                    Hq = G * random.from_one_to(4);
      const HostPlan plan = random.schedule(size, random.from_one_to(5), round % 4 ? 60 : 700);
      const int64_t D = round % 3 ? random.from_one_to(20) : 32 * random.from_one_to(3),
                    Dv = random.from_one_to(round % 5 ? 12 : 130);
      PagedProblem p{plan, random.view({plan.queries(), Hq, D}, dtype), random.cache(plan, G, D, dtype),
                     random.cache(plan, G, Dv, dtype)};
      p.scale = round % 7 < 2 ? 0.3 : 1 / std::sqrt(static_cast<double>(D));
      p.causal = round % 4 != 1;
      if (round % 3 == 0) p.window = {random.upto(30) - 1, random.upto(30) - 1};
      if (round % 5 == 0) p.softcap = 2.5;
      if (round % 5 == 2) p.sinks = random.dense({Hq}, round % 2 ? float32 : dtype);
      SCOPED_TRACE(::testing::Message() << name(dtype) << " round " << round << ": page " << size << " Hq" << Hq << " G"
                                        << G << " D" << D << " Dv" << Dv);
      check(p, 2 + round % 5);
    }
  }
}

TEST_F(PagedCuda, TensorCoresMatchTheReference) {
  for (const DType dtype : {bfloat16, float16}) {
    Schedules random(2);
    int round = 0;
    for (const int64_t D : {64, 128, 96, 256, 8})
      for (const int64_t group : {1, 4, 3, 20}) {
        const HostPlan plan = random.schedule((int64_t[]){16, 64, 8, 48, 256}[round % 5], 4,
                                              round % 3   ? 60
                                              : group < 4 ? 1100
                                                          : 150);
        PagedProblem p{plan, random.dense({plan.queries(), 2 * group, D}, dtype),
                       dense_cache(random, plan, 2, D, dtype), dense_cache(random, plan, 2, D, dtype)};
        p.scale = 1 / std::sqrt(static_cast<double>(D)), p.causal = round % 4 != 3;
        if (round % 3 == 1) p.window = {random.upto(90) - 1, random.upto(20) - 1};
        if (round % 4 == 2) p.softcap = 2.5;
        if (round % 2) p.sinks = random.dense({2 * group}, float32);
        SCOPED_TRACE(::testing::Message()
                     << name(dtype) << " D" << D << " group " << group << " page " << plan.page_size());
        check(p, 3);
        ++round;
      }
  }
}

TEST_F(PagedCuda, EveryStrategyIsTakenByName) {
  Schedules random(10);
  const HostPlan host = random.schedule(16, 4, 900);
  const int64_t rows = host.queries();
  for (const DType dtype : {bfloat16, float32}) {
    PagedProblem p{host, random.dense({rows, 8, 64}, dtype), dense_cache(random, host, 2, 64, dtype),
                   dense_cache(random, host, 2, 64, dtype)};
    p.scale = 0.125;
    const Tensor q = on_gpu(p.q), k = on_gpu(p.k), v = on_gpu(p.v);
    const DevicePlan plan = DevicePlan::upload(host, q);
    const reference::Attention want = reference::paged_attention(p);
    expect_tensorcore(on_cpu(plan.attention(q, k, v, {.strategy = "flash_unit"}).out), want.out);
    if (dtype == bfloat16) {
      expect_tensorcore(on_cpu(plan.attention(q, k, v, {.strategy = "flash_tensorcore"}).out), want.out);
    } else {
      testing::expect_error<UnsupportedError>(
          [&] { plan.attention(q, k, v, {.strategy = "flash_tensorcore"}); },
          "paged.attention: strategy 'flash_tensorcore' cannot do this: takes float16 or bfloat16");
    }
  }
}

// More splits than are added up at once: groups of them, which end in different blocks; rows whose windows begin in
// different groups.
TEST_F(PagedCuda, LongSequencesAreAddedUpInGroups) {
  Schedules random(11);
  constexpr int64_t kPages = 300;
  std::vector<int64_t> table(kPages);
  for (int64_t i = 0; i < kPages; ++i) table[i] = (i * 37) % kPages;
  const HostPlan host(64, kPages, {table, {3}}, {19000, 50}, {0, 0, 1, -1}, {18998, 18999, 49, 0});
  for (const Window window : {Window{}, Window{2000, 0}}) {
    PagedProblem p{host, random.dense({4, 4, 64}, bfloat16), dense_cache(random, host, 2, 64, bfloat16),
                   dense_cache(random, host, 2, 64, bfloat16)};
    p.scale = 0.125, p.window = window, p.sinks = random.dense({4}, float32);
    check(p, 5);
  }
}

/// One query a sequence, two of the first, at the end of each; pages in no order.
HostPlan decode_step(const std::vector<int64_t>& lengths) {
  std::vector<std::vector<int64_t>> tables;
  std::vector<int64_t> ids, positions;
  int64_t pages = 0;
  for (const int64_t length : lengths) pages += (length + 63) / 64;
  while (pages % 37 == 0) ++pages;
  int64_t next = 0;
  for (size_t s = 0; s < lengths.size(); ++s) {
    tables.emplace_back();
    for (int64_t at = 0; at < lengths[s]; at += 64) tables[s].push_back(next++ * 37 % pages);
    for (int64_t i = s == 0 ? 2 : 1; i > 0; --i)
      ids.push_back(static_cast<int64_t>(s)), positions.push_back(lengths[s] - i);
  }
  return HostPlan(64, pages, tables, lengths, ids, positions);
}

// Long rows of which one block adds up a share, between short ones; more whole rows than blocks, of the last of which
// each split is an item.
TEST_F(PagedCuda, SplitsThatABlockAddsUpMatchTheReference) {
  Schedules random(21);
  std::vector<int64_t> many(24, 1600);
  for (size_t i = 0; i < many.size(); ++i) many[i] += static_cast<int64_t>(i * 7 % 5) * 60;
  for (const auto& lengths : {std::vector<int64_t>{20000, 90, 2200}, {70, 12000, 9000, 3000}, many}) {
    const HostPlan host = decode_step(lengths);
    PagedProblem p{host, random.dense({host.queries(), 16, 8}, bfloat16), dense_cache(random, host, 16, 8, bfloat16),
                   dense_cache(random, host, 16, 8, bfloat16)};
    p.scale = 0.4;
    for (const Window window : {Window{}, Window{3000, 0}}) {
      p.window = window;
      SCOPED_TRACE(::testing::Message() << lengths.size() << " sequences, window " << window.left);
      const reference::Attention want = reference::paged_attention(p);
      const auto got = run(p);
      expect_tensorcore(got.out, want.out);
      expect_values(got.lse, want.lse, "lse");
      EXPECT_TRUE(same_bits(run(p).out, got.out));
      const BatchInvariantGuard guard;
      EXPECT_TRUE(same_bits(run(p).out, got.out));
    }
  }
}

// Of a row's splits a block adds up none, some or all, by its company: in every case the same bits, with a window,
// whose first split is not the sequence's, too.
TEST_F(PagedCuda, BitsOfALongRowDependOnItselfAlone) {
  Schedules random(22);
  for (const int64_t D : {8, 128, 256}) {
    const int64_t heads = 2048 / D / 8;
    const Tensor k = on_gpu(random.dense({700, 64, heads, D}, bfloat16)),
                 row = on_gpu(random.dense({1, 2 * heads, D}, bfloat16));
    std::vector<int64_t> table(600);
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int64_t>(i * 37 % 700);
    const auto beside = [&](int64_t others, int64_t keys, Window window) {
      std::vector<std::vector<int64_t>> tables(static_cast<size_t>(others + 1), table);
      std::vector<int64_t> lengths(static_cast<size_t>(others), keys), ids, positions(lengths.size(), keys - 1);
      lengths.push_back(38000), positions.push_back(37999);
      for (int64_t i = 0; i <= others; ++i) ids.push_back(i);
      const Tensor q = on_gpu(random.dense({others + 1, 2 * heads, D}, bfloat16));
      core::copy_into(row, narrow(q, 0, others, 1));
      const DevicePlan plan = DevicePlan::upload(HostPlan(64, 700, tables, lengths, ids, positions), q);
      return on_cpu(narrow(plan.attention(q, k, k, {.window = window}).out, 0, others, 1));
    };
    for (const Window window : {Window{}, Window{9000, -1}}) {
      const Tensor alone = beside(0, 0, window);
      for (const int64_t keys : {2000, 20000})
        for (const int64_t others : {3, 40, 400})
          EXPECT_TRUE(same_bits(beside(others, keys, window), alone))
              << "D" << D << " window " << window.left << " beside " << others << " of " << keys;
      const BatchInvariantGuard guard;
      EXPECT_TRUE(same_bits(beside(40, 2000, window), alone)) << "D" << D << " window " << window.left;
    }
  }
}

// Queries among other things, at multiples of four bytes, give what those give that lie in whole accesses.
TEST_F(PagedCuda, QueriesMayLieAtAnyEvenPlace) {
  Schedules random(23);
  const HostPlan host = random.schedule(16, 5, 900);
  for (const int64_t D : {64, 136, 256}) {
    const Tensor wide = on_gpu(random.dense({host.queries(), 8, D + 6}, bfloat16)), q = narrow(wide, 2, 2, D),
                 k = on_gpu(dense_cache(random, host, 2, D, bfloat16)),
                 v = on_gpu(dense_cache(random, host, 2, D, bfloat16));
    const DevicePlan plan = DevicePlan::upload(host, q);
    const auto attend = [&](const Tensor& x) {
      return on_cpu(plan.attention(x, k, v, {.strategy = "flash_tensorcore"}).out);
    };
    EXPECT_TRUE(same_bits(attend(q), attend(q.contiguous()))) << "D" << D;
  }
}

// Rows that the fast form for float32 takes: groups of heads of one and several blocks, columns that fill no access of
// a warp, splits asked for.
TEST_F(PagedCuda, FloatHeadsMatchTheReference) {
  Schedules random(23);
  int round = 0;
  for (const int64_t D : {128, 64, 20, 4})
    for (const int64_t group : {1, 2, 3, 4, 8, 5}) {
      const HostPlan plan = random.schedule((int64_t[]){16, 64, 5, 1}[round % 4], 3, round % 3 ? 90 : 1500);
      PagedProblem p{plan, random.dense({plan.queries(), 2 * group, D}, float32),
                     dense_cache(random, plan, 2, D, float32), dense_cache(random, plan, 2, 132 - D, float32)};
      p.scale = 0.1, p.causal = round % 4 != 3;
      if (round % 3 == 1) p.window = {random.upto(90) - 1, random.upto(20) - 1};
      if (round % 4 == 2) p.softcap = 2.5;
      if (round % 2) p.sinks = random.dense({2 * group}, float32);
      SCOPED_TRACE(::testing::Message() << "D" << D << " group " << group << " page " << plan.page_size());
      check(p, 3);
      ++round;
    }
}

// Long runs of rows go through attention's kernel, the rows about them do not.
TEST_F(PagedCuda, LongRunsOfRowsArePrefilled) {
  Schedules random(12);
  std::vector<int64_t> first(20), second(10), ids{2, -1}, positions{6, 0};
  for (int64_t i = 0; i < 20; ++i) first[i] = (i * 7) % 20;
  for (int64_t i = 0; i < 10; ++i) second[i] = 20 + (i * 3) % 10;
  for (int64_t i = 0; i < 170; ++i) ids.push_back(0), positions.push_back(135 + i);  // all but its last two keys
  for (int64_t i = 0; i < 3; ++i) ids.push_back(2), positions.push_back(4 + i);
  for (int64_t i = 0; i < 140; ++i) ids.push_back(1), positions.push_back(i);
  const HostPlan host(16, 32, {first, second, {31}}, {307, 150, 7}, ids, positions);
  const int64_t rows = host.queries();
  for (int round = 0; round < 5; ++round) {
    PagedProblem p{host, random.dense({rows, 4, 32}, bfloat16), dense_cache(random, host, 2, 32, bfloat16),
                   dense_cache(random, host, 2, 40, bfloat16)};
    p.scale = 0.2, p.causal = round != 2;
    if (round == 1) p.window = {70, 0}, p.softcap = 2.5;
    if (round == 3) p.sinks = random.dense({4}, float32);
    if (round == 4) p.causal = false, p.window = {50, 3};
    SCOPED_TRACE(round);
    check(p, 3);
  }
}

// Neighbouring runs share a launch: each has the bits that it has alone.
TEST_F(PagedCuda, NeighbouringRunsArePrefilledTogether) {
  Schedules random(14);
  const std::vector<int64_t> lengths{210, 193, 260, 140, 301};
  std::vector<std::vector<int64_t>> tables;
  std::vector<int64_t> ids, positions, begins{0};
  for (size_t s = 0; s < lengths.size(); ++s) {
    const int64_t from = s == 4 ? 40 : 0;  // the last run continues a sequence
    for (int64_t i = from; i < lengths[s]; ++i) ids.push_back(static_cast<int64_t>(s)), positions.push_back(i);
    begins.push_back(static_cast<int64_t>(ids.size()));
    tables.emplace_back();
    for (int64_t page = 0; page < 19; ++page) tables[s].push_back((19 * static_cast<int64_t>(s) + page) * 7 % 95);
  }
  const HostPlan host(16, 95, tables, lengths, ids, positions);
  for (const bool causal : {true, false}) {
    PagedProblem p{host, random.dense({begins.back(), 4, 64}, bfloat16), dense_cache(random, host, 2, 64, bfloat16),
                   dense_cache(random, host, 2, 64, bfloat16)};
    p.scale = 0.2, p.causal = causal;
    if (causal) p.window = {90, -1}, p.sinks = random.dense({4}, float32);
    const auto together = run(p);
    const reference::Attention want = reference::paged_attention(p);
    expect_tensorcore(together.out, want.out);
    for (size_t s = 0; s < lengths.size(); ++s) {
      const int64_t first = begins[s], rows = begins[s + 1] - first;
      const HostPlan alone(16, 95, tables, lengths, {ids.begin() + first, ids.begin() + first + rows},
                           {positions.begin() + first, positions.begin() + first + rows});
      PagedProblem one{alone, narrow(p.q, 0, first, rows), p.k, p.v};
      one.scale = p.scale, one.causal = p.causal, one.window = p.window, one.sinks = p.sinks;
      EXPECT_TRUE(same_bits(run(one).out, narrow(together.out, 0, first, rows))) << "run " << s;
    }
  }
}

// Each row as its own decode step, in other company, has the bits that it has in a prefill of all.
TEST_F(PagedCuda, BitsOfARowDependOnItselfAlone) {
  constexpr int64_t kKeys = 1300;
  for (const DType dtype : {float32, bfloat16}) {
    Schedules random(4);
    const std::vector<int64_t> table = [] {
      std::vector<int64_t> pages(82);
      for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int64_t>((i * 37) % 82);
      return pages;
    }();
    const Tensor k = on_gpu(random.dense({90, 16, 2, 64}, dtype)), v = on_gpu(random.dense({90, 16, 2, 64}, dtype)),
                 q = on_gpu(random.dense({9, 8, 64}, dtype));
    const HostPlan all(16, 90, {table}, {kKeys}, std::vector<int64_t>(9, 0),
                       {1291, 1292, 1293, 1294, 1295, 1296, 1297, 1298, 1299});
    const Tensor want = on_cpu(DevicePlan::upload(all, q).attention(q, k, v).out);
    for (int64_t i = 0; i < 9; ++i) {
      const HostPlan step(16, 90, {{83, 84}, table, {85}}, {20, 1292 + i, 3}, {0, 1, 2, -1}, {19, 1291 + i, 2, 0});
      const Tensor rows = on_gpu(random.dense({4, 8, 64}, dtype));
      core::copy_into(narrow(q, 0, i, 1), narrow(rows, 0, 1, 1));
      const Tensor got = on_cpu(DevicePlan::upload(step, rows).attention(rows, k, v).out);
      EXPECT_TRUE(same_bits(narrow(got, 0, 1, 1), narrow(want, 0, i, 1))) << name(dtype) << " row " << i;
    }
  }
}

// What a later row sees, NaN for one, changes no bit of the rows before it in the same tile.
TEST_F(PagedCuda, HiddenValuesChangeNoBit) {
  Schedules random(5);
  const HostPlan plan(16, 10, {{3, 1, 4, 0, 5, 9, 2, 6}}, {120}, {0, 0, 0, 0}, {100, 101, 102, 103});
  const Tensor q = on_gpu(random.dense({4, 4, 64}, bfloat16)), k = random.dense({10, 16, 1, 64}, bfloat16),
               v = random.dense({10, 16, 1, 64}, bfloat16);
  const Tensor clean = on_cpu(DevicePlan::upload(plan, q).attention(q, on_gpu(k), on_gpu(v)).out);
  for (const int64_t row : {7, 8})
    testing::put(v, (2 * 16 + row) * 64 + 5, kNan), testing::put(k, (2 * 16 + row) * 64, kNan);  // keys 103, 104
  const Tensor got = on_cpu(DevicePlan::upload(plan, q).attention(q, on_gpu(k), on_gpu(v)).out);
  EXPECT_TRUE(same_bits(narrow(got, 0, 0, 3), narrow(clean, 0, 0, 3)));
  EXPECT_TRUE(std::isnan(testing::get(got, 3 * 4 * 64)));
}

TEST_F(PagedCuda, AWorkspaceOfItsSizeIsEnough) {
  Schedules random(6);
  const HostPlan plan(16, 100, {std::vector<int64_t>(100, 1)}, {1600}, {0}, {1599});
  const Tensor q = on_gpu(random.dense({1, 4, 64}, bfloat16)), k = on_gpu(random.dense({100, 16, 2, 64}, bfloat16));
  const DevicePlan device = DevicePlan::upload(plan, q);
  const int64_t bytes = device.workspace_size("attention", 4, 64);
  EXPECT_GT(bytes, 0);
  const Tensor want = on_cpu(device.attention(q, k, k).out);
  EXPECT_TRUE(same_bits(on_cpu(device.attention(q, k, k, {.workspace = on_gpu(full({bytes}, uint8, 255))}).out), want));
  EXPECT_THROW(device.attention(q, k, k, {.workspace = on_gpu(full({bytes - 1}, uint8, 0))}), ShapeError);
  const Tensor crooked = narrow(on_gpu(full({bytes + 8}, uint8, 0)), 0, 8, bytes);
  EXPECT_THROW(device.attention(q, k, k, {.workspace = crooked}), ValueError);
}

TEST_F(PagedCuda, ACapturedGraphReplaysNewSchedules) {
  Schedules random(7);
  const Tensor q = on_gpu(random.dense({5, 4, 64}, bfloat16)), k = on_gpu(random.dense({60, 16, 2, 64}, bfloat16));
  DevicePlan plan =
      DevicePlan::reserve(q, {.page_size = 16, .pages = 60, .queries = 5, .sequences = 4, .pages_per_sequence = 60});
  const Tensor out = on_gpu(full({5, 4, 64}, bfloat16, kNan));
  const Tensor workspace = on_gpu(full({plan.workspace_size("attention", 4, 64)}, uint8, 0));
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  synchronize(kGpu);
  const StreamGuard on(stream);
  plan.attention(q, k, k, {.workspace = workspace, .out = out});
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  plan.attention(q, k, k, {.workspace = workspace, .out = out});
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  for (int step = 0; step < 3; ++step) {
    std::vector<int64_t> table;
    for (int64_t i = 0; i < 60; ++i) table.push_back((i * 7 + step) % 60);
    const HostPlan host(16, 60, {table, {5, 4}}, {900 + step, 20}, {1, 0, 0}, {19, 898 + step, 899 + step});
    if (step == 1) {
      plan.update_(host);
    } else {
      std::vector<double> flat(table.begin(), table.end());
      flat.insert(flat.end(), {5, 4});
      flat.resize(120, -1);
      plan.update_(on_gpu(testing::tensor_of({2, 60}, int32, flat)), on_gpu(testing::list({900.0 + step, 20}, int64)),
                   on_gpu(testing::list({1, 0, 0}, int32)),
                   on_gpu(testing::list({19, 898.0 + step, 899.0 + step}, int32)));
    }
    ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    synchronize(kGpu);
    const Tensor rows = narrow(q, 0, 0, 3), want = DevicePlan::upload(host, rows).attention(rows, k, k).out;
    EXPECT_TRUE(same_bits(on_cpu(narrow(out, 0, 0, 3)), on_cpu(want))) << "step " << step;
    EXPECT_TRUE(same_bits(on_cpu(narrow(out, 0, 3, 2)), zeros({2, 4, 64}, {.dtype = bfloat16}))) << "step " << step;
  }
  cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
  synchronize(kGpu);
  cudaStreamDestroy(stream);
}

TEST_F(PagedCuda, BadEntriesOfDeviceArraysAreDroppedAndReported) {
  Schedules random(8);
  const Tensor q = on_gpu(random.dense({2, 1, 8}, float32)), k = on_gpu(random.dense({3, 4, 1, 8}, float32));
  DevicePlan plan =
      DevicePlan::reserve(q, {.page_size = 4, .pages = 3, .queries = 2, .sequences = 2, .pages_per_sequence = 2});
  const auto update = [&](std::vector<double> tables, std::vector<double> lengths, std::vector<double> ids,
                          std::vector<double> positions) {
    plan.update_(on_gpu(testing::tensor_of({2, 2}, int32, tables)), on_gpu(testing::list(lengths, int32)),
                 on_gpu(testing::list(ids, int32)), on_gpu(testing::list(positions, int32)));
    return on_cpu(plan.attention(q, k, k).out.clone());
  };
  const auto refused = [&]<class E = IndexError>(auto... arrays) {
    plan.update_(HostPlan(4, 3, {}, {}, {}, {}));
    EXPECT_THROW(update(arrays...), E);
    const Tensor out = on_cpu(plan.attention(q, k, k).out);
    EXPECT_TRUE(same_bits(narrow(out, 0, 1, 1), zeros({1, 1, 8})));
    EXPECT_FALSE(same_bits(narrow(out, 0, 0, 1), zeros({1, 1, 8})));
  };
  using List = std::vector<double>;
  refused(List{0, 1, 3, 0}, List{5, 4}, List{0, 1}, List{4, 3});
  refused.operator()<ValueError>(List{0, 1, 2, 0}, List{5, 9}, List{0, 1}, List{4, 3});
  refused(List{0, 1, 2, 0}, List{5, 4}, List{0, 2}, List{4, 3});
  refused(List{0, 1, 2, 0}, List{5, 4}, List{0, 1}, List{4, -1});
}

TEST_F(PagedCuda, AppendWritesItsRowsAlone) {
  for (const DType dtype : testing::kFloats) {
    Schedules random(9);
    const HostPlan host(4, 3, {{2}, {0, 1}}, {2, 6}, {0, -1, 1}, {1, 0, 5});
    const Tensor k = random.view({3, 2, 5}, dtype), v = random.view({3, 2, 3}, dtype);
    const Tensor keys = random.view({3, 4, 2, 5}, dtype), values = random.view({3, 4, 2, 3}, dtype);
    const Tensor gpu_keys = on_gpu(keys), gpu_values = on_gpu(values);
    DevicePlan::upload(host, on_gpu(k)).append_(on_gpu(k), on_gpu(v), gpu_keys, gpu_values);
    DevicePlan::upload(host, k).append_(k, v, keys, values);
    EXPECT_TRUE(same_bits(on_cpu(gpu_keys), keys) && same_bits(on_cpu(gpu_values), values)) << name(dtype);
    EXPECT_THROW(DevicePlan::upload(HostPlan(4, 3, {{2}, {0, 1}}, {2, 6}, {0, -1, 1}, {2, 0, 5}), on_gpu(k))
                     .append_(on_gpu(k), on_gpu(v), gpu_keys, gpu_values),
                 IndexError);
    const Tensor copied = paged::copy_pages(on_gpu(keys), {0, 1}, {1, 0});
    EXPECT_TRUE(same_bits(on_cpu(copied), paged::copy_pages(keys.clone(), {0, 1}, {1, 0})));
  }
}

}  // namespace
}  // namespace tenor
