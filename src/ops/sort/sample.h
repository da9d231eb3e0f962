// Where in a row's order a key probably stands, from a sample at fixed places: it makes selections fast, never wrong.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/ops/sort/key.h"

namespace tenor::cpu {

inline constexpr int64_t kSampled = 1 << 12;  ///< rows too short to be worth a sample

/// Sorted keys of evenly spaced elements [first, last) of a row.
template <class K>
class Sample {
 public:
  Sample(const K* x, int64_t stride, int64_t first, int64_t last, KeyCode code) : n_(last - first) {
    keys_.resize(static_cast<size_t>(std::clamp<int64_t>(n_ / 64, 64, 1024)));
    const int64_t size = static_cast<int64_t>(keys_.size());
    for (int64_t i = 0; i < size; ++i) keys_[i] = encode(x[(first + n_ * i / size) * stride], code);
    std::sort(keys_.begin(), keys_.end());
  }

  /// A key that element k of the order is likely to stay above, or below: `deviations` standard deviations off.
  K low(int64_t k, double deviations) const {
    const int64_t at = place(k, -deviations);
    return at < 0 ? K(0) : keys_[at];
  }
  K high(int64_t k, double deviations) const {
    const int64_t at = place(k, deviations);
    return at >= static_cast<int64_t>(keys_.size()) ? static_cast<K>(~K(0)) : keys_[at];
  }

 private:
  int64_t place(int64_t k, double deviations) const {
    const double size = static_cast<double>(keys_.size()), share = static_cast<double>(k) / static_cast<double>(n_);
    const double off = deviations * std::sqrt(size * share * (1 - share)) + (deviations < 0 ? -2 : 2);
    return static_cast<int64_t>(std::floor(size * share + off));
  }

  int64_t n_;
  std::vector<K> keys_;
};

}  // namespace tenor::cpu
