// The oracle: obvious loops over numbers, nothing of the kernels' integer keys.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "src/core/numeric.h"
#include "src/core/visit.h"
#include "tenor/tensor.h"

namespace tenor::reference {

/// A row of any dtype as numbers. long double holds every float64 and every 64-bit integer.
using Row = std::vector<long double>;

/// Every element, in index order.
inline Row numbers(const Tensor& x) {
  Row out;
  core::visit(x.dtype(), [&]<class T>() {
    Dims at(x.shape().size(), 0);
    for (int64_t i = 0; i < x.numel(); ++i) {
      int64_t offset = 0;
      for (size_t d = 0; d < at.size(); ++d) offset += at[d] * x.strides()[d];
      out.push_back(static_cast<long double>(core::widen(x.data<T>()[offset])));
      for (size_t d = at.size(); d-- > 0 && ++at[d] == x.shape()[d];) at[d] = 0;
    }
  });
  return out;
}

/// NaN is the greatest; NaN are equal to one another here.
inline bool less(long double a, long double b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

inline std::vector<int64_t> sort_order(const Row& row, bool descending) {
  std::vector<int64_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return descending ? less(row[b], row[a]) : less(row[a], row[b]); });
  return order;
}

/// The place of the lower median, or of the first NaN.
inline int64_t median_place(const Row& row) {
  for (size_t i = 0; i < row.size(); ++i)
    if (std::isnan(row[i])) return static_cast<int64_t>(i);
  return sort_order(row, false)[(row.size() - 1) / 2];
}

/// The places where the sorted row starts a new value; NaN are all different.
inline std::vector<int64_t> unique_starts(const Row& row, const std::vector<int64_t>& order) {
  std::vector<int64_t> starts;
  for (size_t p = 0; p < order.size(); ++p)
    if (p == 0 || !(row[order[p]] == row[order[p - 1]])) starts.push_back(static_cast<int64_t>(p));
  return starts;
}

inline int64_t search_place(const Row& sorted, long double value, bool right) {
  int64_t count = 0;
  for (long double s : sorted) count += right ? !less(value, s) : less(s, value);
  return count;
}

}  // namespace tenor::reference
