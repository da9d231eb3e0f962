// Mixture of experts captured in a CUDA graph: replays route anew, and their sizes with it.
#include "src/core/device_traits.h"
#include "src/cuda/capture_testing.h"
#include "tenor/moe.h"
#include "tenor/workspace.h"

namespace tenor {
namespace {

using MoeCudaCapture = testing::CudaCaptureTest;

TEST_F(MoeCudaCapture, Layer) {
  for (DType dtype : {bfloat16, float32})
    for (int64_t T : {1, 20, 300}) {
      const int64_t E = 12, I = 40, H = 64, K = 3;
      const Tensor x = normal({T, H}, dtype), logits = normal({T, E}), bias = normal({E}),
                   gate = normal({E, I, H}, dtype), up = normal({E, I, H}, dtype), down = normal({E, H, I}, dtype),
                   shared = normal({T, H}, dtype), out = result({T, H}, dtype), rows = result({T * K, H}, dtype);
      const std::string what = std::string(name(dtype)) + " " + std::to_string(T);
      const moe::SwiGluExperts experts(gate, up, down);
      expect_replays("moe.forward " + what, {out}, [&] { experts.forward(x, logits, K, {.out = out}); });
      expect_replays("moe.forward_sigmoid_grouped " + what, {out}, [&] {
        experts.forward_sigmoid_grouped(x, logits, bias,
                                        {.routing = {.top_k = K, .groups = 4, .selected_groups = 2}, .out = out});
      });
      for (const char* strategy : {"auto", "scalar"})
        expect_replays(std::string("moe.forward_routed ") + strategy + " " + what, {out}, [&] {
          experts.forward_routed(x, moe::route(logits, K), {.shared = shared, .strategy = strategy, .out = out});
        });
      expect_replays("moe.forward_dispatched " + what, {rows},
                     [&] { experts.forward_dispatched(moe::route(logits, K).dispatch(x), {.out = rows}); });
    }
}

/// Nodes of what the calls of fn become when they are captured.
template <class F>
size_t nodes_of(cudaStream_t stream, F&& fn) {
  fn();  // what is built once is built
  cudaGraph_t graph = nullptr;
  size_t nodes = 0;
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  fn();
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
  cudaGraphDestroy(graph);
  return nodes;
}

TEST_F(MoeCudaCapture, OneTokenTakesThreeLaunches) {
  if (core::device_traits(testing::kGpu).capability != 90) GTEST_SKIP() << "no Hopper GPU";
  const int64_t E = 32, I = 64, H = 128, K = 4;
  const Tensor x = normal({1, H}, bfloat16), logits = normal({1, E}), out = result({1, H}, bfloat16);
  const moe::SwiGluExperts experts(normal({E, I, H}, bfloat16), normal({E, I, H}, bfloat16),
                                   normal({E, H, I}, bfloat16));
  const Tensor workspace = Tensor::empty({1 << 20}, uint8, testing::kGpu);
  const WorkspaceGuard guard(workspace);  // memory taken from a pool would be nodes as well
  EXPECT_EQ(nodes_of(current_stream(testing::kGpu).handle, [&] { experts.forward(x, logits, K, {.out = out}); }), 3u);
}

TEST_F(MoeCudaCapture, PlansAndProducts) {
  const Tensor ids = input({50, 2}, int32, [](testing::Draw&draw) { return static_cast<double>(draw.upto(8)) - 1; }),
               weights = normal({50, 2}), x = normal({50, 40}), out = result({100, 40});
  expect_replays("moe.dispatch", {out}, [&] { moe::RoutingPlan(ids, weights, 8).dispatch(x, {.out = out}); });
  for (DType dtype : {bfloat16, float32}) {
    const Tensor a = normal({90, 64}, dtype), w = normal({3, 24, 64}, dtype), y = result({90, 24}, dtype),
                 offsets = input({4}, int64, [n = 0, at = int64_t{0}](testing::Draw&draw) mutable {
                   at = n++ % 4 == 0 ? 0 : at + draw.upto(30);
                   return static_cast<double>(at);
                 });
    expect_replays("moe.grouped_matmul " + std::string(name(dtype)), {y},
                   [&] { moe::grouped_matmul(a, w, offsets, {.out = y}); });
  }
}

}  // namespace
}  // namespace tenor
