// How a gathering kernel is laid over its problem: decided on the host from sizes, strides and addresses.
#pragma once

#include <optional>

#include "src/ops/pool/pool_any.cuh"
#include "src/ops/pool/pool_channels.cuh"
#include "src/ops/pool/pool_rows.cuh"

namespace tenor::cuda {

/// Windows read inputs, or (back) inputs read windows.
inline Gather gather_of(const pool::Problem& p, const PoolDivisor& divisor, bool back) {
  return pool::gather_of(p.space, p.image, p.windows, divisor, back);
}

/// Channels lie together in source and target, and 32 bits count the threads.
std::optional<ChannelsPlan> plan_channels(const Gather& g, int vector);
/// The most channels that one access takes.
int channel_vector(const Gather& g, const Tensor& source, const Tensor& target);

struct RowsLaunch {
  RowsPlan plan;
  unsigned blocks;
  size_t shared;
};
/// Rows of sources lie together. `held` is the bytes of an element that waits in shared memory.
std::optional<RowsLaunch> plan_rows(const Gather& g, int vector, size_t held, bool back);
/// The most elements of a row that one access takes.
int row_vector_of(const PoolGrid& grid, const Tensor& x);
inline int row_vector(const Gather& g, const Tensor& source) { return row_vector_of(g.source, source); }

/// The kernel size that both inner dims have when it is that small, without dilation; else 0.
int small_kernel(const Gather& g);

}  // namespace tenor::cuda
