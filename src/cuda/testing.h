// What tests of operators on CUDA share.
#pragma once

#include "src/core/testing.h"
#include "tenor/stream.h"

namespace tenor::testing {

inline constexpr Device kGpu{DeviceType::kCuda, 0};

/// Tests of this fixture skip themselves where there is no CUDA device.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
};

/// A copy on the GPU with x's strides and offset, gaps included.
inline Tensor on_gpu(const Tensor& x) {
  if (!x.defined()) return x;
  int64_t reach = 1;
  for (int d = 0; d < x.ndim(); ++d) reach += (x.shape(d) - 1) * x.stride(d);
  if (x.numel() == 0) return x.to(kGpu);
  return x.with_layout({x.offset() + reach}, {1}, 0).to(kGpu).with_layout(x.shape(), x.strides(), x.offset());
}
inline Tensor on_cpu(const Tensor& x) { return x.to(kCpu); }

}  // namespace tenor::testing
