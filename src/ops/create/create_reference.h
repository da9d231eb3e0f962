// The oracle of padding and triangles: where each element of a result comes from. The other creation operators' values
// are written out in their tests.
#pragma once

#include <string_view>

#include "src/ops/index/index_reference.h"

namespace tenor::reference {

/// The source of place i of a dim of size n that has `before` places in front of it; -1 for the fill value.
inline int64_t pad_source(std::string_view mode, int64_t i, int64_t n, int64_t before) {
  const int64_t at = i - before;
  if (at >= 0 && at < n) return at;
  if (mode == "constant") return -1;
  if (mode == "replicate") return at < 0 ? 0 : n - 1;
  if (mode == "circular") return (at + n) % n;
  return at < 0 ? -at : 2 * (n - 1) - at;  // reflect
}

/// x under `shape`, with `before` places in front of each dim.
inline std::vector<double> pad(const Array& x, const Dims& shape, const Dims& before, std::string_view mode,
                               double value) {
  std::vector<double> out;
  for_each(shape, [&](const Dims& at) {
    Dims from(at.size(), 0);
    bool is_value = false;
    for (size_t d = 0; d < at.size(); ++d) {
      from[d] = pad_source(mode, at[d], x.shape[d], before[d]);
      is_value = is_value || from[d] < 0;
    }
    out.push_back(is_value ? value : x[from]);
  });
  return out;
}

/// The elements of x[..., N, M] on and below (`lower`) or above the k-th diagonal, zeros elsewhere.
inline std::vector<double> triangle(const Array& x, int64_t k, bool lower) {
  std::vector<double> out = x.values;
  size_t i = 0;
  for_each(x.shape, [&](const Dims& at) {
    const int64_t row = at[at.size() - 2], column = at[at.size() - 1];
    if (lower ? column > row + k : column < row + k) out[i] = 0;
    ++i;
  });
  return out;
}

}  // namespace tenor::reference
