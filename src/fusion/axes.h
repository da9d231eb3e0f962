// Axes: which dims of different values run together. A dim of a value carries an axis; elementwise steps unite the axes
// of the dims that meet, views carry them along, a reduction takes them up. Rows of two steps are the same rows when
// they are spanned by the same axes.
#pragma once

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

namespace tenor::fusion {

/// One axis a dim; 0 where nothing varies (size 1, or stride 0).
using Axes = std::vector<int>;

class AxisTable {
 public:
  int fresh(long size);
  /// The axis that stands for those united with it.
  int find(int axis) const;
  long size(int axis) const { return sizes_[static_cast<std::size_t>(find(axis))]; }
  /// Makes two axes one. False where a value has both as different dims: then they stay apart (x + x.T).
  bool unite(int a, int b);
  /// States that a value has these as different dims.
  void separate(const Axes& axes);
  /// The axes without 0, each as it is found.
  std::set<int> set_of(const Axes& axes) const;

 private:
  std::vector<int> parent_{0};
  std::vector<long> sizes_{1};
  std::set<std::pair<int, int>> apart_;
};

}  // namespace tenor::fusion
