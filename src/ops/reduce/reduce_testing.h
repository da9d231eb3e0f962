// What tests of reductions share: tensors of any layout, and the elements of each output.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "src/core/layout.h"
#include "src/core/testing.h"
#include "tenor/view.h"

namespace tenor::testing {

using Random = std::mt19937_64;
inline constexpr DType kAll[] = {float32, float64, float16, bfloat16, boolean, int8,  int16,
                                 int32,   int64,   uint8,   uint16,   uint32,  uint64};

inline int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

inline double at(const Tensor& x, int64_t i) { return get(x, offset_of(x, i)); }

inline Tensor numbers(const Dims& shape, DType dtype, Random& random) {
  std::normal_distribution<double> normal;
  return filled(shape, dtype, [&](int64_t) {
    return is_float(dtype) ? normal(random) : static_cast<double>(pick(random, is_signed(dtype) ? -4 : 0, 4));
  });
}
/// A tensor of up to 4 dims, permuted, sliced or broadcast.
inline Tensor any_layout(DType dtype, Random& random) {
  static constexpr int64_t kSizes[] = {0, 1, 2, 3, 5, 8, 17, 31, 33, 64, 70, 130};
  Dims shape;
  const int64_t ndim = pick(random, 0, 4);
  int64_t count = 1;
  for (int64_t d = 0; d < ndim; ++d) {
    const int64_t size = kSizes[pick(random, d == 0 ? 0 : 1, 11)];
    shape.push_back(count * size > 40000 ? 2 : size);
    count *= shape.back();
  }
  if (pick(random, 0, 9) == 0) shape = {pick(random, 1, 30000)};
  if (pick(random, 0, 6) == 0) shape = {pick(random, 4000, 9000), pick(random, 1, 5)};
  Tensor x = numbers(shape, dtype, random);
  if (pick(random, 0, 1)) {
    Dims order;
    for (int d = 0; d < x.ndim(); ++d) order.push_back(d);
    std::shuffle(order.begin(), order.end(), random);
    x = permute(x, order);
  }
  if (x.ndim() > 0 && pick(random, 0, 3) == 0)
    x = slice(x, pick(random, 0, x.ndim() - 1), pick(random, 0, 2), {}, pick(random, 1, 3));
  if (pick(random, 0, 7) == 0) {
    Dims wide = x.shape();
    wide.insert(0, 3);
    x = expand(x, wide);
  }
  return x;
}
inline Dims some_dims(const Tensor& x, Random& random) {
  Dims dims;
  for (int d = 0; d < x.ndim(); ++d)
    if (pick(random, 0, 1)) dims.push_back(pick(random, 0, 1) ? d : d - x.ndim());
  return dims;
}

/// x's elements, output by output: row-major over the dims that stay, then over those reduced, in the order of memory
/// or the logical one.
inline std::vector<std::vector<double>> sequences(const Tensor& x, const Dims& dims, bool logical = false) {
  Dims order, met;
  const auto reduced = [&](int d) {
    return std::find_if(dims.begin(), dims.end(), [&](int64_t r) { return (r + x.ndim()) % x.ndim() == d; }) !=
           dims.end();
  };
  int64_t outputs = 1;
  for (int d = 0; d < x.ndim(); ++d)
    if (!reduced(d)) order.push_back(d), outputs *= x.shape(d);
  for (int d = 0; d < x.ndim(); ++d)
    if (reduced(d)) met.push_back(d);
  const Dims memory = core::result_strides(x.shape(), x);
  if (!logical) std::stable_sort(met.begin(), met.end(), [&](int64_t a, int64_t b) { return memory[a] > memory[b]; });
  for (int64_t d : met) order.push_back(d);
  const Tensor y = permute(x, order);
  const int64_t count = outputs ? y.numel() / outputs : 0;
  std::vector<std::vector<double>> rows(static_cast<size_t>(outputs));
  for (int64_t i = 0; i < outputs * count; ++i) rows[static_cast<size_t>(i / count)].push_back(at(y, i));
  return rows;
}

}  // namespace tenor::testing
