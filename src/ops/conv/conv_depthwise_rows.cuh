// What the depthwise ring kernels share: a block has 32 threads' channels and neighbouring strips of columns, a warp
// each, and walks down the rows of its range of results; the source's rows come by TMA, zeros outside of the image,
// into a ring, so that memory is kept busy however few warps the registers allow.
#pragma once

#include <cstdint>

#include "src/cuda/ptx/mbarrier.cuh"
#include "src/cuda/ptx/tma.cuh"

namespace tenor::conv {

namespace ptx = tenor::cuda::ptx;

inline constexpr int kRingWarps = 4;  ///< strips of a block, at most

/// What a kernel is compiled for: a warp's channels and columns, rows on their way.
template <class T_, int kSize_, int kOwn_, int kWide_, int kStages_, int kBlocks_, bool kPacked_ = false,
          int kStride_ = 1>
struct RingConfig {
  using T = T_;
  static constexpr int kSize = kSize_, kTaps = kSize * kSize, kOwn = kOwn_, kWide = kWide_, kStages = kStages_;
  static constexpr int kBlocks = kBlocks_;              ///< of a multiprocessor
  static constexpr bool kPacked = kPacked_;             ///< the weight stays in pairs, for which registers lack else
  static constexpr int kStride = kStride_;              ///< and rows of the source a step
  static constexpr int kReach = (kSize - 1) / kStride;  ///< steps back to the first that a result meets
  static constexpr int kSpan = (kWide - 1) * kStride + kSize, kChannels = 32 * kOwn;
  /// Turns of the row loop written out, so that sums stay in their registers; of large windows' the instruction cache
  /// would hold too few.
  static constexpr int kPhases = kSize == 3 ? 3 : 1;
  /// Where what belongs to row q - i lies among kSize rows.
  static constexpr int slot(int phase, int i) { return kPhases == 1 ? i : (phase + kSize - i) % kSize; }
};

struct RingShape {
  int channels, warps, across;               ///< strips of a block, and blocks of columns of a row
  int height, width, out_height, out_width;  ///< of the source; of what is written, or of grad
  int top, left;             ///< row r of the source meets rows r + top - i, i < kSize; columns likewise
  int rows, rows_per_block;  ///< batch * across * out_height in all
  int64_t other_batch, other_row;
  int other_pixel;
  int64_t weight_channel, weight_row, weight_column;
  bool weight_pieces;  ///< the weight is [channels, taps] without gaps, at a multiple of 16 bytes
  bool from_last;      ///< the source's rows meet the taps from the last on
  const void *weight, *bias;
  int64_t bias_stride;
  void* result;
  float* sums;  ///< weight backward: [blocks, taps, channels]
};

/// Bytes of the parts of shared memory.
template <class Config>
struct RingLayout {
  int line, grads;
  __host__ __device__ explicit RingLayout(const RingShape& s, bool with_grads)
      : line(((s.warps * Config::kWide - 1) * Config::kStride + Config::kSize) * Config::kStride * kPixel),
        grads(with_grads ? s.warps * Config::kWide * kPixel : 0) {}
  static constexpr int kPixel = Config::kChannels * static_cast<int>(sizeof(typename Config::T));
  static constexpr int kWeight = (Config::kTaps * kPixel + 127) / 128 * 128;
  static constexpr int kBarriers = 2 * 8 * Config::kStages;
  __host__ __device__ int first_grad() const { return (line + 127) / 128 * 128; }  ///< TMA writes from there on
  __host__ __device__ int stage() const { return first_grad() + (grads + 127) / 128 * 128; }
  __host__ __device__ int ring() const { return Config::kStages * stage(); }
  /// After its rows, a block's sums lie where they were.
  size_t weight_bytes(int warps) const {
    const size_t sums = size_t{4} * warps * Config::kTaps * Config::kChannels, rows = size_t(ring()) + kBarriers;
    return sums > rows ? sums : rows;
  }
};

/// A block's rows of results, a segment of one image at a time: step q of it brings row (first + q) * stride - top of
/// the source, and as many as the stride, and of grad row first + q.
template <int kReach>
struct RingCursor {
  int next, end;  ///< rows of results not walked yet
  int n, column, first, last, q;

