#include "src/cuda/layout.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "src/core/text.h"
#include "tenor/error.h"

namespace tenor::cuda {

Divider make_divider(int64_t d) {
  d = std::max<int64_t>(d, 1);  // an empty dim is never divided by
  Divider out;
  out.divisor = static_cast<uint32_t>(d);
  while ((int64_t{1} << out.shift) < d) ++out.shift;
  out.magic = static_cast<uint32_t>(
      ((uint64_t{1} << 32) * ((uint64_t{1} << out.shift) - static_cast<uint64_t>(d))) / static_cast<uint64_t>(d) + 1);
  return out;
}

void collapse_into(const char* op, const Dims& shape, const Dims* strides, int n, int lead, int& ndim, int64_t& count,
                   int64_t* size, int64_t (*stride)[kMaxDims], Divider* divider) {
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (lead >= 0)
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t x, size_t y) { return strides[lead][x] > strides[lead][y]; });
  ndim = 0;
  count = 1;
  for (size_t d : order) {
    count *= shape[d];
    if (shape[d] == 1) continue;
    const auto merges = [&](int t) { return stride[t][ndim - 1] == shape[d] * strides[t][d]; };
    bool merge = ndim > 0;
    for (int t = 0; merge && t < n; ++t) merge = merges(t);
    if (!merge && ndim == kMaxDims)
      core::fail<UnsupportedError>("{}: more than {} dims that do not merge, shape {}", op, kMaxDims, shape);
    if (!merge) size[ndim++] = 1;
    size[ndim - 1] *= shape[d];
    for (int t = 0; t < n; ++t) stride[t][ndim - 1] = strides[t][d];
  }
  for (int d = 0; count > 0 && count <= INT32_MAX && d < ndim; ++d) divider[d] = make_divider(size[d]);
}

}  // namespace tenor::cuda
