// Operators captured in a CUDA graph: what a test of a family needs to say is which inputs there are and which calls.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/core/output.h"
#include "src/cuda/testing.h"

namespace tenor::testing {

/// A stream of its own, current while a test runs, and inputs whose contents change between a graph's replays.
///
///     const Tensor x = normal({40, 64}), out = result({40, 64});
///     expect_replays("softmax", {out}, [&] { softmax(x, {.out = out}); });
class CudaCaptureTest : public CudaTest {
 protected:
  using Run = std::function<void()>;
  using Element = std::function<double(Draw&)>;

  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
    current_.emplace(Stream{kGpu, stream_});
  }
  void TearDown() override {
    inputs_.clear();
    current_.reset();
    if (stream_) cudaStreamDestroy(stream_);
  }

  Tensor input(const Dims& shape, DType dtype, Element element) {
    inputs_.push_back({Tensor::empty(shape, dtype, kGpu), std::move(element)});
    refill(inputs_.back());
    return inputs_.back().tensor;
  }
  Tensor normal(const Dims& shape, DType dtype = float32) {
    return input(shape, dtype, [](Draw& draw) { return draw.normal(); });
  }
  /// Whole numbers from 0 to below that.
  Tensor integers(const Dims& shape, int64_t below, DType dtype = int64) {
    return input(shape, dtype, [below](Draw& draw) { return static_cast<double>(draw.upto(below - 1)); });
  }
  Tensor mask(const Dims& shape) { return integers(shape, 2, boolean); }
  Tensor probabilities(const Dims& shape, DType dtype = float32) {
    return input(shape, dtype, [](Draw& draw) { return std::exp(draw.normal()); });
  }
  /// Memory for a result; expect_replays poisons it before each run.
  static Tensor result(const Dims& shape, DType dtype = float32) { return Tensor::empty(shape, dtype, kGpu); }

  /// Captures the call, which writes `outs` (inputs among them where it works in place), as the first of its kind on
  /// this stream; then, twice, gives the inputs new contents and compares a replay with the same call made eagerly, bit
  /// for bit.
  void expect_replays(const std::string& what, const std::vector<Tensor>& outs, const Run& run) {
    synchronize(kGpu);
    cudaGraphExec_t graph = capture(what, run);
    if (!graph) return;
    for (int round = 0; round < 2; ++round) {
      prepare(outs);
      const Draw before = draw_;
      refill_all();
      ASSERT_EQ(cudaGraphLaunch(graph, stream_), cudaSuccess) << what;
      std::vector<Tensor> replayed;
      for (const Tensor& out : outs) replayed.push_back(on_cpu(out));
      prepare(outs);
      draw_ = before;  // the same contents again: the call may have written over them
      refill_all();
      run();
      for (size_t i = 0; i < outs.size(); ++i)
        EXPECT_TRUE(same_bits(replayed[i], on_cpu(outs[i]))) << what << ": a replay gives another result " << i;
    }
    EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess) << what;
  }

  /// The call has to wait for the device: UnsupportedError that says so, and neither the capture nor the stream
  /// suffers.
  void expect_refused(const std::string& op, const Run& run) {
    synchronize(kGpu);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
    try {
      run();
      ADD_FAILURE() << op << ": captured, although it waits for the device";
    } catch (const UnsupportedError& e) {
      const std::string text = e.what();
      EXPECT_EQ(text.substr(0, op.size() + 1), op + ":") << text;
      EXPECT_NE(text.find("captured in a graph"), std::string::npos) << text;
    } catch (const std::exception& e) {
      ADD_FAILURE() << op << ": another class of error: " << e.what();
    }
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess) << op;
    cudaGraphDestroy(graph);
    EXPECT_NO_THROW(run()) << op << " after the capture";
    EXPECT_NO_THROW(synchronize(kGpu)) << op;
  }

 private:
  struct Input {
    Tensor tensor;
    Element element;
  };

  void refill(const Input& in) {
    std::vector<double> elements(static_cast<size_t>(in.tensor.numel()));
    for (double& e : elements) e = in.element(draw_);
    core::copy_into(tensor_of(in.tensor.shape(), in.tensor.dtype(), elements).to(kGpu), in.tensor);
  }
  void refill_all() {
    std::erase_if(inputs_,
                  [](const Input& in) { return in.tensor.storage().use_count() == 1; });  // nobody has it any more
    for (const Input& in : inputs_) refill(in);
  }
  static void prepare(const std::vector<Tensor>& outs) {
    for (const Tensor& out : outs)
      core::copy_into(full(out.shape(), out.dtype(), is_float(out.dtype()) ? kNan : 77).to(kGpu), out);
  }

  /// Null after a failure, which is reported.
  cudaGraphExec_t capture(const std::string& what, const Run& run) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    std::string error;
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess) << what;
    try {
      run();
    } catch (const std::exception& e) {
      error = e.what();
    }
    cudaError_t status = cudaStreamEndCapture(stream_, &graph);
    if (status == cudaSuccess && error.empty()) status = cudaGraphInstantiate(&ready, graph, 0);
    EXPECT_EQ(error, "") << what;
    EXPECT_EQ(status, cudaSuccess) << what << ": " << cudaGetErrorString(status);
    cudaGetLastError();  // what follows starts clean
    if (graph) cudaGraphDestroy(graph);
    return ready;
  }

  cudaStream_t stream_ = nullptr;
  std::optional<StreamGuard> current_;
  std::vector<Input> inputs_;
  Draw draw_{1};
};

}  // namespace tenor::testing
