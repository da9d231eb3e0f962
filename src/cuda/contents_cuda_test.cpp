// What a kernel finds in the contents of a device array is raised by the next call that waits, as the error that the
// CPU raises at once.
#include <functional>

#include "src/cuda/testing.h"
#include "tenor/attention.h"
#include "tenor/gated_delta.h"
#include "tenor/index.h"
#include "tenor/moe.h"
#include "tenor/sampling.h"

namespace tenor {
namespace {

using testing::full;
using testing::kGpu;
using testing::list;
using testing::on_gpu;

class CudaContents : public testing::CudaTest {
 protected:
  /// run(device) with arrays there.
  template <class E>
  void expect_both(const std::string& what, const std::function<void(Device)>& run) {
    EXPECT_THROW(run(kCpu), E) << what;
    EXPECT_NO_THROW(run(kGpu)) << what;
    EXPECT_THROW(synchronize(kGpu), E) << what;
    EXPECT_NO_THROW(synchronize(kGpu)) << what << ", a second time";
  }
};

TEST_F(CudaContents, AreTheSameErrorsAsOnTheCpu) {
  const auto ones = [](const Dims& shape, Device device) { return full(shape, float32, 1).to(device); };
  expect_both<IndexError>("index_select", [&](Device d) { index_select(ones({3}, d), 0, list({3}, int64).to(d)); });
  expect_both<ValueError>("attention_varlen", [&](Device d) {
    const Tensor x = ones({4, 1, 8}, d);
    attention_varlen(x, x, x, list({0, 3, 2}, int32).to(d), list({0, 2, 4}, int32).to(d));
  });
  expect_both<ValueError>("moe.grouped_matmul", [&](Device d) {
    moe::grouped_matmul(ones({4, 8}, d), ones({2, 3, 8}, d), list({0, 5, 4}, int64).to(d));
  });
  for (const bool chunked : {false, true})
    expect_both<ValueError>("gated_delta_rule", [&](Device d) {
      const Tensor x = ones({1, 1, 4, 8}, d), g = ones({1, 1, 4}, d), bounds = list({0, 5}, int64).to(d);
      if (chunked)
        chunk_gated_delta_rule(x, x, x, g, g, {.cu_seqlens = bounds});
      else
        gated_delta_rule(x, x, x, g, g, {.cu_seqlens = bounds});
    });
  const auto sampled = [&](const std::string& what, const std::function<SampleOptions(const Tensor&)>& options,
                           double bad) {
    expect_both<ValueError>(what, [&](Device d) { sample(ones({1, 5}, d), options(list({bad}).to(d))); });
  };
  sampled(
      "temperature", [](const Tensor& x) { return SampleOptions{.temperature = x, .seed = 1}; }, -1);
  sampled(
      "top_p", [](const Tensor& x) { return SampleOptions{.top_p = x, .seed = 1}; }, testing::kNan);
  sampled(
      "min_p", [](const Tensor& x) { return SampleOptions{.min_p = x, .seed = 1}; }, 1.5);
  expect_both<IndexError>("speculative_accept", [&](Device d) {
    speculative_accept(full({1, 2, 4}, float32, 0.25).to(d), {}, testing::tensor_of({1, 1}, int64, {4}).to(d),
                       {.seed = 1});
  });
}

}  // namespace
}  // namespace tenor
