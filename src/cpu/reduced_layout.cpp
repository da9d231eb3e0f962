#include "src/cpu/reduced_layout.h"

namespace tenor::cpu {
namespace {

/// Appends a dim, merged into the one before where both strides allow.
void append(std::vector<ReducedLayout::Dim>& dims, ReducedLayout::Dim next) {
  if (next.size == 1) return;
  if (!dims.empty()) {
    ReducedLayout::Dim& before = dims.back();
    if (before.in == next.in * next.size && before.out == next.out * next.size) {
      before = {before.size * next.size, next.in, next.out};
      return;
    }
  }
  dims.push_back(next);
}

}  // namespace

ReducedLayout make_layout(const Tensor& x, const Dims& dims, const Tensor& out) {
  ReducedLayout layout;
  const bool keepdim = out.ndim() == x.ndim();
  std::vector<ReducedLayout::Dim> kept;
  for (int d = 0, o = 0; d < x.ndim(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) != dims.end()) {
      layout.count *= x.shape(d);
      o += keepdim;
    } else {
      kept.push_back({x.shape(d), x.stride(d), out.stride(o++)});
      layout.outputs *= x.shape(d);
    }
  }
  for (int64_t d : dims) append(layout.reduced, {x.shape(static_cast<int>(d)), x.stride(static_cast<int>(d)), 0});
  if (layout.reduced.empty()) layout.reduced.push_back({1, 0, 0});
  // The order in which outputs are computed is free: along memory. A repeated (stride 0) dim goes outermost.
  std::stable_sort(kept.begin(), kept.end(), [](const ReducedLayout::Dim& a, const ReducedLayout::Dim& b) {
    return (a.in == 0) != (b.in == 0) ? a.in == 0 : a.in > b.in;
  });
  for (const ReducedLayout::Dim& d : kept) append(layout.outer, d);
  if (!layout.outer.empty()) {
    layout.inner = layout.outer.back();
    layout.outer.pop_back();
  }
  for (const ReducedLayout::Dim& d : layout.outer) layout.outers *= d.size;
  return layout;
}

Segment segment(const ReducedLayout& layout, int64_t index, int64_t width) {
  const int64_t pieces = (layout.inner.size + width - 1) / width;
  const int64_t at = index % pieces * width;
  Segment s{at * layout.inner.in, at * layout.inner.out, std::min(width, layout.inner.size - at)};
  int64_t rest = index / pieces;
  for (size_t d = layout.outer.size(); d-- > 0; rest /= layout.outer[d].size) {
    const int64_t i = rest % layout.outer[d].size;
    s.in += i * layout.outer[d].in;
    s.out += i * layout.outer[d].out;
  }
  return s;
}

}  // namespace tenor::cpu
