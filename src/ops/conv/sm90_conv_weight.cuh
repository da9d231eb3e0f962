// The Hopper weight gradient: GatherSums of two-byte operands, a matrix product whose inner dim is the pixels.
//
// A block sums 128 rows, of all taps' source channels in turn, by 64 to 256 channels of grad over a range of pixels, 64
// a step. Both operands lie with the summed dim outermost, grad's lines as TMA brings them and the source's as im2col
// TMA or cp.async of the loading warpgroup's 128 threads does, zeros on padding; wgmma takes either across. A range's
// float32 sums go to a workspace; a second kernel adds the ranges in ascending order and rounds once.
#pragma once

#include "src/ops/conv/conv_splits.cuh"
#include "src/ops/conv/sm90_conv.cuh"

namespace tenor::conv {

template <class T_, int kColumns_, bool kGather_>
struct ConvWeightConfig {
  using T = T_;
  static constexpr int kColumns = kColumns_;
  static constexpr bool kGather = kGather_;
  static constexpr int kBytesB = kColumns * kTileK * 2, kStageBytes = kTileM * kTileK * 2 + kBytesB;
  static constexpr int kStages = kColumns == 256 ? 4 : kColumns == 128 ? 6 : 8;
};

template <class Config>
struct alignas(1024) ConvWeightShared {
  typename Config::T a[Config::kStages][kTileM * kTileK];
  typename Config::T b[Config::kStages][Config::kColumns * kTileK];
  int64_t row_offset[2][kTileM];
  uint32_t row_mask[2][kTileM];
  uint64_t full[Config::kStages], empty[Config::kStages];
};

/// What this block computes, and its steps.
struct WeightTile {
  int rows, column, group, first, last;
};

template <class Config>
__device__ __forceinline__ WeightTile weight_tile(const ConvWeightShape& s) {
  int at = blockIdx.x;
  WeightTile tile;
  tile.rows = at % s.row_tiles * kTileM, at /= s.row_tiles;
  tile.column = at % s.column_tiles * Config::kColumns, at /= s.column_tiles;
  tile.group = at;
  tile.first = blockIdx.y * s.steps_per_split;
  tile.last = min(tile.first + s.steps_per_split, (s.rows.pixels + kTileK - 1) / kTileK);
  return tile;
}

/// The step's lines of grad.
template <class Config>
__device__ __forceinline__ void load_grad(typename Config::T* to, const CUtensorMap& grad, const WeightTile& tile,
                                          int step, uint64_t* full) {
#pragma unroll
  for (int block = 0; block < Config::kColumns / 64; ++block)
    ptx::tma_load_4d(to + block * 64 * kTileK, &grad, tile.column + block * 64, tile.group, step * kTileK, 0, full);
}

/// One thread loads both operands by TMA; channels of a group are whole blocks of 64.
template <class Config>
__device__ void weight_produce_image(ConvWeightShared<Config>& shared, const ConvWeightShape& s,
                                     const CUtensorMap& image, const CUtensorMap& grad) {
  const WeightTile tile = weight_tile<Config>(s);
  int channel[2];
  uint16_t off[2][3];
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    // Past the last block the first tap is read once more, for rows that nobody stores.
    const int row = tile.rows + block * 64 < s.lines ? tile.rows + block * 64 : 0, tap = row / s.channels;
    channel[block] = tile.group * s.channels + row - tap * s.channels;
    const TapWalk walk = tap_walk(s.rows, tap);
#pragma unroll
    for (int d = 0; d < 3; ++d)
      off[block][d] = static_cast<uint16_t>(s.rows.first[d] - s.lowest[d] + walk.j[d] * s.rows.step[d]);
  }
  Ring<Config::kStages> ring;
  for (int step = tile.first; step < tile.last; ++step) {
    int at[3];
    const int n = pixel_positions(s.rows, step * kTileK, at);
#pragma unroll
    for (int d = 0; d < 3; ++d) at[d] = at[d] * s.rows.stride[d] + s.lowest[d];
    ptx::mbarrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
    uint64_t* full = &shared.full[ring.stage];
    ptx::mbarrier_arrive_expect(full, Config::kStageBytes);
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      typename Config::T* to = shared.a[ring.stage] + block * 64 * kTileK;
      if (s.three_dims)
        ptx::tma_load_image_5d(to, &image, channel[block], at[2], at[1], at[0], n, off[block][2], off[block][1],
                               off[block][0], full);
      else
        ptx::tma_load_image_4d(to, &image, channel[block], at[2], at[1], n, off[block][2], off[block][1], full);
    }
    load_grad<Config>(shared.b[ring.stage], grad, tile, step, full);
    ring.advance();
  }
}

