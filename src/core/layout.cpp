#include "src/core/layout.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace tenor::core {

Extent extent(const Tensor& x) {
  const char* first = static_cast<const char*>(x.raw());
  if (x.numel() == 0) return {first, first};
  int64_t last = 0;
  for (int d = 0; d < x.ndim(); ++d) last += (x.shape(d) - 1) * x.stride(d);
  return {first, first + (last + 1) * static_cast<int64_t>(item_size(x.dtype()))};
}

bool spans_overlap(const Tensor& a, const Tensor& b) {
  if (a.device() != b.device() || a.device().type == DeviceType::kMeta) return false;
  const Extent ea = extent(a), eb = extent(b);
  return ea.first < eb.last && eb.first < ea.last;
}

bool same_elements(const Tensor& a, const Tensor& b) {
  if (a.raw() != b.raw() || item_size(a.dtype()) != item_size(b.dtype()) || a.shape() != b.shape()) return false;
  for (int d = 0; d < a.ndim(); ++d)
    if (a.shape(d) != 1 && a.stride(d) != b.stride(d)) return false;
  return true;
}

bool has_internal_overlap(const Tensor& x) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (int d = 0; d < x.ndim(); ++d) {
    if (x.shape(d) == 0) return false;
    if (x.shape(d) > 1) dims.emplace_back(x.stride(d), x.shape(d));
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;  // the farthest offset that the smaller strides get to
  bool nested = true;
  for (auto [stride, size] : dims) {
    if (stride == 0) return true;
    nested = nested && stride > reach;
    reach += stride * (size - 1);
  }
  if (nested) return false;
  // Strides that interleave without nesting are rare (as_strided): list the offsets where that is cheap, else say yes.
  if (x.numel() > 1 << 20) return true;
  std::vector<int64_t> offsets{0};
  for (auto [stride, size] : dims) {
    const size_t have = offsets.size();
    for (int64_t i = 1; i < size; ++i)
      for (size_t k = 0; k < have; ++k) offsets.push_back(offsets[k] + i * stride);
  }
  std::sort(offsets.begin(), offsets.end());
  return std::adjacent_find(offsets.begin(), offsets.end()) != offsets.end();
}

Dims broadcast_strides(const Tensor& x, const Dims& shape) {
  Dims strides(shape.size(), 0);
  const size_t lead = shape.size() - x.shape().size();
  for (size_t i = 0; i < x.shape().size(); ++i)
    strides[lead + i] = x.shape()[i] == 1 && shape[lead + i] != 1 ? 0 : x.strides()[i];
  return strides;
}

Dims result_strides(const Dims& shape, const Tensor& like) {
  if (!like.defined() || like.shape().size() != shape.size() || like.is_contiguous()) return contiguous_strides(shape);
  // A dim of size 1 or of stride 0 has no place of its own: it stays beside its right neighbour.
  Dims place(shape.size(), 1), order(shape.size(), 0);
  for (size_t i = shape.size(); i-- > 0;) {
    const bool placed = like.shape()[i] != 1 && like.strides()[i] != 0;
    place[i] = placed ? like.strides()[i] : i + 1 < shape.size() ? place[i + 1] : 1;
  }
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return place[a] > place[b]; });
  Dims strides(shape.size(), 0);
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step *= std::max<int64_t>(shape[order[i]], 1);
  }
  return strides;
}

Dims in_memory_order(const Tensor& x, Dims dims) {
  const Dims memory = result_strides(x.shape(), x);
  std::stable_sort(dims.begin(), dims.end(), [&](int64_t a, int64_t b) { return memory[a] > memory[b]; });
  return dims;
}

}  // namespace tenor::core
