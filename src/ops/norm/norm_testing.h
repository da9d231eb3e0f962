// What the tests of the norms on both devices share.
#pragma once

#include "src/core/testing.h"
#include "src/ops/norm/norm_reference.h"

namespace tenor::testing {

/// fn of each row of the last axis.
template <class F>
std::vector<double> by_row(const Tensor& x, F fn) {
  const std::vector<double> all = values(x);
  std::vector<double> out;
  const size_t n = static_cast<size_t>(x.shape(-1));
  for (size_t start = 0; start < all.size(); start += n) {
    const reference::Row row = fn(reference::Row(all.begin() + start, all.begin() + start + n));
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

}  // namespace tenor::testing
