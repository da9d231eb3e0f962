// The Hopper implicit GEMM: a GatherProduct of two-byte operands, float32 accumulation, one rounding at the end.
//
// A block computes 128 pixels by 64 to 256 channels of the result, a step being 64 products an element: one tap of 64
// source channels, taps running inside of channels so that neighbouring steps read the same lines, or (flat) the next
// 64 of all taps' channels, which leaves nothing of a step unused where channels are few. One warpgroup loads, two
// compute 64 pixels each, over a persistent grid. The pixels' lines come by im2col TMA where its limits allow and by
// cp.async of all 128 loading threads elsewhere (kGather); the weight by TMA, multicast to the blocks of a cluster,
// which lie above one another. An element's bits depend on its own pixel's window and the weight alone, never on the
// batch or its tile.
#pragma once

#include "src/cuda/gemm/sm90_gemm.cuh"
#include "src/cuda/ptx/async_copy.cuh"
#include "src/cuda/ptx/swizzle.cuh"
#include "src/ops/conv/conv_window_sum.cuh"

namespace tenor::conv {

namespace ptx = tenor::cuda::ptx;
using cuda::gemm::kConsumers;
using cuda::gemm::kTileK;
using cuda::gemm::kTileM;
using cuda::gemm::Ring;

inline constexpr int kThreads = 128 * (kConsumers + 1);

/// What a launch needs beside the tensor maps.
struct ConvShape {
  RowShape rows;
  int channels, columns, groups;  ///< of a group
  int tiles_m, tiles_n;           ///< of a group; tiles_m counts clusters
  WeightTaps taps;
  int lowest[3];    ///< im2col: what the offset of tap 0 is counted from, and where its pixels begin
  bool flat;        ///< steps of 64 of taps * channels, which lie in the weight as they are walked
  bool three_dims;  ///< im2col: the map has three spatial dims, else the last two
  const void *source, *weight;
  const void* bias;
  void* result;
  int64_t result_channel, bias_stride;
  bool whole_chunks;  ///< the result is written 16 bytes at a time
};

/// Products of one launch, whose tiles are dealt one product after the other: as the data direction has of a stride.
/// One by itself is found without looking.
inline constexpr int kMostProducts = 4;
template <int kMost>
struct ConvBatch {
  int count;
  ConvShape shape[kMost];
  __device__ __forceinline__ const ConvShape& at(int product) const { return shape[kMost > 1 ? product : 0]; }
};
template <int kMost>
struct ConvMaps {
  CUtensorMap image[kMost], weight[kMost];
};

__host__ __device__ inline int steps_of(const ConvShape& s) {
  const int taps = taps_of(s.rows);
  return s.flat ? (taps * s.channels + kTileK - 1) / kTileK : (s.channels + kTileK - 1) / kTileK * taps;
}

__host__ __device__ inline int tiles_of(const ConvShape& s) { return s.tiles_m * s.tiles_n * s.groups; }

template <class T_, int kColumns_, int kCluster_, bool kGather_, int kProducts_ = 1>
struct ConvConfig {
  using T = T_;
  static constexpr int kColumns = kColumns_, kCluster = kCluster_;
  static constexpr bool kGather = kGather_;
  static constexpr int kProducts = kProducts_;  ///< of a launch, at most; one where pixels are gathered
  using Batch = ConvBatch<kProducts>;
  using Maps = ConvMaps<kProducts>;
  static constexpr int kBytesB = kColumns * kTileK * 2, kStageBytes = kTileM * kTileK * 2 + kBytesB;
  static constexpr int kStages = kColumns == 256 ? 4 : kColumns == 128 ? 6 : 8;
  /// Of a thread: 128 that load and 256 that compute share the 64512 of the launch.
  static constexpr int kLoadRegisters = kGather ? 72 : 40, kComputeRegisters = kGather ? 216 : 232;
  static constexpr int kShareB = kColumns / kCluster;  ///< columns of the weight that this block loads
};

/// Of a gathered piece of 16 bytes: which tap's it is. A step's pieces lie side by side where steps are flat; else one
/// entry a tap says it for all.
struct alignas(16) TapEntry {
  int64_t offset;  ///< of the tap, and of flat ones of the piece's first channel
  uint32_t bits;   ///< that a row's mask must have; no row's past the last
  int tap;         ///< of the weight
};
inline constexpr int kTapEntries = 1024;

template <class Config>
struct alignas(1024) ConvShared {
  typename Config::T a[Config::kStages][kTileM * kTileK];
  typename Config::T b[Config::kStages][Config::kColumns * kTileK];
  typename Config::T out[kConsumers * 4][16 * 64];  // what each warp writes next
  int64_t row_offset[kTileM];
  uint32_t row_mask[kTileM];
  TapEntry taps[Config::kGather ? kTapEntries : 1];
  uint64_t full[Config::kStages], empty[Config::kStages];
};

struct ConvTile {
  int product, m, column, group;
};

/// The i-th tile of this block's cluster; columns first, then groups, so that a pixel's lines are read while in L2.
template <class Config>
__device__ __forceinline__ bool conv_tile(const typename Config::Batch& batch, int i, ConvTile& tile) {
  const int rank = Config::kCluster > 1 ? static_cast<int>(ptx::cluster_rank()) : 0;
  int at = blockIdx.x / Config::kCluster + i * (gridDim.x / Config::kCluster);
  tile.product = 0;
  if constexpr (Config::kProducts > 1)
    for (; tile.product + 1 < batch.count; ++tile.product) {
      const int tiles = tiles_of(batch.shape[tile.product]);
      if (at < tiles) break;
      at -= tiles;
    }
  const ConvShape& s = batch.at(tile.product);
  if (at >= tiles_of(s)) return false;
  const int across = s.tiles_n * s.groups;
  const int row = at / across, rest = at - row * across;
  tile.group = rest / s.tiles_n;
  tile.column = (rest - tile.group * s.tiles_n) * Config::kColumns;
  tile.m = (row * Config::kCluster + rank) * kTileM;
  return true;
}

/// This block's share of the weight at a step.
template <class Config>
__device__ __forceinline__ void load_weight(typename Config::T* tile, const CUtensorMap& map, int c, int tap,
                                            int column, int group, uint64_t* full) {
  const int share = Config::kCluster > 1 ? static_cast<int>(ptx::cluster_rank()) * Config::kShareB : 0;
  typename Config::T* const to = tile + share * kTileK;
  if constexpr (Config::kCluster > 1)
    ptx::tma_load_4d_multicast(to, &map, c, tap, column + share, group, full, (1 << Config::kCluster) - 1);
  else
    ptx::tma_load_4d(to, &map, c, tap, column + share, group, full);
}

__device__ __forceinline__ int weight_tap(const ConvShape& s, const TapWalk& walk) {
  return s.taps.first + walk.j[0] * s.taps.step[0] + walk.j[1] * s.taps.step[1] + walk.j[2] * s.taps.step[2];
}

/// One thread loads pixels and weight by TMA.
template <class Config>
__device__ void conv_produce_image(ConvShared<Config>& shared, const typename Config::Batch& batch,
                                   const typename Config::Maps& maps) {
  Ring<Config::kStages> ring;
  ConvTile tile;
  for (int i = 0; conv_tile<Config>(batch, i, tile); ++i) {
    const ConvShape& s = batch.at(tile.product);
    const int product = Config::kProducts > 1 ? tile.product : 0;
    const CUtensorMap &image = maps.image[product], &weight = maps.weight[product];
    const int steps = steps_of(s);
    int at[3];
    const int n = pixel_positions(s.rows, tile.m, at);  // past the last image: zeros
#pragma unroll
    for (int d = 0; d < 3; ++d) at[d] = at[d] * s.rows.stride[d] + s.lowest[d];
    TapWalk walk;
    for (int step = 0, c = 0; step < steps; ++step) {
      ptx::mbarrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
      uint64_t* full = &shared.full[ring.stage];
      ptx::mbarrier_arrive_expect(full, Config::kStageBytes);
      uint16_t off[3];
#pragma unroll
      for (int d = 0; d < 3; ++d)
        off[d] = static_cast<uint16_t>(s.rows.first[d] - s.lowest[d] + walk.j[d] * s.rows.step[d]);
      const int channel = tile.group * s.channels + c;
      if (s.three_dims)
        ptx::tma_load_image_5d(shared.a[ring.stage], &image, channel, at[2], at[1], at[0], n, off[2], off[1], off[0],
                               full);
      else
        ptx::tma_load_image_4d(shared.a[ring.stage], &image, channel, at[2], at[1], n, off[2], off[1], full);
      load_weight<Config>(shared.b[ring.stage], weight, c, weight_tap(s, walk), tile.column, tile.group, full);
      ring.advance();
      if (!walk.next(s.rows)) c += kTileK;
    }
  }
  for (int stage = 0; stage < Config::kStages; ++stage) {  // neighbours still arrive at these barriers
    ptx::mbarrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
    ring.advance();
  }
}

/// Arrivals at a stage's barrier: of each loading thread once its copies are there, and with the bytes that TMA brings.
inline constexpr int kGatherArrivals = 128 + 1;

/// Writes the table, by the loading warpgroup.
template <class Config>
__device__ __forceinline__ void list_taps(ConvShared<Config>& shared, const ConvShape& s) {
  const int taps = taps_of(s.rows), pieces = s.channels / 8, entries = s.flat ? steps_of(s) * 8 : taps;
  for (int i = threadIdx.x; i < entries; i += 128) {
    const int tap = s.flat ? i / pieces : i;
    const TapWalk walk = tap_walk(s.rows, min(tap, taps - 1));
    TapEntry entry{walk.offset(s.rows), walk.bits(s.rows), weight_tap(s, walk)};
    if (s.flat) entry.offset += (i - tap * pieces) * 8;
    if (tap >= taps) entry = {0, ~0u, 0};
    shared.taps[i] = entry;
  }
}

/// All threads of the loading warpgroup gather pixels' lines, eight pieces of 16 bytes each a step.
template <class Config>
__device__ void conv_produce_gather(ConvShared<Config>& shared, const typename Config::Batch& batch,
                                    const CUtensorMap& weight) {
  using T = typename Config::T;
  const ConvShape& s = batch.shape[0];
  constexpr int kRows = kTileM / 16;
  const int chunk = threadIdx.x % 8, line = threadIdx.x / 8;
  const int steps = steps_of(s), taps = taps_of(s.rows), skip = s.flat ? 0 : chunk * 8;
  const T* const source = static_cast<const T*>(s.source);
  Ring<Config::kStages> ring;
  list_taps(shared, s);
  ConvTile tile;
  for (int i = 0; conv_tile<Config>(batch, i, tile); ++i) {
    const SourceRow own = source_row(s.rows, tile.m + threadIdx.x);
    cuda::gemm::warpgroup_sync(kConsumers + 1);  // all have read the tile before's
    shared.row_offset[threadIdx.x] = own.offset;
    shared.row_mask[threadIdx.x] = own.mask;
    cuda::gemm::warpgroup_sync(kConsumers + 1);
    int64_t offset[kRows];
    uint32_t mask[kRows];
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      offset[row] = shared.row_offset[line + 16 * row] + tile.group * s.channels + skip;
      mask[row] = shared.row_mask[line + 16 * row];
    }
    for (int step = 0, tap = 0, c = 0; step < steps; ++step) {
      const TapEntry entry = shared.taps[s.flat ? step * 8 + chunk : tap];
      const T* const from = source + entry.offset + (s.flat ? 0 : c);
      const bool inside = s.flat || c + skip < s.channels;
      unsigned char* const to =
          reinterpret_cast<unsigned char*>(shared.a[ring.stage]) + ptx::swizzled_line(line, chunk);
      ptx::mbarrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
      if (threadIdx.x == 0) {
        uint64_t* full = &shared.full[ring.stage];
        ptx::mbarrier_arrive_expect(full, Config::kBytesB);
        load_weight<Config>(shared.b[ring.stage], weight, s.flat ? step * kTileK : c, s.flat ? 0 : entry.tap,
                            tile.column, tile.group, full);
      }
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const bool valid = inside && (mask[row] & entry.bits) == entry.bits;
        ptx::async_copy_16(to + row * 16 * 128, valid ? from + offset[row] : source, valid);
      }
      ptx::async_copy_arrive(&shared.full[ring.stage]);
      ring.advance();
      if (++tap == taps) tap = 0, c += kTileK;
    }
  }
  for (int stage = 0; stage < Config::kStages; ++stage) {
    ptx::mbarrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
    ring.advance();
  }
}

