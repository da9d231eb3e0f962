#include "src/cuda/layout.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "src/core/text.h"

namespace tenor::cuda {

PairLayout collapse(const Dims& shape, const Dims& strides_a, const Dims& strides_b) {
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // By what is written: its smallest stride innermost, so that neighbouring threads write neighbouring elements.
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) { return strides_b[x] > strides_b[y]; });
  PairLayout out;
  for (size_t d : order) {
    out.count *= shape[d];
    if (shape[d] == 1) continue;
    const int last = out.ndim - 1;
    if (last >= 0 && out.a[last] == shape[d] * strides_a[d] && out.b[last] == shape[d] * strides_b[d]) {
      out.size[last] *= shape[d];
      out.a[last] = strides_a[d];
      out.b[last] = strides_b[d];
      continue;
    }
    if (out.ndim == kMaxDims) core::fail<UnsupportedError>("copy: more than {} dims that do not merge, shape {}", kMaxDims, shape);
    out.size[out.ndim] = shape[d];
    out.a[out.ndim] = strides_a[d];
    out.b[out.ndim++] = strides_b[d];
  }
  return out;
}

}  // namespace tenor::cuda
