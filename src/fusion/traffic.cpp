#include "src/fusion/traffic.h"

#include <algorithm>

namespace tenor::fusion {
namespace {

/// (stride, size) of the dims that step through memory, the smallest stride first.
std::vector<std::pair<int64_t, int64_t>> moving_dims(const Dims& shape, const Dims& strides) {
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] > 1 && strides[d] != 0) dims.emplace_back(strides[d], shape[d]);
  std::sort(dims.begin(), dims.end());
  return dims;
}

}  // namespace

int64_t distinct_elements(const Dims& shape, const Dims& strides) {
  if (product(shape) == 0) return 0;
  int64_t count = 1, reach = 1;  // elements so far, and the span from the first to behind the last
  for (const auto& [stride, size] : moving_dims(shape, strides)) {
    const int64_t span = (size - 1) * stride + reach;
    count = stride >= reach ? count * size : std::min(count * size, span);
    reach = span;
  }
  return count;
}

std::vector<int64_t> elements_key(const Tensor& x) {
  std::vector<int64_t> key{x.numel() == 0 ? 0 : x.offset(), static_cast<int64_t>(item_size(x.dtype()))};
  for (const auto& [stride, size] : moving_dims(x.shape(), x.strides())) key.push_back(stride), key.push_back(size);
  return key;
}

}  // namespace tenor::fusion
