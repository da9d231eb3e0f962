// How a gathering kernel is laid over its problem: decided on the host from sizes, strides and addresses.
#pragma once

#include <algorithm>
#include <optional>

#include "src/ops/pool/pool_any.cuh"
#include "src/ops/pool/pool_channels.cuh"
#include "src/ops/pool/pool_rows.cuh"
#include "src/ops/pool/pool_wide.cuh"

namespace tenor::cuda {

/// Windows read inputs, or (back) inputs read windows.
inline Gather gather_of(const pool::Problem& p, const PoolDivisor& divisor, bool back) {
  return pool::gather_of(p.space, p.image, p.windows, divisor, back);
}

/// Batches whose elements 32 bits do not count go image by image, or a few at once: each takes the kernel, and the
/// order of additions, that it has alone.
template <class... Tensors, class F>
void for_images(const pool::Problem& p, F&& run, const Tensors&... tensors) {
  const int64_t images = p.image.size[0],
                an_image =
                    std::max(p.image.planes() * p.image.plane(), p.windows.planes() * p.windows.plane()) / images,
                most = std::max<int64_t>((int64_t{1} << 30) / an_image, 1);
  if (images <= most) return run(p, tensors...);
  for (int64_t n = 0; n < images; n += most) {
    pool::Problem piece = p;
    piece.image.size[0] = piece.windows.size[0] = piece.other.size[0] = std::min(most, images - n);
    const auto cut = [&](const Tensor& x) {
      Dims shape = x.shape();
      shape[0] = piece.image.size[0];
      return x.with_layout(shape, x.strides(), x.offset() + n * x.stride(0));
    };
    run(piece, cut(tensors)...);
  }
}

/// Channels lie together in source and target, and 32 bits count the threads.
std::optional<ChannelsPlan> plan_channels(const Gather& g, int vector);
/// The most channels that one access takes.
int channel_vector(const Gather& g, const Tensor& source, const Tensor& target);

struct WideLaunch {
  WidePlan plan;
  unsigned outputs, groups;
};
/// Likewise, where windows are wide and share no sources, or few. Forwards only; `vector` channels are one access.
std::optional<WideLaunch> plan_wide(const Gather& g, int vector);

struct RowsLaunch {
  RowsPlan plan;
  unsigned blocks;
  size_t shared;
};
/// Whether windows have so many rows that a thread's loads of all of them should be under way at once.
bool is_deep(const Gather& g);
/// Rows of sources lie together. `held` is the bytes of an element that waits in shared memory; `deep`: as
/// pool_rows.cuh says.
std::optional<RowsLaunch> plan_rows(const Gather& g, int vector, size_t held, bool back, bool deep = false);
/// The most elements of a row that one access takes.
int row_vector_of(const PoolGrid& grid, const Tensor& x);
inline int row_vector(const Gather& g, const Tensor& source) { return row_vector_of(g.source, source); }

/// The kernel size that both inner dims have when it is that small, without dilation; else 0.
int small_kernel(const Gather& g);

}  // namespace tenor::cuda
