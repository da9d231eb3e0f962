// Tensors on a CUDA device: copies there and back, strided and converting copies against the CPU's, streams, errors.
#include "src/cuda/runtime.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "src/core/numeric.h"
#include "src/core/output.h"
#include "src/core/visit.h"
#include "tenor/view.h"

namespace tenor {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0};

#define NEEDS_GPU() \
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device"

/// Values that round, overflow, saturate and are not numbers, as far as the dtype can hold them.
Tensor awkward_values(DType dtype, int64_t count) {
  std::mt19937_64 rng(7);
  Tensor x = Tensor::empty({count}, dtype);
  core::visit(dtype, [&]<class T>() {
    for (int64_t i = 0; i < count; ++i) {
      const double scale = std::pow(2.0, static_cast<double>(rng() % 90) - 40);
      const double value = i % 17 == 0   ? NAN
                           : i % 17 == 1 ? INFINITY
                           : i % 17 == 2 ? -0.0
                                         : (static_cast<double>(rng() % 2001) - 1000) * scale;
      x.data<T>()[i] = core::cast<T>(value);
    }
  });
  return x;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.contiguous(), y = b.contiguous();
  if (x.dtype() != y.dtype() || x.shape() != y.shape()) return false;
  if (!is_float(x.dtype())) return std::memcmp(x.raw(), y.raw(), x.numel() * item_size(x.dtype())) == 0;
  return core::visit(x.dtype(), [&]<class T>() {  // a NaN may carry any payload
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double p = static_cast<double>(core::widen(x.data<T>()[i])),
                   q = static_cast<double>(core::widen(y.data<T>()[i]));
      if (std::isnan(p) != std::isnan(q) || (!std::isnan(p) && (p != q || std::signbit(p) != std::signbit(q))))
        return false;
    }
    return true;
  });
}

TEST(CudaTensor, GoesThereAndBack) {
  NEEDS_GPU();
  for (int i = 0; i < kDTypes; ++i) {
    const Tensor x = awkward_values(static_cast<DType>(i), 1000);
    const Tensor y = x.to(kGpu);
    EXPECT_EQ(y.device(), kGpu);
    EXPECT_TRUE(same_bits(y.to(kCpu), x)) << name(x.dtype());
  }
  EXPECT_EQ(Tensor::empty({0, 3}, float32).to(kGpu).to(kCpu).shape(), (Dims{0, 3}));
}

TEST(CudaTensor, KeepsTheDimensionOrder) {
  NEEDS_GPU();
  const Tensor x = view(awkward_values(float32, 2 * 3 * 4 * 5), {2, 3, 4, 5});
  for (const Dims& order : {Dims{0, 3, 1, 2}, Dims{3, 2, 1, 0}, Dims{1, 0, 3, 2}}) {
    const Tensor p = permute(x, order), q = p.to(kGpu);
    EXPECT_EQ(q.strides(), p.strides());
    EXPECT_TRUE(same_bits(q.to(kCpu), p));
    EXPECT_TRUE(same_bits(q.contiguous().to(kCpu), p));
  }
}

TEST(CudaTensor, StridedCopiesMatchTheCpu) {
  NEEDS_GPU();
  const Tensor x = view(awkward_values(int32, 12 * 35 * 9), {12, 35, 9});
  const Tensor on_gpu = x.to(kGpu);
  EXPECT_TRUE(same_bits(slice(on_gpu, 1, 1, {}, 3).to(kCpu), slice(x, 1, 1, {}, 3)));
  EXPECT_TRUE(same_bits(expand(select(on_gpu, 0, 3), {4, 35, 9}).to(kCpu), expand(select(x, 0, 3), {4, 35, 9})));
  Tensor target = Tensor::empty({9, 12, 35}, int32, kGpu);
  core::copy_into(permute(on_gpu, {2, 0, 1}), target);
  EXPECT_TRUE(same_bits(target.to(kCpu), permute(x, {2, 0, 1})));
}

TEST(CudaTensor, ConversionsHaveTheCpusBits) {
  NEEDS_GPU();
  for (int i = 0; i < kDTypes; ++i) {
    const Tensor x = awkward_values(static_cast<DType>(i), 3001), on_gpu = x.to(kGpu);
    for (int j = 0; j < kDTypes; ++j) {
      const auto to = static_cast<DType>(j);
      EXPECT_TRUE(same_bits(on_gpu.to(to).to(kCpu), x.to(to))) << name(x.dtype()) << " to " << name(to);
    }
  }
}

TEST(CudaTensor, UsesTheCallersStream) {
  NEEDS_GPU();
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  {
    const StreamGuard guard(stream);
    EXPECT_EQ(current_stream(kGpu).handle, stream);
    const Tensor x = awkward_values(float64, 4096);
    EXPECT_TRUE(same_bits(x.to(kGpu).to(float32).to(kCpu), x.to(float32)));
    synchronize(kGpu);
  }
  EXPECT_EQ(current_stream(kGpu).handle, nullptr);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST(CudaTensor, BadContentsSurfaceAtTheNextWait) {
  NEEDS_GPU();
  const Stream stream = current_stream(kGpu);
  static const int kOp = cuda::content_op("index_select", "index");
  *cuda::content_error(stream) = {1, kOp, 4, 99};
  try {
    synchronize(kGpu);
    FAIL() << "no error";
  } catch (const IndexError& e) {
    EXPECT_STREQ(e.what(), "index_select: index holds 99 at position 4, which is out of range");
  }
  EXPECT_FALSE(take_error(kGpu).has_value());
}

TEST(CudaTensor, RefusesWhatIsNotThere) {
  const Tensor x = Tensor::empty({2}, float32);
  EXPECT_THROW(x.to(Device{DeviceType::kCuda, 63}), DeviceError);
  EXPECT_NO_THROW(synchronize(kCpu));
  NEEDS_GPU();
  EXPECT_THROW(Tensor::empty({1LL << 50}, uint8, kGpu), OutOfMemoryError);
  EXPECT_DOUBLE_EQ(x.to(kGpu).to(float32).to(kCpu).numel(), 2);
}

}  // namespace
}  // namespace tenor
