// Index operators captured in a CUDA graph, and those that cannot be because their result's size depends on data.
#include <cuda_runtime_api.h>

#include <functional>

#include "src/core/output.h"
#include "src/cuda/testing.h"
#include "tenor/create.h"
#include "tenor/index.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;

/// A stream of its own, current while it lives.
class IndexCudaCapture : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
  }
  void TearDown() override {
    if (stream_) cudaStreamDestroy(stream_);
  }

  cudaStream_t stream_ = nullptr;
};

TEST_F(IndexCudaCapture, ReplaysWithNewContents) {
  const StreamGuard guard(stream_);
  const Tensor x = filled({40, 64}, float32, [](int64_t i) { return i % 97; }).to(kGpu),
               index = testing::full({3}, int64, 5).to(kGpu), rows = testing::full({3, 64}, float32, 1).to(kGpu),
               mask = testing::full({40, 64}, boolean, 0).to(kGpu);
  const Tensor selected = empty({3, 64}, {.device = kGpu}), sums = empty({40, 64}, {.device = kGpu}),
               put = empty({40, 64}, {.device = kGpu}), rolled = empty({40, 64}, {.device = kGpu}), masked = x.clone();
  const auto run = [&] {
    index_select(x, 0, index, {.out = selected});
    index_add(x, 0, index, rows, {.out = sums});
    index_put(x, {index}, Scalar(2), {.out = put});
    index_put_(masked, {mask}, Scalar(3));
    masked_scatter_(masked, mask, x);
    roll(x, {1}, {1}, {.out = rolled});
  };
  synchronize(kGpu);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  run();
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  for (double place : {7, 39}) {
    core::copy_into(testing::full({3}, int64, place).to(kGpu), index);
    core::copy_into(filled({40, 64}, boolean, [&](int64_t i) { return i / 64 == place; }).to(kGpu), mask);
    ASSERT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
    synchronize(kGpu);
    const Tensor row = select(on_cpu(x), 0, static_cast<int64_t>(place));
    EXPECT_EQ(values(select(on_cpu(selected), 0, 2)), values(row));
    EXPECT_EQ(values(select(on_cpu(put), 0, static_cast<int64_t>(place))), std::vector<double>(64, 2));
    EXPECT_EQ(values(select(on_cpu(sums), 0, static_cast<int64_t>(place)))[5], values(row)[5] + 3);
    EXPECT_EQ(values(select(on_cpu(masked), 0, static_cast<int64_t>(place)))[5], values(on_cpu(x))[5]);
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}

TEST_F(IndexCudaCapture, SizesThatDependOnDataAreRefused) {
  const StreamGuard guard(stream_);
  const Tensor x = testing::full({5}, int64, 1).to(kGpu), mask = testing::full({5}, boolean, 1).to(kGpu);
  synchronize(kGpu);
  const std::function<void()> calls[] = {[&] { nonzero(x); }, [&] { masked_select(x, mask); },
                                         [&] { index_get(x, {mask}); }, [&] { one_hot(x); },
                                         [&] { repeat_interleave(x, x); }};
  for (const auto& call : calls) {
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
    EXPECT_THROW(call(), UnsupportedError);
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    cudaGraphDestroy(graph);
  }
}

}  // namespace
}  // namespace tenor