template <class Config>
__device__ void weight_produce(ConvWeightShared<Config>& shared, const ConvWeightShape& s, const CUtensorMap& grad) {
  using T = typename Config::T;
  const WeightTile tile = weight_tile<Config>(s);
  const int chunk = threadIdx.x % 8, line = threadIdx.x / 8;
  const T* const source = static_cast<const T*>(s.source);
  const WeightRows blocks[2] = {weight_rows(s, tile.rows + chunk * 8), weight_rows(s, tile.rows + 64 + chunk * 8)};
  const int64_t own = tile.group * s.channels;
  Ring<Config::kStages> ring;
  for (int step = tile.first; step < tile.last; ++step) {
    const int odd = (step - tile.first) & 1, table = (step - tile.first) >> 1 & 1;
    if (!odd) {  // the pixels of two steps
      const SourceRow row = source_row(s.rows, step * kTileK + threadIdx.x);
      shared.row_offset[table][threadIdx.x] = row.offset;
      shared.row_mask[table][threadIdx.x] = row.mask;
      cuda::gemm::warpgroup_sync(kConsumers + 1);
    }
    int64_t offset[4];  // read together: copies keep what follows them in its place
    uint32_t mask[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = odd * kTileK + line + 16 * i;
      offset[i] = shared.row_offset[table][at] + own;
      mask[i] = shared.row_mask[table][at];
    }
    ptx::mbarrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
    if (threadIdx.x == 0) {
      uint64_t* full = &shared.full[ring.stage];
      ptx::mbarrier_arrive_expect(full, Config::kBytesB);
      load_grad<Config>(shared.b[ring.stage], grad, tile, step, full);
    }
    unsigned char* const to = reinterpret_cast<unsigned char*>(shared.a[ring.stage]) + ptx::swizzled_line(line, chunk);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int block = 0; block < 2; ++block) {
        const WeightRows& rows = blocks[block];
        const bool valid = rows.inside && (mask[i] & rows.bits) == rows.bits;
        ptx::async_copy_16(to + block * 64 * kTileK * 2 + i * 16 * 128,
                           valid ? source + offset[i] + rows.offset : source, valid);
      }
    }
    ptx::async_copy_arrive(&shared.full[ring.stage]);
    ring.advance();
  }
}

template <class Config>
__device__ void weight_consume(ConvWeightShared<Config>& shared, const ConvWeightShape& s) {
  using T = typename Config::T;
  constexpr auto kOuter = ptx::TileLayout::kOuter;
  const WeightTile tile = weight_tile<Config>(s);
  const int group = threadIdx.x / 128 - 1;
  Ring<Config::kStages> ring;
  float d[Config::kColumns / 2];
#pragma unroll
  for (float& x : d) x = 0;
  ptx::wgmma_pin(d);
  int before = -1;
  for (int step = tile.first; step < tile.last; ++step) {
    ptx::mbarrier_wait(&shared.full[ring.stage], ring.parity);
    if constexpr (Config::kGather) ptx::fence_async_proxy();
    const uint64_t a = ptx::wgmma_descriptor<kOuter>(shared.a[ring.stage] + group * 64 * kTileK),
                   b = ptx::wgmma_descriptor<kOuter>(shared.b[ring.stage]);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTileK / 16; ++k)
      ptx::wgmma_outer<T, Config::kColumns>(d, a + k * ptx::kWgmmaStepK<kOuter>, b + k * ptx::kWgmmaStepK<kOuter>,
                                            true);
    ptx::wgmma_commit();
    if (before >= 0) {
      ptx::wgmma_wait<1>();
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.empty[before]);
    }
    before = ring.stage;
    ring.advance();
  }
  ptx::wgmma_wait<0>();
  ptx::wgmma_pin(d);
  const int row = tile.rows + group * 64;
  if (row >= s.lines) return;
  float* const sums = s.sums + ((int64_t{blockIdx.y} * s.groups + tile.group) * s.lines + row) * s.columns;
#pragma unroll
  for (int i = 0; i < Config::kColumns / 2; i += 2) {
    const int column = tile.column + cuda::gemm::accumulator_column(i);
    if (column < s.columns)  // a multiple of 8
      *reinterpret_cast<float2*>(sums + int64_t{cuda::gemm::accumulator_row(i)} * s.columns + column) = {d[i],
                                                                                                         d[i + 1]};
  }
}

template <class Config>
__global__ void __launch_bounds__(kThreads, 1)
    sm90_conv_weight_kernel(const __grid_constant__ CUtensorMap image, const __grid_constant__ CUtensorMap grad,
                            const __grid_constant__ ConvWeightShape s) {
  if constexpr (!ptx::kIsHopper) return;  // in PTX for other devices the kernel is empty, and never launched
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<ConvWeightShared<Config>*>(raw);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Config::kStages; ++stage) {
      ptx::mbarrier_init(&shared.full[stage], Config::kGather ? kGatherArrivals : 1);
      ptx::mbarrier_init(&shared.empty[stage], kConsumers * 4);
    }
    ptx::mbarrier_init_fence();
    ptx::tma_prefetch_map(&grad);
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    if constexpr (Config::kGather) {
      ptx::registers_decrease<72>();
      weight_produce(shared, s, grad);
    } else {
      ptx::registers_decrease<40>();
      if (threadIdx.x == 0) weight_produce_image(shared, s, image, grad);
    }
  } else {
    ptx::registers_increase<Config::kGather ? 216 : 232>();
    weight_consume(shared, s);
  }
}

}  // namespace tenor::conv
