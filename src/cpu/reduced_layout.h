// How the elements of a reduction or scan lie in memory: kept dims in any order, reduced dims in the caller's, both
// merged.
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
  std::vector<Dim> reduced;  // in the order given; never empty
  int64_t outers = 1;        // the product of outer's sizes
  int64_t outputs = 1;
  int64_t count = 1;  // elements that meet in one output
};

/// `dims`: those reduced, distinct and in range, in the order in which their elements meet. out has x's rank (a scan,
/// or dims kept with size 1), or lacks those dims.
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

/// The offset of element i of the sequence.
inline int64_t sequence_offset(const ReducedLayout& layout, int64_t i) {
  int64_t offset = 0;
  for (size_t d = layout.reduced.size(); d-- > 0; i /= layout.reduced[d].size)
    offset += i % layout.reduced[d].size * layout.reduced[d].in;
  return offset;
}

/// Calls fn(offset, first, n) for the runs, along the innermost reduced dim, of elements [begin, end) of the sequence.
template <class F>
void for_runs(const ReducedLayout& layout, int64_t begin, int64_t end, F&& fn) {
  const int64_t size = layout.reduced.back().size;
  for (int64_t n; begin < end; begin += n) {
    n = std::min(end - begin, size - begin % size);
    fn(sequence_offset(layout, begin), begin, n);
  }
}

/// As for_runs, with whole runs along the last dim but one taken together: fn(offset, first, rows, n).
template <class F>
void for_planes(const ReducedLayout& layout, int64_t begin, int64_t end, F&& fn) {
  const size_t dims = layout.reduced.size();
  const int64_t size = layout.reduced.back().size;
  for (int64_t rows, n; begin < end; begin += rows * n) {
    rows = 1;
    n = std::min(end - begin, size - begin % size);
    if (dims > 1 && n == size)
      rows =
          std::min((end - begin) / size, layout.reduced[dims - 2].size - begin / size % layout.reduced[dims - 2].size);
    fn(sequence_offset(layout, begin), begin, rows, n);
  }
}

}  // namespace tenor::cpu
