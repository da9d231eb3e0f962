// Latent attention over pages on CUDA: against the float64 reference, and what its bits depend on.
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
using testing::kNan;
using testing::on_cpu;
using testing::on_gpu;
using testing::same_bits;
using testing::Schedules;

class PagedLatentCuda : public testing::CudaTest {};

PagedProblem problem(Schedules& random, const HostPlan& plan, int64_t heads, int64_t rank, int64_t tail, DType dtype) {
  PagedProblem p{
      plan, random.dense({plan.queries(), heads, rank}, dtype), dense_cache(random, plan, 1, rank, dtype), {}};
  p.v = p.k, p.qp = random.dense({plan.queries(), heads, tail}, dtype),
  p.kp = dense_cache(random, plan, 1, tail, dtype);
  p.scale = 0.07;
  return p;
}
/// Into poisoned results.
AttentionResult run(const PagedProblem& p, paged::MlaOptions options = {}) {
  const Tensor q = on_gpu(p.q);
  options.return_lse = true;
  options.out = on_gpu(full({p.q.shape(0), p.q.shape(1), p.q.shape(2)}, p.q.dtype(), kNan));
  options.out_lse = on_gpu(full({p.q.shape(0), p.q.shape(1)}, float32, kNan));
  const AttentionResult got =
      DevicePlan::upload(p.plan, q).mla(q, on_gpu(p.qp), on_gpu(p.k), on_gpu(p.kp), p.scale, p.causal, options);
  return {on_cpu(got.out), on_cpu(got.lse)};
}
void expect(const AttentionResult& got, const reference::Attention& want) {
  expect_tensorcore(got.out, want.out);
  expect_values(got.lse, want.lse, "lse");
}

TEST_F(PagedLatentCuda, MatchesTheReference) {
  for (const DType dtype : {float32, bfloat16, float16}) {
    Schedules random(3);
    for (int round = 0; round < 8; ++round) {
      const int64_t H = round % 2 ? 16 : random.from_one_to(5), R = round % 2 ? 512 : 7, P = round % 2 ? 64 : 3;
      const HostPlan plan = random.schedule(round % 2 ? 64 : 5, 3, round % 4 ? 40 : 130);
      PagedProblem p = problem(random, plan, H, R, P, dtype);
      p.causal = round % 4 != 0;
      SCOPED_TRACE(::testing::Message() << name(dtype) << " round " << round);
      expect(run(p), reference::paged_attention(p));
    }
  }
}

// One, two, and an odd and an even number of blocks a split; pairs of chunks of heads and single ones; each way to
// split.
TEST_F(PagedLatentCuda, SplitsMatchTheReference) {
  Schedules random(11);
  int round = 0;
  for (const int64_t heads : {3, 70, 128})
    for (const int64_t longest : {64, 129, 700}) {
      const HostPlan plan = random.schedule((int64_t[]){64, 16, 8, 24}[round % 4], longest > 500 ? 2 : 3, longest);
      const PagedProblem p =
          problem(random, plan, heads, round % 2 ? 512 : 136, round % 3 ? 64 : 24, round % 2 ? bfloat16 : float16);
      SCOPED_TRACE(::testing::Message() << heads << " heads, keys up to " << longest);
      const reference::Attention want = reference::paged_attention(p);
      expect(run(p), want);
      paged::MlaOptions asked;
      asked.split_workspace.emplace(on_gpu(p.q), p.q.shape(0), heads, p.q.shape(2), 3);
      expect(run(p, asked), want);
      const BatchInvariantGuard guard;
      expect(run(p), want);
      ++round;
    }
}

