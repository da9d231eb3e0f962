#include "src/fusion/axes.h"

#include <algorithm>

namespace tenor::fusion {

int AxisTable::fresh(long size) {
  parent_.push_back(static_cast<int>(parent_.size()));
  sizes_.push_back(size);
  return parent_.back();
}

int AxisTable::find(int axis) const {
  while (parent_[static_cast<size_t>(axis)] != axis) axis = parent_[static_cast<size_t>(axis)];
  return axis;
}

bool AxisTable::unite(int a, int b) {
  a = find(a), b = find(b);
  if (a == b) return true;
  if (apart_.count({std::min(a, b), std::max(a, b)})) return false;
  parent_[static_cast<size_t>(b)] = a;
  // What was apart from b is apart from a.
  std::set<std::pair<int, int>> renamed;
  for (auto [x, y] : apart_) {
    x = find(x), y = find(y);
    renamed.insert({std::min(x, y), std::max(x, y)});
  }
  apart_ = std::move(renamed);
  return true;
}

void AxisTable::separate(const Axes& axes) {
  for (size_t i = 0; i < axes.size(); ++i)
    for (size_t j = i + 1; j < axes.size(); ++j) {
      const int a = find(axes[i]), b = find(axes[j]);
      if (a != 0 && b != 0 && a != b) apart_.insert({std::min(a, b), std::max(a, b)});
    }
}

std::set<int> AxisTable::set_of(const Axes& axes) const {
  std::set<int> out;
  for (int axis : axes)
    if (axis != 0) out.insert(find(axis));
  return out;
}

}  // namespace tenor::fusion
