// Operators with a workspace of the caller's: exactly as much as workspace_size says, and nothing allocated beside it.
#include "tenor/workspace.h"

#include <functional>

#include "src/cuda/capture_testing.h"
#include "tenor/contract.h"
#include "tenor/index.h"
#include "tenor/reduce.h"
#include "tenor/sampling.h"
#include "tenor/scan.h"
#include "tenor/sort.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using testing::kGpu;
using testing::on_cpu;
using testing::same_bits;

/// Gives memory and counts.
class Counting final : public Allocator {
 public:
  std::shared_ptr<void> allocate(size_t bytes, Device device) override {
    count += device.type == DeviceType::kCuda;
    return default_allocator().allocate(bytes, device);
  }
  int count = 0;
};

class CudaWorkspace : public testing::CudaCaptureTest {
 protected:
  /// The same bits in a workspace of that size, at an odd place within other memory; a byte less is refused.
  void expect_exact(const std::string& what, const Tensor& out, const Run& run) {
    run();
    const Tensor want = on_cpu(out);
    const auto bytes = static_cast<int64_t>(workspace_size(kGpu, run));
    EXPECT_TRUE(same_bits(on_cpu(out), want)) << what << ": measuring ran the operator";
    const Tensor memory = testing::full({bytes + 512}, uint8, 0xAB).to(kGpu), workspace = narrow(memory, 0, 256, bytes);
    core::copy_into(testing::full(out.shape(), out.dtype(), is_float(out.dtype()) ? testing::kNan : 77).to(kGpu), out);
    Counting counting;
    {
      const AllocatorGuard counted(&counting);
      const WorkspaceGuard guard(workspace, what.c_str());
      run();
    }
    EXPECT_EQ(counting.count, 0) << what << " allocates beside its workspace";
    EXPECT_TRUE(same_bits(on_cpu(out), want)) << what;
    for (const Tensor& edge : {narrow(memory, 0, 0, 256), narrow(memory, 0, 256 + bytes, 256)})
      EXPECT_TRUE(same_bits(on_cpu(edge), testing::full({256}, uint8, 0xAB)))
          << what << " writes outside of its workspace";
    if (bytes == 0) return;
    const WorkspaceGuard guard(narrow(memory, 0, 256, bytes - 1), what.c_str());
    EXPECT_THROW(run(), ShapeError) << what;
  }
};

TEST_F(CudaWorkspace, IsExactAndAllThatIsAllocated) {
  const Tensor x = normal({3, 170001}), places = result({3, 170001}, int64), values = result({3, 170001});
  expect_exact("sort", values, [&] { sort(x, {.out = {values, places}}); });
  expect_exact("cumsum", values, [&] { cumsum(x, 1, {.out = values}); });
  const Tensor line = normal({1 << 20}), total = result({});
  expect_exact("sum", total, [&] { sum(line, {.out = total}); });
  expect_exact("var", total, [&] { tenor::var(line, {.out = total}); });
  const Tensor a = normal({200, 300}, bfloat16), b = normal({300, 100}, bfloat16), y = result({200, 100}, bfloat16);
  expect_exact("matmul", y, [&] { matmul(a, b, {.out = y}); });
  const std::vector<Tensor> operands = {normal({20, 30}), normal({30, 40}), normal({40, 50})};
  const Tensor chain = result({20, 50});
  expect_exact("einsum", chain, [&] { einsum("ij,jk,kl->il", operands, {.out = chain}); });
  const Tensor rows = normal({500, 64}), index = integers({500}, 40), table = normal({40, 64}),
               added = result({40, 64});
  expect_exact("index_add", added, [&] { index_add(table, 0, index, rows, {.out = added}); });
  const Tensor probs = probabilities({2, 5000}), ids = result({2, 8}, int64);
  expect_exact("multinomial", ids, [&] { multinomial(probs, 8, {.seed = 3, .out = ids}); });
  expect_exact("multinomial", ids, [&] { multinomial(probs, 8, {.replacement = true, .seed = 3, .out = ids}); });
}

TEST_F(CudaWorkspace, ResultsAreNoWorkspace) {
  const Tensor x = normal({3, 170001});
  const Tensor workspace = Tensor::empty({64 << 20}, uint8, kGpu);
  SortResult got;
  {
    const WorkspaceGuard guard(workspace);
    got = sort(x);
  }
  core::copy_into(testing::full({64 << 20}, uint8, 0xFF).to(kGpu), workspace);
  EXPECT_TRUE(same_bits(on_cpu(got.values), sort(on_cpu(x)).values));
}

TEST_F(CudaWorkspace, IsCaptured) {
  const Tensor x = normal({3, 9000}), places = result({3, 9000}, int64), values = result({3, 9000});
  const auto run = [&] { sort(x, {.out = {values, places}}); };
  const Tensor workspace = Tensor::empty({static_cast<int64_t>(workspace_size(kGpu, run))}, uint8, kGpu);
  expect_replays("sort", {values, places}, [&] {
    const WorkspaceGuard guard(workspace);
    run();
  });
}

TEST_F(CudaWorkspace, WhatIsNone) {
  EXPECT_EQ(workspace_size(kCpu, [] { FAIL(); }), 0U);
  const Tensor x = integers({100}, 7);
  EXPECT_THROW(workspace_size(kGpu, [&] { unique(x); }), UnsupportedError);
  EXPECT_NO_THROW(synchronize(kGpu));
  testing::expect_error<DTypeError>([&] { const WorkspaceGuard guard(x, "sort"); },
                                    "sort: workspace must be uint8, got int64");
  const Tensor bytes = Tensor::empty({1000}, uint8, kGpu);
  testing::expect_error<ValueError>([&] { const WorkspaceGuard guard(narrow(bytes, 0, 1, 100), "sort"); },
                                    "sort: workspace must start at a multiple of 256 bytes");
}

}  // namespace
}  // namespace tenor
