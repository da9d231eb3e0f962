#include "src/cuda/pointwise.h"

#include <algorithm>

namespace tenor::cuda {
namespace {

constexpr int kOut = kPointwiseInputs;
using WalkLayout = Layout<kPointwiseInputs + 1>;

/// Whether accesses of `width` elements along the innermost dim stay aligned for an operand.
bool takes_width(const WalkLayout& layout, int t, const void* data, size_t item, int width) {
  const int last = layout.ndim - 1;
  const int64_t bytes = std::min<int64_t>(16, width * static_cast<int64_t>(item));
  if (layout.stride[t][last] != 1 || reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) != 0) return false;
  for (int d = 0; d < last; ++d)
    if (layout.stride[t][d] * static_cast<int64_t>(item) % bytes != 0) return false;
  return true;
}

bool fits_width(const PointwiseCall& call, const WalkLayout& layout, int width) {
  const int last = layout.ndim - 1;
  if (last < 0 || (last > 0 && layout.size[last] % width != 0) || layout.size[last] < width) return false;
  if (!takes_width(layout, kOut, call.out.raw(), item_size(call.out.dtype()), width)) return false;
  for (int i = 0; i < call.arity; ++i) {
    const PointwiseInput& in = call.in[i];
    if (in.constant || layout.stride[i][last] == 0) continue;
    if (!takes_width(layout, i, in.data, item_size(in.dtype), width)) return false;
  }
  return true;
}

/// Eight elements a thread only where an access of 16 bytes holds them: wider items keep neighbouring threads together.
bool is_narrow(const PointwiseCall& call) {
  size_t item = item_size(call.out.dtype());
  for (int i = 0; i < call.arity; ++i)
    if (!call.in[i].constant) item = std::max(item, item_size(call.in[i].dtype));
  return item <= 2;
}

int choose_width(const PointwiseCall& call, const WalkLayout& layout, int widest) {
  if (widest == 8 && is_narrow(call) && fits_width(call, layout, 8)) return 8;
  return fits_width(call, layout, 4) ? 4 : 1;
}

/// The layout of units of `width` elements along the innermost dim.
void to_units(PointwiseArgs& args, int width) {
  WalkLayout& layout = args.layout;
  args.tail = static_cast<int>(layout.ndim == 1 ? layout.count % width : 0);
  args.units = layout.count = layout.count / width;
  if (width == 1 || layout.ndim == 0) return;
  const int last = layout.ndim - 1;
  layout.size[last] /= width;
  for (auto& stride : layout.stride) stride[last] *= width;
  if (layout.count <= INT32_MAX) layout.divider[last] = make_divider(layout.size[last]);
}

}  // namespace

PointwiseArgs plan_pointwise(const PointwiseCall& call, int widest, int& width) {
  PointwiseArgs args{};
  // Operands that take no part in the walk follow the result.
  const auto strides = [&](int i) { return i < call.arity && !call.in[i].constant ? call.in[i].strides : call.out.strides(); };
  args.layout = collapse(call.op, call.out.shape(), {strides(0), strides(1), strides(2), call.out.strides()}, kOut);
  width = choose_width(call, args.layout, widest);
  const int last = args.layout.ndim - 1;
  for (int i = 0; i < call.arity; ++i) {
    const PointwiseInput& in = call.in[i];
    args.in[i] = in.data;
    args.constant[i] = in.value;
    args.dtype[i] = in.dtype;
    args.item[i] = static_cast<int>(item_size(in.dtype));
    const bool splat = width == 1 || args.layout.stride[i][last] == 0;
    args.access[i] = in.constant ? Access::kConstant : splat ? Access::kSplat : Access::kVector;
  }
  args.out = call.out.raw();
  args.out_dtype = call.out_dtype;
  to_units(args, width);
  return args;
}

}  // namespace tenor::cuda
