// Grid sampling on the CPU: how the work is dealt out, and affine_grid.
#include <algorithm>

#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/grid_sample/grid_sample_kernels.h"
#include "tenor/modes.h"

namespace tenor::cpu {
namespace {

constexpr int64_t kMostSums =
    int64_t{8} << 20;  // elements that a thread adds up an image's gradient in, where one channel takes fewer

constexpr int64_t kBlock = 16;  // channels that an image's gradient is summed for at once

/// Tiles, and blocks of about so many channels.
GridWork tiles_of(const GridSampling& s, int64_t channels) {
  GridWork work{&s, (s.samples() + kGridTile - 1) / kGridTile, 1, 1};
  work.channels = std::clamp<int64_t>(channels, 1, std::max<int64_t>(s.x.shape(1), 1));
  work.blocks = (s.x.shape(1) + work.channels - 1) / work.channels;
  return work;
}
/// Blocks of channels such that `others` items give every thread a few.
GridWork blocks_of(const GridSampling& s, int64_t others) {
  const int64_t channels = s.x.shape(1),
                wanted = std::max<int64_t>(4 * num_threads() / std::max<int64_t>(others, 1), 1);
  return tiles_of(s, (channels + wanted - 1) / wanted);
}

int64_t taps_of(const GridSampling& s) {
  const int64_t taps = core::taps_of(s.mode);
  return s.dims == 3 ? taps * taps * taps : taps * taps;
}

template <class T>
void affine_rows(const Tensor& theta, const Tensor& grid, bool align, int64_t begin, int64_t end) {
  using C = core::Compute<T>;
  const int64_t dims = grid.shape(4), height = grid.shape(2), depth = grid.shape(1);
  const auto place = [&](int64_t i, int64_t n) {
    return static_cast<C>(n == 1 ? 0.0 : static_cast<double>(2 * i + 1 - n) / static_cast<double>(align ? n - 1 : n));
  };
  for (int64_t row = begin; row < end; ++row) {
    const int64_t h = row % height, d = row / height % depth, n = row / height / depth;
    T* to = grid.data<T>() + n * grid.stride(0) + d * grid.stride(1) + h * grid.stride(2);
    for (int64_t w = 0; w < grid.shape(3); ++w) {
      const C at[3] = {place(w, grid.shape(3)), place(h, height), place(d, depth)};
      for (int64_t i = 0; i < dims; ++i) {
        const T* t = theta.data<T>() + n * theta.stride(0) + i * theta.stride(1);
        C sum = core::widen(t[dims * theta.stride(2)]);
        for (int64_t k = dims; k-- > 0;) sum += static_cast<C>(core::widen(t[k * theta.stride(2)])) * at[k];
        to[w * grid.stride(3) + i * grid.stride(4)] = core::cast<T>(sum);
      }
    }
  }
}

}  // namespace

void grid_sample(const GridSampling& s) {
  if (s.y.numel() == 0) return;
  const int64_t tiles = (s.samples() + kGridTile - 1) / kGridTile;
  const GridWork work = blocks_of(s, s.x.shape(0) * tiles);
  const int64_t grain = grain_of(std::min(kGridTile, s.samples()) * work.channels * (8 + 4 * taps_of(s)));
  parallel_for(s.x.shape(0) * work.tiles * work.blocks, grain,
               [&](int64_t begin, int64_t end) { sample_tiles(work, begin, end); });
}

void grid_sample_backward(const GridSampling& s, const Tensor& grad_x, const Tensor& grad_grid) {
  const int64_t images = s.x.shape(0), pixels = s.x.shape(2) * s.x.shape(3) * s.x.shape(4);
  if (grad_grid.numel() > 0) {
    GridWork work = tiles_of(s, 1);
    work.grad_grid = &grad_grid;
    parallel_for(images * work.tiles, 1, [&](int64_t begin, int64_t end) { grid_gradient_tiles(work, begin, end); });
  }
  if (grad_x.numel() > 0) {
    // Taps are worked out anew for every block, and a vector of channels costs hardly more than one of them.
    const int64_t block = images * ((s.x.shape(1) + kBlock - 1) / kBlock) >= num_threads() ? kBlock : kBlock / 2;
    GridWork work = tiles_of(s, std::min(block, kMostSums / std::max<int64_t>(pixels, 1)));
    work.grad_x = &grad_x;
    parallel_for(images * work.blocks, 1, [&](int64_t begin, int64_t end) { image_gradient_blocks(work, begin, end); });
  }
}

void affine_grid(const Tensor& theta, const Tensor& grid, bool align_corners) {
  if (grid.numel() == 0) return;
  const int64_t rows = grid.shape(0) * grid.shape(1) * grid.shape(2);
  core::visit_float(theta.dtype(), [&]<class T>() {
    parallel_for(rows, grain_of(grid.shape(3) * 48),
                 [&](int64_t begin, int64_t end) { affine_rows<T>(theta, grid, align_corners, begin, end); });
  });
}

}  // namespace tenor::cpu
