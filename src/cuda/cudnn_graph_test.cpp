// What a failing call of cuDNN's means: a problem that it does not take, or a failure.
#include "src/cuda/cudnn_graph.h"

#include <gtest/gtest.h>

#if __has_include(<cudnn.h>)

namespace tenor::cuda {
namespace {

TEST(CudnnError, DeclinesWhatIsNotSupportedAlone) {
  const auto declines = [](int status) { return CudnnError(static_cast<cudnnStatus_t>(status), "").declines(); };
  EXPECT_TRUE(declines(CUDNN_STATUS_NOT_SUPPORTED));
  EXPECT_TRUE(declines(CUDNN_STATUS_NOT_SUPPORTED_SHAPE));
  EXPECT_TRUE(declines(CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING));
  EXPECT_TRUE(declines(CUDNN_STATUS_BAD_PARAM));
  EXPECT_TRUE(declines(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH));
  EXPECT_FALSE(declines(CUDNN_STATUS_NOT_INITIALIZED));
  EXPECT_FALSE(declines(CUDNN_STATUS_INTERNAL_ERROR));
  EXPECT_FALSE(declines(CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED));
  EXPECT_FALSE(declines(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED));
  EXPECT_FALSE(declines(CUDNN_STATUS_EXECUTION_FAILED));
}

TEST(CudnnError, TellsMemoryFromOtherFailures) {
  EXPECT_TRUE(CudnnError(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "").out_of_memory());
  EXPECT_TRUE(CudnnError(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, "").out_of_memory());
  EXPECT_FALSE(CudnnError(CUDNN_STATUS_INTERNAL_ERROR, "").out_of_memory());
  EXPECT_FALSE(CudnnError(CUDNN_STATUS_EXECUTION_FAILED, "").out_of_memory());
}

}  // namespace
}  // namespace tenor::cuda

#endif
