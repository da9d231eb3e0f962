#include "src/cuda/pointwise.h"

#include <algorithm>

namespace tenor::cuda {
namespace {

constexpr int kOut = kPointwiseInputs;
using WalkLayout = Layout<kPointwiseInputs + 1>;

/// The elements at `data` that lie before the first address where accesses of `width` elements are aligned.
int64_t elements_to_aligned(const void* data, size_t item, int64_t bytes) {
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes));
  return past == 0 ? 0 : (bytes - past) / static_cast<int64_t>(item);
}

/// Whether vectors of `width` elements along the innermost dim are aligned for an operand once `head` elements are
/// passed; the first operand asked decides the head.
bool takes_width(const WalkLayout& layout, int t, const void* data, size_t item, int width, int64_t& head) {
  const int last = layout.ndim - 1;
  const int64_t bytes = std::min<int64_t>(16, width * static_cast<int64_t>(item));
  if (layout.stride[t][last] != 1) return false;
  const int64_t own = elements_to_aligned(data, item, bytes);
  if (head < 0) head = last == 0 ? own : 0;
  if (own != head) return false;
  for (int d = 0; d < last; ++d)
    if (layout.stride[t][d] * static_cast<int64_t>(item) % bytes != 0) return false;
  return true;
}

bool fits_width(const PointwiseWalk& walk, int width, int64_t& head) {
  const PointwiseArgs& a = walk.args;
  const int last = a.layout.ndim - 1;
  if (last < 0 || (last > 0 && a.layout.size[last] % width != 0) || a.layout.size[last] < 2 * width) return false;
  if (!takes_width(a.layout, kOut, a.out, item_size(a.out_dtype), width, head)) return false;
  for (int i = 0; i < walk.arity; ++i) {
    if (a.access[i] == Access::kConstant || a.layout.stride[i][last] == 0) continue;
    if (!takes_width(a.layout, i, a.in[i], static_cast<size_t>(a.item[i]), width, head)) return false;
  }
  return true;
}

/// The layout of units of `width` elements along the innermost dim, behind the head.
void to_units(PointwiseArgs& args, int width, int64_t head) {
  WalkLayout& layout = args.layout;
  args.head = static_cast<int>(head);
  args.tail = static_cast<int>(layout.ndim == 1 ? (layout.count - head) % width : 0);
  args.units = layout.count = (layout.count - head) / width;
  const int last = layout.ndim - 1;
  layout.size[last] = last == 0 ? layout.count : layout.size[last] / width;
  for (auto& stride : layout.stride) stride[last] *= width;
  set_dividers(layout);
}

}  // namespace

PointwiseWalk walk_pointwise(const PointwiseCall& call) {
  PointwiseWalk walk{{}, call.arity};
  PointwiseArgs& args = walk.args;
  // Operands that take no part in the walk follow the result.
  const auto strides = [&](int i) {
    return i < call.arity && !call.in[i].constant ? call.in[i].strides : call.out.strides();
  };
  args.layout = collapse(call.op, call.out.shape(), {strides(0), strides(1), strides(2), call.out.strides()}, kOut);
  for (int i = 0; i < call.arity; ++i) {
    const PointwiseInput& in = call.in[i];
    args.in[i] = in.data;
    args.constant[i] = in.value;
    args.dtype[i] = in.dtype;
    args.item[i] = static_cast<int>(item_size(in.dtype));
    args.access[i] = in.constant ? Access::kConstant : Access::kSplat;
  }
  args.out = call.out.raw();
  args.out_dtype = call.out_dtype;
  args.units = args.layout.count;
  return walk;
}

bool cut_pointwise(PointwiseWalk& walk, int width) {
  if (width == 1) return true;
  int64_t head = -1;
  if (!fits_width(walk, width, head)) return false;
  PointwiseArgs& args = walk.args;
  const int last = args.layout.ndim - 1;
  for (int i = 0; i < walk.arity; ++i) {
    if (args.access[i] == Access::kConstant || args.layout.stride[i][last] == 0) continue;
    args.access[i] = Access::kVector;
    args.in[i] = static_cast<const char*>(args.in[i]) + head * args.item[i];
  }
  args.out = static_cast<char*>(args.out) + head * static_cast<int64_t>(item_size(args.out_dtype));
  to_units(args, width, head);
  return true;
}

}  // namespace tenor::cuda
