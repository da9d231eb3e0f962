// Which run-time compilers are taken.
#include "src/cuda/nvrtc.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace tenor::cuda {
namespace {

TEST(Nvrtc, IsOfTheMajorVersionThatTenorWasBuiltWith) {
  constexpr int kMajor = CUDART_VERSION / 1000;
  for (const int minor : {0, 1, 9}) EXPECT_EQ(why_not_version("file", kMajor, minor), "");
  for (const int major : {kMajor - 1, kMajor + 1})
    EXPECT_EQ(why_not_version("a/file", major, 4), "a/file is NVRTC " + std::to_string(major) +
                                                       ".4, but Tenor was built with CUDA " + std::to_string(kMajor));
  if (why_no_nvrtc().empty()) EXPECT_EQ(nvrtc_version().rfind(std::to_string(kMajor) + ".", 0), 0u);
}

}  // namespace
}  // namespace tenor::cuda
