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
TEST_F(PoolCuda, WideWindows) { test_wide_windows(kThere); }
TEST_F(PoolCuda, WholePlanes) { test_whole_planes(kThere); }
TEST_F(PoolCuda, GradientsOfPlaces) { test_gradients_of_places(kThere); }
TEST_F(PoolCuda, GradientsOfBins) { test_gradients_of_bins(kThere); }
TEST_F(PoolCuda, DivisorsBeyond64Bits) { test_divisors_beyond_64_bits(kThere); }
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

/// Means of whole planes: the same bits wherever an image lies.
TEST_F(PoolCuda, PlanesAnywhere) {
  Draw draw(4);
  for (const Dims& s : {Dims{3, 16, 20, 24}, {3, 16, 7, 7}, {2, 8, 64, 72}, {3, 8, 14, 14}})
    for (const DType dtype : {bfloat16, float32})
      for (const bool channels : {false, true})
        for (const int64_t shift : {0, 1, 3}) {
          const int64_t plane = s[2] * s[3], image = s[1] * plane;
          const Tensor memory = on_gpu(draw.dense({s[0] * (image + shift) + shift}, dtype));
          const Dims strides =
              channels ? Dims{image + shift, 1, s[3] * s[1], s[1]} : Dims{image + shift, plane, s[3], 1};
          const Tensor x = memory.with_layout(s, strides, shift), dense = x.clone();
          const auto one = [](const Tensor& t, int64_t n) { return narrow(t, 0, n, 1); };
          const Tensor want = on_cpu(adaptive_avg_pool2d(dense, {1}));
          EXPECT_TRUE(same_bits(on_cpu(adaptive_avg_pool2d(x, {1})), want))
              << core::text("{} {} {} {}", s, dtype, channels, shift);
          for (int64_t n = 0; n < s[0]; ++n)
            EXPECT_TRUE(same_bits(on_cpu(adaptive_avg_pool2d(one(x, n), {1})), one(want, n)))
                << core::text("{} {}", s, dtype);
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
