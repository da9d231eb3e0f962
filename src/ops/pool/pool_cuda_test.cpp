// Pooling on a GPU.
#include <cuda_runtime_api.h>

#include "src/cuda/testing.h"
#include "src/ops/pool/pool_shared_tests.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;
using PoolCuda = CudaTest;

const Place kThere = [](const Tensor& x) { return on_gpu(x); };

TEST_F(PoolCuda, MaxMatchesTheReference) { test_max_pool(kThere, 360); }
TEST_F(PoolCuda, AveragesMatchTheReference) { test_avg_pool(kThere, 240); }
TEST_F(PoolCuda, MaxGradientsGoWhereIndicesSay) { test_max_pool_backward(kThere, 240); }
TEST_F(PoolCuda, NormsMatchTheReference) { test_lp_pool(kThere, 160); }
TEST_F(PoolCuda, EverySmallWindow) { test_every_small_window(kThere); }
TEST_F(PoolCuda, NothingInTheBatch) { test_nothing_in_the_batch(kThere); }
TEST_F(PoolCuda, LargerImages) { test_larger_images(kThere); }
TEST_F(PoolCuda, WholePlanes) { test_whole_planes(kThere); }
TEST_F(PoolCuda, PaddingOfASingleSlice) { test_padding_of_a_single_slice(kThere); }

TEST_F(PoolCuda, ABadIndexIsDroppedAndReported) {
  const Tensor g = on_gpu(full({1, 2, 1, 3}, float32, 1)), at = tensor_of({1, 2, 1, 3}, int64, {0, 3, 3, 1, -1, 2});
  for (const double bad : {4.0, -2.0, 4294967299.0}) {
    put(at, 4, bad);
    const Tensor dx = max_pool2d_backward(g, on_gpu(at), {1, 2, 2, 2});
    expect_error<IndexError>([&] { synchronize(kGpu); },
                             core::text("max_pool2d_backward: indices holds {} at position 4, which is out of range",
                                        static_cast<int64_t>(bad)));
    EXPECT_EQ(values(on_cpu(dx)), std::vector<double>({1, 0, 0, 2, 0, 1, 1, 0}));
  }
}

/// Planes that several blocks share, and every output at one place.
TEST_F(PoolCuda, GradientsOfLargePlanesAndOfOnePlace) {
  Draw draw(2);
  const Dims shape{2, 3, 260, 260}, pooled{2, 3, 60, 50};
  for (DType dtype : {float32, float64, bfloat16})
    for (const bool one : {false, true}) {
      const Tensor g = draw.dense(pooled, dtype),
                   at = filled(pooled, int64, [&](int64_t) { return one ? 67599 : draw.upto(67599); });
      EXPECT_TRUE(
          same_bits(on_cpu(max_pool2d_backward(on_gpu(g), on_gpu(at), shape)), max_pool2d_backward(g, at, shape)));
    }
}

TEST_F(PoolCuda, TheSameBitsAloneAndInABatch) {
  Draw draw(3);
  const Tensor rows = draw.dense({3, 40, 33, 29}, bfloat16),
               channels = permute(draw.dense({3, 33, 29, 40}, bfloat16), {0, 3, 1, 2});
  for (const Tensor& x : {on_gpu(rows), on_gpu(channels)}) {
    const AvgPoolOptions o{{2}, {1}};
    const auto all = [&](const Tensor& t) {
      const Tensor y = avg_pool2d(t, {3}, o);
      return std::vector<Tensor>{y, avg_pool2d_backward(y, t.shape(), {3}, o), adaptive_avg_pool2d(t, {5}),
                                 adaptive_avg_pool2d(t, {1}), lp_pool2d(t, 3, {3})};
    };
    const std::vector<Tensor> want = all(x), alone = all(narrow(x, 0, 1, 1));
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(same_bits(on_cpu(alone[i]), on_cpu(narrow(want[i], 0, 1, 1)))) << i;
  }
}

/// More than 2^31 elements: the last ones are where they should be, and so are their indices.
TEST_F(PoolCuda, OffsetsBeyond32Bits) {
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  if (free < (size_t{12} << 30)) GTEST_SKIP() << "not enough memory";
  const int64_t h = 1 << 15, w = (1 << 16) + 8;
  const Tensor x = Tensor::empty({1, 1, h, w}, uint8, kGpu);
  cudaMemset(x.raw(), 1, static_cast<size_t>(x.numel()));
  cudaMemset(static_cast<char*>(x.raw()) + x.numel() - 3, 9, 1);
  const MaxPoolResult y = max_pool2d(x, {64, 8}, {.return_indices = true});
  const Tensor last = narrow(narrow(y.values, 2, h / 64 - 1, 1), 3, w / 8 - 1, 1),
               at = narrow(narrow(y.indices, 2, h / 64 - 1, 1), 3, w / 8 - 1, 1);
  EXPECT_EQ(values(on_cpu(last)), std::vector<double>{9});
  EXPECT_EQ(values(on_cpu(at)), std::vector<double>{static_cast<double>(x.numel() - 3)});
  EXPECT_EQ(values(on_cpu(narrow(narrow(max_pool2d(x, {64, 8}).values, 2, h / 64 - 1, 1), 3, w / 8 - 2, 2))),
            std::vector<double>({1, 9}));
  const Tensor planes = x.with_layout({h, 1, w}, {w, w, 1}, 0);
  EXPECT_EQ(values(on_cpu(narrow(narrow(max_pool1d(planes, {8}).values, 0, h - 1, 1), 2, w / 8 - 2, 2))),
            std::vector<double>({1, 9}));
  const Tensor channels = x.with_layout({1, w, 1, h}, {x.numel(), 1, x.numel(), w}, 0);
  EXPECT_EQ(values(on_cpu(narrow(narrow(max_pool2d(channels, {1, 2}).values, 1, w - 4, 4), 3, h / 2 - 1, 1))),
            std::vector<double>({1, 9, 1, 1}));
}

}  // namespace
}  // namespace tenor
