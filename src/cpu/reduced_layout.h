// How the elements of a reduction or scan lie in memory: kept dims in any order, reduced dims in logical order, both merged.
#pragma once

#include <vector>

#include "tenor/tensor.h"

namespace tenor::cpu {

struct ReducedLayout {
  struct Dim {
    int64_t size, in, out;  // strides, in elements; of reduced dims `out` is 0
  };
  std::vector<Dim> outer;    // kept dims but the innermost
  Dim inner{1, 0, 0};        // the kept dim of the smallest input stride
  std::vector<Dim> reduced;  // logical order; never empty
  int64_t outers = 1;        // the product of outer's sizes
  int64_t outputs = 1;
  int64_t count = 1;         // elements that meet in one output
};

/// `dims`: those reduced, distinct and in range. out has x's rank (a scan, or dims kept with size 1), or lacks those dims.
ReducedLayout make_layout(const Tensor& x, const Dims& dims, const Tensor& out);

/// Some outputs side by side: `width` of them, from input offset `in` and output offset `out` on.
struct Segment {
  int64_t in, out, width;
};
/// Segment `index` of outers * ceil(inner.size / width).
Segment segment(const ReducedLayout& layout, int64_t index, int64_t width);
inline int64_t segments(const ReducedLayout& layout, int64_t width) {
  return layout.outers * ((layout.inner.size + width - 1) / width);
}

/// Calls fn(offset, first, n) for the runs, along the innermost reduced dim, of elements [begin, end) of the sequence.
template <class F>
void for_runs(const ReducedLayout& layout, int64_t begin, int64_t end, F&& fn) {
  const ReducedLayout::Dim& last = layout.reduced.back();
  while (begin < end) {
    int64_t rest = begin / last.size, offset = begin % last.size * last.in;
    const int64_t n = std::min(end - begin, last.size - begin % last.size);
    for (size_t d = layout.reduced.size() - 1; d-- > 0; rest /= layout.reduced[d].size)
      offset += rest % layout.reduced[d].size * layout.reduced[d].in;
    fn(offset, begin, n);
    begin += n;
  }
}

}  // namespace tenor::cpu
