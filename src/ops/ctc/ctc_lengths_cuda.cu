#include <algorithm>

#include "src/cuda/content_kind.h"
#include "src/cuda/launch.h"
#include "src/ops/ctc/ctc_lengths_cuda.h"

namespace tenor::ctc {
namespace {

/// What a launch's parameters have room for.
struct Numbers {
  static constexpr int kMost = 448;
  int64_t at[kMost];
};

__global__ void number_kernel(const __grid_constant__ Numbers numbers, int64_t* to, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = numbers.at[i];
}

}  // namespace

Tensor kernel_integers(const Tensor& array) {
  return array.dtype() == int32 || array.dtype() == int64 ? array : array.to(int64);
}

Tensor length_array(const char* op, const CtcLengths& lengths, Device device) {
  if (!lengths.numbers) return lengths.array;
  const auto& all = *lengths.numbers;
  const Tensor to = Tensor::empty({static_cast<int64_t>(all.size())}, int64, device);
  for (size_t first = 0; first < all.size(); first += Numbers::kMost) {
    const size_t count = std::min<size_t>(all.size() - first, Numbers::kMost);
    Numbers some{};
    std::copy_n(all.begin() + static_cast<int64_t>(first), count, some.at);
    cuda::launch(op, number_kernel, {1, 128}, device, some, to.data<int64_t>() + first, static_cast<int>(count));
  }
  return to;
}

ContentOps loss_content_ops(const char* op) {
  using cuda::ContentKind;
  return {cuda::content_op(op, "targets", ContentKind::kIndex),
          cuda::content_op(op, "input_lengths", ContentKind::kValue),
          cuda::content_op(op, "target_lengths", ContentKind::kValue),
          cuda::content_op(op, "targets", ContentKind::kShape,
                           " must hold as many labels as target_lengths add up to, {0}, got {1}")};
}

}  // namespace tenor::ctc
