// How a warpgroup of the Hopper kernel stores its rows: by way of shared memory, where its queries were.
#pragma once

#include "src/ops/attention/flash_sm90.cuh"

namespace tenor::attn {

/// Rounds a warpgroup's rows into the place of its queries, laid as TMA lays them. Returns whether one may not be
/// finite.
template <class Config>
__device__ __forceinline__ bool flash_stage(FlashShared<Config>& shared, const float (&o)[Config::kDim / 2],
                                            float2 inverse, int group, int stage) {
  const int lane = threadIdx.x % 32, row = group * 64 + threadIdx.x % 128 / 32 * 16 + lane % 16;
  uint32_t odd = 0;
#pragma unroll
  for (int block = 0; block < Config::kDim / 8; block += 2) {
    const int place = (block % 8 + lane / 16) ^ (lane & 7);
    const uint32_t x0 = flash_round<Config>(o, inverse, block, 0, odd),
                   x1 = flash_round<Config>(o, inverse, block, 1, odd),
                   x2 = flash_round<Config>(o, inverse, block + 1, 0, odd),
                   x3 = flash_round<Config>(o, inverse, block + 1, 1, odd);
    ptx::stmatrix_x4(shared.q[stage][block / 8] + row * 64 + place * 8, x0, x1, x2, x3);
  }
  return (odd & kNotSigns) != 0;
}

/// From there to the result by one thread's TMA, which clips rows past the end.
template <class Config>
__device__ __forceinline__ void flash_send(const FlashShared<Config>& shared, const CUtensorMap& out,
                                           const FlashShape& shape, const FlashTask& t, int group, int stage) {
  if (t.row + group * 64 < t.queries)
#pragma unroll
    for (int b = 0; b < Config::kBlocks; ++b)
      if (b * 64 < shape.p.value_dim)
        ptx::tma_store_4d(&out, shared.q[stage][b] + group * 64 * 64, b * 64, t.row + group * 64, t.head, t.batch);
  ptx::tma_store_commit();
}

/// From there to the result by each warp for its sixteen rows, where TMA cannot: rows next to another sequence's, heads
/// side by side, strides of single elements.
template <class Config>
__device__ __noinline__ void flash_send_rows(const FlashShared<Config>& shared, const FlashShape& shape,
                                             const FlashTask& t, int group, int stage) {
  const int lane = threadIdx.x % 32, first = group * 64 + threadIdx.x % 128 / 32 * 16;
#pragma unroll 1
  for (int i = lane; i < 16 * Config::kDim / 8; i += 32) {
    const int row = first + i / (Config::kDim / 8), block = i % (Config::kDim / 8);
    if (!t.holds<Config>(shape, row)) continue;
    const auto* from = shared.q[stage][block / 8] + row * 64 + ((block % 8) ^ (row & 7)) * 8;
    store_eight(out_row<Config>(shape, t, row), block * 8, *reinterpret_cast<const uint4*>(from), shape);
  }
}

}  // namespace tenor::attn
