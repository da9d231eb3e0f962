#include <algorithm>
#include <cstring>

#include "src/ops/pool/pool_plan.h"

namespace tenor::cuda {
namespace {

/// The largest of 16 bytes' elements, halved until `fits`.
template <class Fits>
int widest_vector(size_t item, Fits fits) {
  int v = kVectorBytes / static_cast<int>(item);
  while (v > 1 && !fits(v)) v /= 2;
  return v;
}

bool aligned(const Tensor& x, const PoolGrid& grid, int inner, int v) {
  const auto item = static_cast<int64_t>(item_size(x.dtype()));
  bool fits =
      grid.size[inner] % v == 0 && is_aligned(x.raw(), 0, static_cast<size_t>(item), static_cast<int>(v * item));
  for (int d = 0; d < 5 && fits; ++d) fits = d == inner || grid.size[d] == 1 || grid.stride[d] % v == 0;
  return fits;
}

/// Sources that `tile` neighbouring targets of a row read, at most.
int64_t most_sources(const PoolDim& dim, int64_t tile, bool back) {
  if (back) {
    const int64_t reach = dim.bins ? tile * dim.output / dim.input + 2 : (tile - 1 + dim.span()) / dim.stride + 2;
    return std::min(dim.output, reach);
  }
  const int64_t reach = dim.bins ? tile * dim.input / dim.output + 2 : (tile - 1) * dim.stride + dim.span();
  return std::min(dim.input, reach);
}

constexpr int64_t kMostSources = 2048;  // of a row, in shared memory
constexpr int64_t kItems = 4;           // vectors that a thread combines
constexpr size_t kShared = 28 << 10;
constexpr int64_t kWorthWide = 32;  // elements of a window that are a block's work

int64_t tile_of(const PoolDim& dim, int64_t targets, bool back) {
  int64_t tile = targets;
  while (tile > 1 && most_sources(dim, tile, back) > kMostSources) tile = (tile + 1) / 2;
  return tile;
}

}  // namespace

int small_kernel(const Gather& g) {
  const PoolDim &h = g.space.dim[1], &w = g.space.dim[2];
  const auto plain = [](const PoolDim& d) { return !d.bins && d.dilation == 1; };
  if (!plain(h) || !plain(w) || w.kernel > 3 || h.kernel > w.kernel) return 0;
  return w.kernel == 3 ? 3 : w.kernel == 2 ? 2 : 0;
}

int channel_vector(const Gather& g, const Tensor& source, const Tensor& target) {
  return widest_vector(item_size(source.dtype()),
                       [&](int v) { return aligned(source, g.source, 1, v) && aligned(target, g.target, 1, v); });
}

std::optional<FastGather> gather_fast(const Gather& g) {
  FastGather out{{}, g.source, g.target, g.divisor.padding_too, g.uniform};
  constexpr int64_t kMost = INT32_MAX / 2;
  for (int d = 0; d < 3; ++d) {
    const PoolDim& dim = g.space.dim[d];
    const int64_t numerator =
        dim.bins ? (dim.output + 1) * (dim.input + 1) : dim.input + dim.before + dim.after + dim.span() + dim.stride;
    if (dim.input > kMost || dim.output > kMost || dim.stride > kMost || dim.dilation > kMost || numerator > kMost)
      return {};
    const auto narrow = [](int64_t v) { return static_cast<int>(v); };
    out.dim[d] = {narrow(dim.input),
                  narrow(dim.output),
                  narrow(dim.kernel),
                  narrow(dim.span()),
                  narrow(dim.stride),
                  narrow(dim.dilation),
                  narrow(dim.before),
                  narrow(dim.input + dim.after),
                  dim.bins,
                  make_divider(dim.stride),
                  make_divider(dim.dilation),
                  make_divider(dim.input),
                  make_divider(dim.output)};
  }
  return out;
}

std::optional<ChannelsPlan> plan_channels(const Gather& g, int vector) {
  const int64_t c = g.target.size[1];
  const auto fast = gather_fast(g);
  if (!fast || c == 1 || g.source.stride[1] != 1 || g.target.stride[1] != 1) return {};
  const int64_t total = c / vector * g.target.size[4] * g.target.size[3] * g.target.size[2] * g.target.size[0];
  if (total > INT32_MAX) return {};
  return ChannelsPlan{*fast,
                      static_cast<uint32_t>(total),
                      make_divider(c / vector),
                      make_divider(g.target.size[4]),
                      make_divider(g.target.size[3]),
                      make_divider(g.target.size[2])};
}

std::optional<WideLaunch> plan_wide(const Gather& g, int vector) {
  int64_t window = 1, outputs = g.target.size[0];
  for (int d = 0; d < 3; ++d) {
    const PoolDim& dim = g.space.dim[d];
    if (!dim.bins && dim.kernel > dim.stride) return {};
    window *= std::min(dim.bins ? dim.input / dim.output : dim.kernel, kWorthWide);
    outputs *= g.target.size[2 + d];
  }
  const int64_t c = g.target.size[1];
  const auto fast = gather_fast(g);
  if (!fast || window < kWorthWide || c == 1 || g.source.stride[1] != 1 || g.target.stride[1] != 1 ||
      outputs > INT32_MAX)
    return {};
  int lanes = 1;
  while (lanes < kWideThreads / kWideRows && lanes < c / vector) lanes *= 2;
  const int64_t groups = (c / vector + lanes - 1) / lanes;
  if (groups > 65535) return {};
  return WideLaunch{
      {*fast, lanes, make_divider(g.target.size[4]), make_divider(g.target.size[3]), make_divider(g.target.size[2])},
      static_cast<unsigned>(outputs),
      static_cast<unsigned>(groups)};
}

int row_vector_of(const PoolGrid& grid, const Tensor& x) {
  return widest_vector(item_size(x.dtype()), [&](int v) { return aligned(x, grid, 4, v); });
}

bool is_deep(const Gather& g) {
  const PoolDim& h = g.space.dim[1];
  return (h.bins ? h.input / h.output : h.kernel) >= kWorthDeep;
}

std::optional<RowsLaunch> plan_rows(const Gather& g, int vector, size_t held, bool back, bool deep) {
  const auto fast = gather_fast(g);
  if (!fast || (g.source.size[4] > 1 && g.source.stride[4] != 1)) return {};
  const PoolDim& along = g.space.dim[2];
  const int64_t targets = g.target.size[4], count = g.target.planes() * g.target.size[2] * g.target.size[3];
  const int64_t tile = tile_of(along, targets, back), tiles = (targets + tile - 1) / tile;
  const int64_t chunks = (most_sources(along, tile, back) + 2 * vector - 2 + vector - 1) / vector,
                pitch = deep ? chunks * (vector + 1) + 1 : chunks * vector;
  const size_t columns = static_cast<size_t>(tile) * sizeof(BlockColumn);
  const size_t a_row = static_cast<size_t>(pitch) * held + sizeof(BlockRow);
  if (a_row + columns + 16 > (96u << 10) || count > INT32_MAX / 2) return {};
  int64_t rows = std::clamp<int64_t>((deep ? 1 : kItems) * kRowsThreads / chunks, 1, 128);
  rows = std::min(
      {rows, count, std::max<int64_t>(1, static_cast<int64_t>((kShared - std::min(kShared, columns)) / a_row))});
  const int64_t groups = (count + rows - 1) / rows;
  if (groups * tiles > INT32_MAX) return {};
  const int64_t whole_tile =
      tile == targets ? (most_sources(along, tile, back) + vector - 1) / vector : 0;  // chunks of one that begins at 0
  RowsPlan plan{*fast,
                static_cast<int>(rows),
                static_cast<int>(tile),
                static_cast<int>(pitch),
                static_cast<uint32_t>(count),
                make_divider(tiles),
                make_divider(g.target.size[3]),
                make_divider(g.target.size[2]),
                make_divider(g.target.size[1]),
                make_divider(tile),
                make_divider(whole_tile)};
  const size_t combined = (static_cast<size_t>(rows * pitch) * held + 15) / 16 * 16;
  return RowsLaunch{plan, static_cast<unsigned>(groups * tiles),
                    combined + static_cast<size_t>(rows) * sizeof(BlockRow) + columns};
}

TargetOrder order_of(const PoolGrid& target) {
  TargetOrder order{1, {0, 1, 2, 3, 4}};
  for (const int64_t size : target.size) order.count *= size;
  std::stable_sort(order.dim, order.dim + 5, [&](int a, int b) { return target.stride[a] > target.stride[b]; });
  return order;
}

}  // namespace tenor::cuda
