// What the tests of rope on both devices share.
#pragma once

#include "src/core/testing.h"
#include "src/ops/rope/rope_reference.h"
#include "tenor/view.h"

namespace tenor::testing {

inline std::vector<double> row_of(const Tensor& table, int64_t r) { return values(select(table, 0, r)); }

/// positions: one per token of x[..., S, H, D].
inline std::vector<double> rope_reference(const Tensor& x, const Tensor& cos, const Tensor& sin,
                                          const std::vector<double>& positions, bool interleaved) {
  const std::vector<double> all = values(x);
  const size_t d = static_cast<size_t>(x.shape(-1)), heads = static_cast<size_t>(x.shape(-2));
  std::vector<double> out;
  for (size_t row = 0; row * d < all.size(); ++row) {
    const auto position = static_cast<int64_t>(positions[row / heads]);
    const std::vector<double> head(all.begin() + row * d, all.begin() + (row + 1) * d);
    const std::vector<double> turned = reference::rope(head, row_of(cos, position), row_of(sin, position), interleaved);
    out.insert(out.end(), turned.begin(), turned.end());
  }
  return out;
}

/// Positions 0..tokens-1 of every batch.
inline std::vector<double> counted(int64_t batches, int64_t tokens) {
  std::vector<double> out;
  for (int64_t b = 0; b < batches; ++b)
    for (int64_t s = 0; s < tokens; ++s) out.push_back(static_cast<double>(s));
  return out;
}

}  // namespace tenor::testing