/// Each warp says that it has read a stage, to every block that loads for it.
template <class Config>
__device__ __forceinline__ void release(ConvShared<Config>& shared, int stage) {
  const int lane = threadIdx.x % 32;
  if constexpr (Config::kCluster > 1) {
    if (lane < Config::kCluster) ptx::mbarrier_arrive_cluster(&shared.empty[stage], lane);
  } else {
    if (lane == 0) ptx::mbarrier_arrive(&shared.empty[stage]);
  }
}

/// Adds the bias of each column.
template <class T, int kCount>
__device__ __forceinline__ void add_bias(float (&d)[kCount], const T* bias, int64_t stride, int column, int columns) {
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    const int x = column + cuda::gemm::accumulator_column(i);
    const float left = static_cast<float>(bias[min(x, columns - 1) * stride]),
                right = static_cast<float>(bias[min(x + 1, columns - 1) * stride]);
    d[i] += left, d[i + 1] += right, d[i + 2] += left, d[i + 3] += right;
  }
}

/// Rounds a warp's 16 pixels and stores them, up to 64 channels at a time through shared memory.
template <class T, int kColumns>
__device__ void store_pixels(T* staging, const float (&d)[kColumns / 2], const ConvShape& s, const ConvTile& tile,
                             int m) {
  constexpr int kWidth = kColumns < 64 ? kColumns : 64;
  const int lane = threadIdx.x % 32, matrix = lane / 8, own = (matrix & 1) * 8 + lane % 8;
  const int64_t mine = result_row(s.rows, min(m + lane % 16, s.rows.pixels - 1));
  const auto at = [&](int row, int chunk) {
    return reinterpret_cast<unsigned char*>(staging) + ptx::swizzled_line(row, chunk);
  };
  T* const out = static_cast<T*>(s.result);
#pragma unroll
  for (int box = 0; box < (kColumns + 63) / 64; ++box) {
    const int column = tile.column + box * 64;
    if (column >= s.columns) break;
#pragma unroll
    for (int pair = 0; pair < kWidth / 16; ++pair) {
      const int j = 4 * (box * 8 + pair * 2);
      ptx::stmatrix_x4(at(own, pair * 2 + (matrix >> 1)), cuda::gemm::pack<T>(d[j], d[j + 1]),
                       cuda::gemm::pack<T>(d[j + 2], d[j + 3]), cuda::gemm::pack<T>(d[j + 4], d[j + 5]),
                       cuda::gemm::pack<T>(d[j + 6], d[j + 7]));
    }
    __syncwarp();
    const int64_t base = (int64_t{tile.group} * s.columns + column) * s.result_channel;
    if (s.whole_chunks) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 8 + 4 * i, chunk = lane % 8;
        const int64_t to = __shfl_sync(0xffffffffu, mine, row);
        if (m + row < s.rows.pixels && chunk < kWidth / 8 && column + chunk * 8 < s.columns)
          *reinterpret_cast<uint4*>(out + to + base + chunk * 8) = *reinterpret_cast<const uint4*>(at(row, chunk));
      }
    } else {
      const int row = lane % 16;
#pragma unroll 4
      for (int x = lane / 16; x < kWidth; x += 2)
        if (m + row < s.rows.pixels && column + x < s.columns)
          out[mine + base + x * s.result_channel] = reinterpret_cast<const T*>(at(row, x / 8))[x % 8];
    }
    __syncwarp();
  }
}

