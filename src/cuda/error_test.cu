// Errors of the device become Tenor's, name the operator, and leave the process usable: after one that the context
// survives, the GPU too; after one that it does not, the CPU.
#include <cstdlib>

#include "src/cuda/launch.h"
#include "src/cuda/testing.h"
#include "tenor/contract.h"
#include "tenor/elementwise.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using testing::kGpu;
using testing::on_cpu;
using testing::values;

class CudaErrors : public testing::CudaTest {
 protected:
  /// What an error must leave: no error for the next call to find, and kernels that run.
  static void expect_usable() {
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    const Tensor x = testing::full({1000}, float32, 3).to(kGpu);
    EXPECT_EQ(values(on_cpu(add(x, x))), std::vector<double>(1000, 6));
    EXPECT_NO_THROW(synchronize(kGpu));
  }
};

template <class E, class F>
void expect_mention(F&& fn, const std::string& text) {
  try {
    fn();
    ADD_FAILURE() << "no error";
  } catch (const E& e) {
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
  }
}

TEST_F(CudaErrors, NoMemoryForAResult) {
  const Tensor one = testing::full({1}, float32, 1).to(kGpu), wide = expand(one, {int64_t{1} << 42});  // 16 TiB
  expect_mention<OutOfMemoryError>([&] { add(wide, 1); }, "out of device memory");
  expect_usable();
  const Tensor row = expand(one, {1, int64_t{1} << 21});
  expect_mention<OutOfMemoryError>([&] { matmul(transpose(row, 0, 1), row); }, "out of device memory");
  expect_usable();
  EXPECT_THROW(Tensor::empty({int64_t{1} << 50}, uint8, kGpu), OutOfMemoryError);
  expect_usable();
  // What is there may be had afterwards: nothing of the attempts is kept.
  EXPECT_NO_THROW(Tensor::empty({int64_t{1} << 30}, uint8, kGpu));
}

__global__ void nothing_kernel() {}

TEST_F(CudaErrors, ALaunchThatTheDeviceRefuses) {
  expect_mention<CudaError>([] { cuda::launch("softmax", nothing_kernel, {1, 4096}, kGpu); }, "softmax: ");
  expect_usable();
  expect_mention<CudaError>(
      [] {
        cuda::launch("softmax", nothing_kernel, {1, 32, size_t{1} << 30}, kGpu);
      },
      "softmax: ");
  expect_usable();
}

/// In a process of its own: an access beyond memory ends the context.
void lose_the_context() {
  const Tensor wild = Tensor::wrap(reinterpret_cast<void*>(0x100), kGpu, float32, {1 << 20}),
               kept = Tensor::empty({10}, float32, kGpu);
  try {
    add_(wild, 1);
    synchronize(kGpu);
    std::_Exit(3);  // no error
  } catch (const CudaError&) {
  }
  try {
    synchronize(kGpu);
    std::_Exit(4);
  } catch (const CudaError&) {
  }
  const Tensor x = testing::full({5}, float32, 2);
  if (values(mul(x, x)) != std::vector<double>(5, 4)) std::_Exit(5);
}

TEST_F(CudaErrors, ALostContextLeavesTheCpu) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT((lose_the_context(), std::exit(0)), ::testing::ExitedWithCode(0), "");
  expect_usable();
}

}  // namespace
}  // namespace tenor