  __device__ __forceinline__ RingCursor(const RingShape& s, int wide)
      : next(blockIdx.y * s.rows_per_block), end(min(next + s.rows_per_block, s.rows)) {
    segment(s, wide);
  }
  __device__ __forceinline__ void segment(const RingShape& s, int wide) {
    const int item = next / s.out_height;
    first = next - item * s.out_height, last = min(s.out_height, first + end - next);
    n = item / s.across, column = (item - n * s.across) * wide;
    q = 0, next += max(last - first, 0);
  }
  __device__ __forceinline__ bool any() const { return first < last; }
  __device__ __forceinline__ int steps() const { return last - first + kReach; }
  /// To the next segment, or to none.
  __device__ __forceinline__ void leave(const RingShape& s, int wide) {
    if (next < end)
      segment(s, wide);
    else
      first = last;
  }
};

/// The block's rows on their way.
template <class Config, bool kGrads>
struct Ring {
  using T = typename Config::T;
  unsigned char* lines;
  uint64_t *full, *empty;
  RingLayout<Config> layout;
  RingCursor<Config::kReach> ahead;
  int stage = 0, fill = 0;
  uint32_t parity = 0, fill_parity = 0;

  __device__ __forceinline__ Ring(unsigned char* memory, const RingShape& s, const CUtensorMap& source)
      : lines(memory),
        full(reinterpret_cast<uint64_t*>(memory + RingLayout<Config>(s, kGrads).ring())),
        empty(full + Config::kStages),
        layout(s, kGrads),
        ahead(s, s.warps * Config::kWide) {
    if (threadIdx.x == 0) {
      ptx::tma_prefetch_map(&source);
      for (int i = 0; i < Config::kStages; ++i) {
        ptx::mbarrier_init(&full[i], 1);
        ptx::mbarrier_init(&empty[i], s.warps);
      }
      ptx::mbarrier_init_fence();
    }
  }
  /// Starts the next step's loads, by one thread, once all warps have read what lies there.
  __device__ __forceinline__ void load(const RingShape& s, const CUtensorMap& source, const CUtensorMap* grad,
                                       bool wait) {
    if (threadIdx.x != 0 || !ahead.any()) return;
    if (wait) ptx::mbarrier_wait(&empty[fill], fill_parity ^ 1);
    const int row = (ahead.first + ahead.q) * Config::kStride - s.top, channel = blockIdx.x * Config::kChannels;
    const bool inside = row + Config::kStride > 0 && row < s.height;
    const bool more = kGrads && ahead.q < ahead.last - ahead.first;
    unsigned char* const to = lines + fill * layout.stage();
    ptx::mbarrier_arrive_expect(&full[fill], (inside ? layout.line : 0) + (more ? layout.grads : 0));
    if (inside)
      ptx::tma_load_4d(to, &source, channel, ahead.column * Config::kStride - s.left, row, ahead.n, &full[fill]);
    if (more)
      ptx::tma_load_4d(to + layout.first_grad(), grad, channel, ahead.column, ahead.first + ahead.q, ahead.n,
                       &full[fill]);
    if (++fill == Config::kStages) fill = 0, fill_parity ^= 1;
    if (++ahead.q == ahead.steps()) ahead.leave(s, s.warps * Config::kWide);
  }
  __device__ __forceinline__ void start(const RingShape& s, const CUtensorMap& source, const CUtensorMap* grad) {
    for (int i = 0; i < Config::kStages - 1; ++i) load(s, source, grad, false);
    __syncthreads();  // the others find the barriers ready
  }
  __device__ __forceinline__ void wait() const { ptx::mbarrier_wait(&full[stage], parity); }
  /// This warp has read the stage. The one before it, which the others have most likely read too, is filled again.
  __device__ __forceinline__ void release(const RingShape& s, const CUtensorMap& source, const CUtensorMap* grad) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&empty[stage]);
    load(s, source, grad, true);
    if (++stage == Config::kStages) stage = 0, parity ^= 1;
  }
  /// The thread's channels of its warp's first column.
  __device__ __forceinline__ const T* line() const {
    return reinterpret_cast<const T*>(lines + stage * layout.stage()) +
           (threadIdx.x / 32 * Config::kWide) * Config::kStride * Config::kChannels + threadIdx.x % 32 * Config::kOwn;
  }
  __device__ __forceinline__ const T* grads() const {
    return reinterpret_cast<const T*>(lines + stage * layout.stage() + layout.first_grad()) +
           (threadIdx.x / 32 * Config::kWide) * Config::kChannels + threadIdx.x % 32 * Config::kOwn;
  }
};

}  // namespace tenor::conv