template <class Config>
__device__ void conv_consume(ConvShared<Config>& shared, const typename Config::Batch& batch) {
  using T = typename Config::T;
  const int group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 - 4;
  Ring<Config::kStages> ring;
  float d[Config::kColumns / 2];
  ConvTile tile;
  for (int i = 0; conv_tile<Config>(batch, i, tile); ++i) {
    const ConvShape& s = batch.at(tile.product);
    const int steps = steps_of(s);
#pragma unroll
    for (float& x : d) x = 0;
    ptx::wgmma_pin(d);
    int before = -1;
    for (int step = 0; step < steps; ++step) {
      ptx::mbarrier_wait(&shared.full[ring.stage], ring.parity);
      // What threads copied becomes visible to the tensor cores; asked of the loading threads, it would wait for all
      // that they have in flight.
      if constexpr (Config::kGather) ptx::fence_async_proxy();
      const uint64_t a = ptx::wgmma_descriptor(shared.a[ring.stage] + group * 64 * kTileK),
                     b = ptx::wgmma_descriptor(shared.b[ring.stage]);
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < kTileK / 16; ++k)
        ptx::wgmma<T, Config::kColumns, ptx::TileLayout::kInner>(d, a + k * ptx::kWgmmaStepK<>,
                                                                 b + k * ptx::kWgmmaStepK<>, true);
      ptx::wgmma_commit();
      if (before >= 0) {
        ptx::wgmma_wait<1>();  // one product stays in flight: the stage before it has been read
        release(shared, before);
      }
      before = ring.stage;
      ring.advance();
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(d);
    if (before >= 0) release(shared, before);
    if (s.bias)
      add_bias(d, static_cast<const T*>(s.bias) + tile.group * s.columns * s.bias_stride, s.bias_stride, tile.column,
               s.columns);
    const bool odd = has_padding(s.rows) && not_finite(d);
    store_pixels<T, Config::kColumns>(shared.out[warp], d, s, tile, tile.m + warp * 16);
    if (odd) mend_pixels<T>(s, tile.group, tile.column, Config::kColumns, tile.m + warp * 16, 16);
  }
}

