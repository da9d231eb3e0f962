// The scan order of CUDA: how every scan on a GPU forms its partial results. It depends on an element's place in its
// line alone: not on the layout, the lines beside, nor on how the work was split.
//
// A line is cut into tiles of kScanTile elements, a tile into groups of kScanGroup. In a group, partial results are
// formed one after another from the identity. The groups of a tile meet in a tree of neighbours (as in
// reduction_order.h); what precedes a group in its tile is made of the largest complete subtrees before it, the smaller
// ones added first. The tiles' totals are added one after another over spans of kScanSpan tiles, the spans' totals
// likewise. A result is
//
//     ((spans before + tiles before in the span) + groups before in the tile) + elements up to this one in the group
//
// The error of a float32 sum is that of about 4 + 8 + 256 + n / 262144 additions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/core/reduction_order.h"

namespace tenor::cuda {

inline constexpr int kScanGroup = 4;
inline constexpr int kScanTile = 1024;
inline constexpr int kScanSpan = 256;  ///< tiles

/// The order itself: what the kernels are tested against. at(i) gives element i, emit(i, value) takes result i.
template <class T, class At, class Merge, class Emit>
void ordered_scan(int64_t count, T identity, At at, Merge merge, Emit emit) {
  T spans = identity, tiles = identity;
  for (int64_t start = 0; start < count; start += kScanTile) {
    if (start / kScanTile % kScanSpan == 0) {
      spans = merge(spans, tiles);
      tiles = identity;
    }
    const T carry = merge(spans, tiles);
    core::BlockCounter<T> groups;
    const int64_t end = std::min(start + kScanTile, count);
    for (int64_t group = start; group < end; group += kScanGroup) {
      const T before = group == start ? carry : merge(carry, groups.finish(identity, merge));
      T running = identity;
      for (int64_t i = group; i < std::min(group + kScanGroup, end); ++i)
        emit(i, merge(before, running = merge(running, at(i))));
      groups.push(running, merge);
    }
    tiles = merge(tiles, groups.finish(identity, merge));
  }
}

}  // namespace tenor::cuda
