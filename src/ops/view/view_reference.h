// The oracle of the view operators: where each element of a result comes from, told by index arithmetic on shapes
// alone.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tenor/tensor.h"

namespace tenor::reference {

/// Calls fn(index) for every index tuple of a shape, row-major.
inline void for_each_index(const Dims& shape, const std::function<void(const Dims&)>& fn) {
  Dims at(shape.size(), 0);
  for (int64_t i = 0; i < product(shape); ++i) {
    fn(at);
    for (size_t d = at.size(); d-- > 0 && ++at[d] == shape[d];) at[d] = 0;
  }
}

/// Element `at` of an int64 tensor, through its strides.
inline int64_t element(const Tensor& x, const Dims& at) {
  int64_t offset = 0;
  for (size_t d = 0; d < at.size(); ++d) offset += at[d] * x.strides()[d];
  return x.data<int64_t>()[offset];
}

/// The elements of an int64 tensor, row-major.
inline std::vector<int64_t> elements(const Tensor& x) {
  std::vector<int64_t> out;
  for_each_index(x.shape(), [&](const Dims& at) { out.push_back(element(x, at)); });
  return out;
}

/// The elements that a view shows when its index `at` means source(at) in x.
inline std::vector<int64_t> shown(const Tensor& x, const Dims& shape, const std::function<Dims(const Dims&)>& source) {
  std::vector<int64_t> out;
  for_each_index(shape, [&](const Dims& at) { out.push_back(element(x, source(at))); });
  return out;
}

}  // namespace tenor::reference