template <class Config>
__global__ void __launch_bounds__(kThreads, 1) sm90_conv_kernel(const __grid_constant__ typename Config::Maps maps,
                                                                const __grid_constant__ typename Config::Batch batch) {
  if constexpr (!ptx::kIsHopper) return;  // in PTX for other devices the kernel is empty, and never launched
  extern __shared__ __align__(1024) unsigned char raw[];
  auto& shared = *reinterpret_cast<ConvShared<Config>*>(raw);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Config::kStages; ++stage) {
      ptx::mbarrier_init(&shared.full[stage], Config::kGather ? kGatherArrivals : 1);
      ptx::mbarrier_init(&shared.empty[stage], kConsumers * 4 * Config::kCluster);
    }
    ptx::mbarrier_init_fence();
    if constexpr (!Config::kGather) ptx::tma_prefetch_map(&maps.image[0]);
    ptx::tma_prefetch_map(&maps.weight[0]);
  }
  ptx::cluster_sync();
  if (threadIdx.x < 128) {
    if constexpr (Config::kGather) {
      ptx::registers_decrease<Config::kLoadRegisters>();
      conv_produce_gather(shared, batch, maps.weight[0]);
    } else {
      ptx::registers_decrease<Config::kLoadRegisters>();
      if (threadIdx.x == 0) conv_produce_image(shared, batch, maps);
    }
  } else {
    ptx::registers_increase<Config::kComputeRegisters>();
    conv_consume(shared, batch);
  }
  ptx::cluster_sync();  // no block leaves while another may still write to its shared memory
}

}  // namespace tenor::conv
