// Segments of a long sequence of few heads (chunk_segments.cuh) by TF32 products.
#pragma once

#include "src/ops/gated_delta/chunk_segments.cuh"
#include "src/ops/gated_delta/chunk_tf32_scan.cuh"

namespace tenor::delta {

inline constexpr int kSegmentWarps = 4;  // that compute: 64 columns, a unit

/// A pass; all warps but the last one compute. Dynamic shared memory: Config::Shared.
template <class Config, bool kOutputs>
__global__ void __launch_bounds__(32 * (kSegmentWarps + 1), 1)
    segments_tf32_kernel(const __grid_constant__ DeviceProblem p, const typename Config::Factors* factors,
                         Segments segments) {
  if constexpr (!ptx::kIsHopper) return;
  extern __shared__ __align__(1024) unsigned char scan_memory[];
  auto& shared = *reinterpret_cast<typename Config::Shared*>(scan_memory);
  const SegmentTask at = segment_task<kOutputs>(p, segments);
  if (!at.is_one) return ptx::wait_for_previous();
  const int64_t columns = (at.part.is_map ? p.key_dim : p.value_dim) - at.part.first;
  const int warp = threadIdx.x / 32, computing = static_cast<int>(min(int64_t{kSegmentWarps}, columns / kTf32Columns));
  if (threadIdx.x == 0) init_barriers<Config>(shared, computing);
  __syncthreads();
  if (warp == kSegmentWarps) return load_chunks<typename Config::Element, Config::kKeyDim>(shared, p, factors, at.t);
  if (warp >= computing) return;
  const SegmentEnds ends = ends_of<kOutputs>(p, segments, at);
  float state[Config::kKeyDim / 8][4];
  read_state<Config::kKeyDim>(state, warp_columns(ends.from));
  if (!kOutputs) write_state<Config::kKeyDim>(state, warp_columns(ends.start));
  if (at.part.is_map) add_identity<Config::kKeyDim>(state, at.part.first);
  scan_chunks<Config, kOutputs>(state, shared, p, at.t);
  write_state<Config::kKeyDim>(state, warp_columns(ends.to));
}

}  // namespace tenor::delta
