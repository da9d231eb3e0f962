// unique of integers that lie close together: a bin for each value there may be, and no sort.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tenor/tensor.h"

namespace tenor {

/// How often each integer between the least and the greatest occurs.
class IntegerBins {
 public:
  /// Those of x, a contiguous CPU tensor; none where it holds no integers or they are spread too widely for it to pay.
  static std::optional<IntegerBins> of(const Tensor& x);
  /// How many different integers there are.
  int64_t count() const { return count_; }
  /// values [count] ascending; where wanted, inverse [numel] is each element's place among them and counts [count] how
  /// often each occurs.
  void write(const Tensor& x, const Tensor& values, int64_t* inverse, int64_t* counts) const;

 private:
  uint64_t low_ = 0;  ///< the least, as the bits of a 64-bit integer
  std::vector<int64_t> bins_;
  int64_t count_ = 0;
};

}  // namespace tenor