/// One query of `keys` keys, all others' own sequences of other lengths around it where `company` says so.
HostPlan one_of(int64_t keys, int64_t company) {
  std::vector<std::vector<int64_t>> tables;
  std::vector<int64_t> lengths, ids, positions;
  const auto add = [&](int64_t length, int64_t first_page) {
    tables.emplace_back();
    for (int64_t i = 0; i * 64 < length; ++i) tables.back().push_back((first_page + i * 7) % 100);
    ids.push_back(static_cast<int64_t>(lengths.size())), positions.push_back(length - 1), lengths.push_back(length);
  };
  for (int64_t i = 0; i < company; ++i) add(100 + 61 * i, i);
  add(keys, 40);
  for (int64_t i = 0; i < company; ++i) add(3000 - 17 * i, i);
  return {64, 100, tables, lengths, ids, positions};
}
/// That query's result.
Tensor row_of(const HostPlan& plan, const Tensor& row, const Tensor& row_tail, const Tensor& latent, const Tensor& kp) {
  const int64_t rows = plan.queries(), at = rows / 2;
  Schedules random(static_cast<unsigned>(rows));
  const Tensor q = on_gpu(random.dense({rows, row.shape(1), row.shape(2)}, row.dtype())),
               qp = on_gpu(random.dense({rows, row.shape(1), row_tail.shape(2)}, row.dtype()));
  core::copy_into(row, narrow(q, 0, at, 1)), core::copy_into(row_tail, narrow(qp, 0, at, 1));
  return on_cpu(narrow(DevicePlan::upload(plan, q).mla(q, qp, latent, kp, 0.05, true).out, 0, at, 1));
}

TEST_F(PagedLatentCuda, BatchInvariantBitsOfARowDependOnItselfAlone) {
  Schedules random(12);
  const Tensor latent = on_gpu(random.dense({100, 64, 1, 512}, bfloat16)),
               kp = on_gpu(random.dense({100, 64, 1, 64}, bfloat16));
  for (const int64_t heads : {16, 128}) {
    const Tensor row = on_gpu(random.dense({1, heads, 512}, bfloat16)),
                 tail = on_gpu(random.dense({1, heads, 64}, bfloat16));
    for (const int64_t keys : {63, 2050, 4500}) {
      SCOPED_TRACE(::testing::Message() << heads << " heads, " << keys << " keys");
      const BatchInvariantGuard guard;
      const Tensor alone = row_of(one_of(keys, 0), row, tail, latent, kp);
      EXPECT_TRUE(same_bits(row_of(one_of(keys, 3), row, tail, latent, kp), alone));
      EXPECT_TRUE(same_bits(row_of(one_of(keys, 90), row, tail, latent, kp), alone));
    }
  }
}

TEST_F(PagedLatentCuda, TheSameCallHasTheSameBits) {
  Schedules random(13);
  const Tensor latent = on_gpu(random.dense({100, 64, 1, 512}, bfloat16)),
               kp = on_gpu(random.dense({100, 64, 1, 64}, bfloat16)),
               row = on_gpu(random.dense({1, 128, 512}, bfloat16)), tail = on_gpu(random.dense({1, 128, 64}, bfloat16));
  for (const int64_t company : {0, 3, 40}) {
    const HostPlan plan = one_of(4500, company);
    const Tensor once = row_of(plan, row, tail, latent, kp);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(row_of(plan, row, tail, latent, kp), once)) << company;
  }
}

TEST_F(PagedLatentCuda, AWorkspaceOfItsSizeIsEnough) {
  Schedules random(14);
  const HostPlan plan = one_of(2500, 2);
  const Tensor q = on_gpu(random.dense({plan.queries(), 128, 512}, bfloat16)),
               qp = on_gpu(random.dense({plan.queries(), 128, 64}, bfloat16)),
               latent = on_gpu(random.dense({100, 64, 1, 512}, bfloat16)),
               kp = on_gpu(random.dense({100, 64, 1, 64}, bfloat16));
  const DevicePlan device = DevicePlan::upload(plan, q);
  const int64_t bytes = device.workspace_size("mla", 128, 512);
  const Tensor workspace = on_gpu(full({bytes + 16}, uint8, 255));
  const auto with = [&](const Tensor& memory) {
    return on_cpu(device.mla(q, qp, latent, kp, 0.05, true, {.workspace = memory}).out);
  };
  Tensor want;
  {
    const BatchInvariantGuard guard;
    want = with({});
    EXPECT_TRUE(same_bits(with(narrow(workspace, 0, 0, bytes)), want));
  }
  EXPECT_TRUE(same_bits(with(narrow(workspace, 0, 0, bytes)), want)) << "a workspace has room for fixed splits";
  EXPECT_TRUE(same_bits(on_cpu(narrow(workspace, 0, bytes, 16)), full({16}, uint8, 255)));
}

}  // namespace
}  // namespace tenor
