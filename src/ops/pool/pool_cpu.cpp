// max_pool and avg_pool on the CPU: rows of targets over all cores.
#include "src/ops/pool/pool_cpu.h"

#include <algorithm>

#include "src/cpu/parallel.h"

namespace tenor::cpu {
namespace {

constexpr int64_t kRowElements = 8 << 10;  // of a combined row: it stays in L1 or near
constexpr int64_t kLeastLanes = 64;

/// Channels of a task: more than one where they lie together.
int64_t lanes_of(const pool::Gather& g) {
  const int64_t channels = g.source.size[1];
  if (channels == 1 || g.source.stride[1] != 1) return 1;
  const int64_t room = std::max(kLeastLanes, kRowElements / g.source.size[4]), groups = (channels + room - 1) / room;
  return (channels + groups - 1) / groups;
}

void run(const PoolRows& rows, void (*kernel)(const PoolRows&, int64_t, int64_t)) {
  parallel_for(rows.count, grain_of(rows.bytes), [&](int64_t begin, int64_t end) { kernel(rows, begin, end); });
}

}  // namespace

PoolRows::PoolRows(const pool::Problem& p, const pool::PoolDivisor& divisor, bool backwards, const Tensor& x,
                   const Tensor& y)
    : g(pool::gather_of(p.space, p.image, p.windows, divisor, backwards)), source(x), target(y), back(backwards) {
  lanes = lanes_of(g);
  groups = (g.target.size[1] + lanes - 1) / lanes;
  const int64_t targets = g.target.size[4];
  tiles = std::clamp<int64_t>(g.source.size[4] * lanes / (2 * kRowElements), 1, targets);
  tile_size = (targets + tiles - 1) / tiles;
  tiles = (targets + tile_size - 1) / tile_size;
  count = tiles * g.target.size[0] * groups * g.target.size[2] * g.target.size[3];
  int64_t rows = 1;
  for (int d = 0; d < 2; ++d)
    rows *= back || g.space.dim[d].bins ? 1 + g.source.size[2 + d] / g.target.size[2 + d] : g.space.dim[d].kernel;
  bytes = rows * tile(0).width() * lanes * static_cast<int64_t>(item_size(x.dtype()));
}

PoolRows::Task PoolRows::task(int64_t i) const {
  Task t{};
  t.h = i % g.target.size[3], i /= g.target.size[3];
  t.d = i % g.target.size[2], i /= g.target.size[2];
  t.c = i % groups * lanes, i /= groups;
  t.n = i % g.target.size[0], t.tile = i / g.target.size[0];
  t.lanes = std::min(lanes, g.target.size[1] - t.c);
  return t;
}

void PoolRows::next(Task& t) const {
  if (++t.h < g.target.size[3]) return;
  t.h = 0;
  if (++t.d < g.target.size[2]) return;
  t.d = 0, t.c += lanes;
  if (t.c >= g.target.size[1]) {
    t.c = 0;
    if (++t.n == g.target.size[0]) t.n = 0, ++t.tile;
  }
  t.lanes = std::min(lanes, g.target.size[1] - t.c);
}

PoolTile PoolRows::tile(int64_t i) const {
  const pool::PoolDim& dim = g.space.dim[2];
  PoolTile t{i * tile_size, std::min((i + 1) * tile_size, g.target.size[4]), 0, 0, dim};
  if (back) {
    // Windows with gaps between them: the tile's first input may have none.
    t.from = dim.bins ? dim.readers(t.first).first
                      : std::min(dim.readers(t.first).first, (t.first + dim.before) / dim.stride);
    t.to = std::max(t.from, dim.readers(t.last - 1).last);
    t.along.before = t.first + dim.before - t.from * dim.stride;
    t.along.input = t.targets(), t.along.output = t.width();
  } else if (dim.bins) {
    t.from = dim.inputs(t.first).first, t.to = dim.inputs(t.last - 1).last;
  } else {
    t.from = std::clamp<int64_t>(dim.start(t.first), 0, dim.input);
    t.to = std::clamp<int64_t>(dim.start(t.last - 1) + dim.span(), t.from, dim.input);
    t.along.before = t.from - dim.start(t.first);
    t.along.input = t.width(), t.along.output = t.targets();
  }
  return t;
}

pool::WindowRange PoolRows::column(const PoolTile& t, int64_t i) const {
  const pool::PoolDim& dim = g.space.dim[2];
  const pool::WindowRange r = back ? dim.readers(t.first + i) : dim.inputs(t.first + i);
  if (r.empty()) return {0, 0, 1};
  return {r.first - t.from, r.last - t.from, r.step};
}

void max_pool(const pool::Problem& p, const Tensor& x, const Tensor& values, const Tensor& indices) {
  PoolRows rows(p, {}, false, x, values);
  if (indices.defined()) {
    rows.places = &indices;
    rows.places_grid = p.other;
  }
  run(rows, indices.defined() ? &pool_place_rows : &pool_max_rows);
}

void avg_pool(const pool::Problem& p, const pool::PoolDivisor& divisor, const Tensor& x, const Tensor& y) {
  run(PoolRows(p, divisor, false, x, y), &pool_sum_rows);
}

void avg_pool_backward(const pool::Problem& p, const pool::PoolDivisor& divisor, const Tensor& grad, const Tensor& dx) {
  run(PoolRows(p, divisor, true, grad, dx), &pool_sum_rows);
}

}  // namespace tenor::cpu
