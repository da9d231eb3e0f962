// Packed sequences and merged states on a GPU.
#include <cuda_runtime_api.h>

#include <functional>
#include <limits>

#include "src/core/output.h"
#include "src/ops/attention/attention_cuda_testing.h"
#include "tenor/modes.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;
using AttentionVarlenCuda = CudaTest;
using MergeStatesCuda = CudaTest;

using AttentionVarlenCudaOf = AttentionKernelTest;
INSTANTIATE_TEST_SUITE_P(Kernels, AttentionVarlenCudaOf, attention_kernels(), kernel_name);

/// cu_seqlens of either width.
Tensor offsets(const std::vector<int64_t>& at, DType dtype) {
  return on_gpu(filled({static_cast<int64_t>(at.size())}, dtype,
                       [&](int64_t i) { return static_cast<double>(at[static_cast<size_t>(i)]); }));
}

TEST_P(AttentionVarlenCudaOf, EqualsAttentionOfEachSequence) {
  AttentionDraw random(13);
  const std::vector<int64_t> cq{0, 0, 7, 7, 230, 300, 301}, ck{0, 3, 3, 20, 364, 364, 500};
  for (const int64_t D : {8, 64, 128}) {
    const Tensor q = on_gpu(random.dense({310, 4, D}, dtype())), k = on_gpu(random.dense({520, 2, D}, dtype())),
                 v = on_gpu(random.dense({520, 2, 16}, dtype()));
    AttentionVarlenOptions o{
        .causal = true, .window = {90, -1}, .sinks = on_gpu(random.dense({4}, float32)), .return_lse = true};
    const auto part = [](const Tensor& x, int64_t a, int64_t b) {
      return unsqueeze(transpose(narrow(x, 0, a, b - a), 0, 1), 0);
    };
    for (const std::string& strategy : flash_strategies_for({unsqueeze(q, 0), k, unsqueeze(v, 0)})) {
      o.strategy = strategy;
      o.out = on_gpu(full({310, 4, 16}, dtype(), kNan)), o.out_lse = on_gpu(full({310, 4}, float32, kNan));
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
TEST_P(AttentionVarlenCudaOf, HidesTheNextSequence) {
  AttentionDraw random(14);
  for (const int64_t D : {16, 64, 128}) {
    const Tensor q = random.dense({64, 2, D}, dtype()), k = random.dense({150, 2, D}, dtype());
    Tensor bad = k.clone();
    for (int64_t j = 100; j < 150; ++j) put(bad, j * 2 * D + j % (2 * D), kNan);
    const Tensor cq = offsets({0, 40, 64}, int32), ck = offsets({0, 100, 150}, int32);
    for (const std::string& strategy : flash_strategies_for({unsqueeze(q, 0), k, unsqueeze(k, 0)})) {
      const AttentionVarlenOptions o{.strategy = strategy};
      const Tensor clean = on_cpu(attention_varlen(on_gpu(q), on_gpu(k), on_gpu(k), cq, ck, o).out),
                   got = on_cpu(attention_varlen(on_gpu(q), on_gpu(bad), on_gpu(bad), cq, ck, o).out);
      EXPECT_TRUE(same_bits(narrow(got, 0, 0, 40), narrow(clean, 0, 0, 40))) << strategy << " D" << D;
      EXPECT_TRUE(std::isnan(reference::at(got, {50, 0, 0}))) << strategy;
    }
  }
}

TEST_F(AttentionVarlenCuda, ReplaysWithNewOffsets) {
  AttentionDraw random(17);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  for (const std::string& strategy : flash_strategies_for(bfloat16, 64, 64)) {
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

TEST_F(AttentionVarlenCuda, SaysWhatIsWrongWithItsOffsets) {
  const Tensor x = on_gpu(full({5, 1, 64}, bfloat16, 1));
  for (const std::string& strategy : flash_strategies_for(bfloat16, 64, 64))
    for (const auto& at : {std::vector<int64_t>{0, 3, 2}, {0, 5, 9}, {1, 3, 5}, {0, -4, 5}}) {
      attention_varlen(x, x, x, offsets(at, int64), offsets({0, 2, 5}, int64), {.strategy = strategy});
      EXPECT_THROW(synchronize(kGpu), Error) << strategy;
      attention_varlen(x, x, x, offsets({0, 2, 5}, int32), offsets(at, int32), {.strategy = strategy});
      EXPECT_THROW(synchronize(kGpu), Error) << strategy;
    }
}

TEST_F(MergeStatesCuda, EqualsAttentionOverBothParts) {
  AttentionDraw random(15);
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

TEST_F(MergeStatesCuda, OnAnyLayoutEqualsTheCpu) {
  AttentionDraw random(16);
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
