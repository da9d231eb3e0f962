// Grid sampling on the CPU.
#pragma once

#include "src/ops/grid_sample/grid_sampling.h"

namespace tenor::cpu {

/// Places of one image that are sampled together: their taps are worked out once for all channels.
inline constexpr int64_t kGridTile = 512;

void grid_sample(const GridSampling& s);
void grid_sample_backward(const GridSampling& s, const Tensor& grad_x, const Tensor& grad_grid);
void affine_grid(const Tensor& theta, const Tensor& grid, bool align_corners);

/// Single-threaded kernels. An item is a tile of an image's places and a block of its channels.
struct GridWork {
  const GridSampling* sampling;
  int64_t tiles;     ///< an image
  int64_t channels;  ///< of a block
  int64_t blocks;    ///< of channels an image
  const Tensor* grad_x = nullptr;
  const Tensor* grad_grid = nullptr;
};
void sample_tiles(const GridWork& work, int64_t begin, int64_t end);
/// An item is a tile: the gradient to its places.
void grid_gradient_tiles(const GridWork& work, int64_t begin, int64_t end);
/// An item is a block of an image's channels: the gradient to them from all places in their order.
void image_gradient_blocks(const GridWork& work, int64_t begin, int64_t end);

}  // namespace tenor::cpu
