// Depthwise convolutions of stride and dilation 1 over channels-last images on devices with TMA. A block has 32
// threads' channels and neighbouring strips of columns, a warp each, and walks down the rows of its range of results;
// the source's rows come by TMA, zeros outside of the image, into a ring, so that memory is kept busy however few warps
// the registers allow. A row is read once and meets the kSize rows of results, or of grad, that it belongs to, which
// registers hold.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/cuda/ptx/mbarrier.cuh"
#include "src/cuda/ptx/tma.cuh"
#include "src/ops/conv/conv_mend.cuh"

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

/// Neighbouring columns' channels from a line in shared memory.
template <int kCount, int kOwn, class T>
__device__ __forceinline__ void take_columns(const T* line, float (&to)[kCount][kOwn]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) cuda::widen_pack(cuda::load_pack<kOwn>(line + i * 32 * kOwn), to[i]);
}

/// Keeps the compiler from widening what is used in each turn of a loop once in front of it, for which registers lack.
template <class T, int kChannels>
__device__ __forceinline__ void keep_packed(cuda::Pack<T, kChannels>& x) {
  if constexpr (sizeof(x) == 4 && sizeof(T) == 2) asm volatile("" : "+r"(reinterpret_cast<uint32_t&>(x)));
}

/// The block's channels of the weight as [taps, channels], in the order in which the source's rows meet them. Returns
/// whether what this thread brought is finite.
template <class Config>
__device__ __forceinline__ bool gather_weight(typename Config::T* to, const RingShape& s) {
  using T = typename Config::T;
  constexpr int kSize = Config::kSize, kTaps = Config::kTaps, kCount = kTaps * Config::kChannels;
  constexpr int kPiece = 16 / sizeof(T);
  const int first = blockIdx.x * Config::kChannels;
  bool finite = true;
  const auto place = [&](int channel, int tap, T w) {
    to[(s.from_last ? kTaps - 1 - tap : tap) * Config::kChannels + channel] = w;
    finite &= is_finite(w);
  };
  if (s.weight_pieces && first + Config::kChannels <= s.channels) {  // one turn, while the first rows are on their way
    const T* const from = static_cast<const T*>(s.weight) + first * kTaps;
    for (int i = threadIdx.x; i < kCount / kPiece; i += blockDim.x) {
      const cuda::Pack<T, kPiece> piece = cuda::load_pack<kPiece>(from + i * kPiece);
#pragma unroll
      for (int k = 0; k < kPiece; ++k) {
        const int channel = (i * kPiece + k) / kTaps;
        place(channel, i * kPiece + k - channel * kTaps, piece.at[k]);
      }
    }
    return finite;
  }
#pragma unroll 4
  for (int i = threadIdx.x; i < kCount; i += blockDim.x) {
    const int channel = i / kTaps, tap = i - channel * kTaps;
    if (first + channel < s.channels)
      place(channel, tap,
            static_cast<const T*>(s.weight)[(first + channel) * s.weight_channel + tap / kSize * s.weight_row +
                                            tap % kSize * s.weight_column]);
  }
  return finite;
}

/// A block's results, once all of them are stored, where its weight is not finite: `scale` of them a row and a column
/// of the ring's, from (row, column) on.
template <class Config>
__device__ __forceinline__ void mend_block(const ConvProblem& p, const RingShape& s, int scale = 1, int row = 0,
                                           int column = 0) {
  const int wide = s.warps * Config::kWide;
  __syncthreads();
  for (RingCursor<0> at(s, wide); at.any(); at.leave(s, wide))
    mend_box<typename Config::T>(
        p,
        {at.n, row + scale * at.first, scale * (at.last - at.first), column + scale * at.column, scale * wide,
         static_cast<int>(blockIdx.x) * Config::kChannels, Config::kChannels},
        threadIdx.x, blockDim.x);
}

/// A row's products with all rows of taps.
template <class Config, int kPhase>
__device__ __forceinline__ void add_row(
    float (&sum)[Config::kSize][Config::kWide][Config::kOwn], const float (&in)[Config::kSpan][Config::kOwn],
    cuda::Pack<typename Config::T, Config::kOwn> (&weight)[Config::kSize][Config::kSize]) {
#pragma unroll
  for (int i = 0; i < Config::kSize; ++i)
#pragma unroll
    for (int j = 0; j < Config::kSize; ++j) {
      if constexpr (Config::kPacked) keep_packed(weight[i][j]);
      float w[Config::kOwn];
      cuda::widen_pack(weight[i][j], w);
#pragma unroll
      for (int k = 0; k < Config::kWide; ++k)
#pragma unroll
        for (int c = 0; c < Config::kOwn; ++c) {
          float& to = sum[Config::slot(kPhase, i)][k][c];
          to = i + j == 0 ? in[k][c] * w[c] : fmaf(in[k + j][c], w[c], to);
        }
    }
}

/// The bias of the thread's channels.
template <class T, int kOwn>
__device__ __forceinline__ void load_bias(float (&bias)[kOwn], const RingShape& s, int channel) {
  if (s.bias && channel < s.channels)
#pragma unroll
    for (int c = 0; c < kOwn; ++c) bias[c] = cuda::widen(static_cast<const T*>(s.bias)[(channel + c) * s.bias_stride]);
}

/// Whether row q of a segment is one of the source's.
__device__ __forceinline__ bool is_inside(const RingShape& s, int row) {
  return static_cast<unsigned>(row) < static_cast<unsigned>(s.height);
}

/// A warp's results of one row, of which `columns` exist.
template <class T, int kWide, int kOwn>
__device__ __forceinline__ void store_columns(T* to, const RingShape& s, float (&sum)[kWide][kOwn],
                                              const float (&bias)[kOwn], int columns) {
#pragma unroll
  for (int k = 0; k < kWide; ++k) {
    if (s.bias)
#pragma unroll
      for (int c = 0; c < kOwn; ++c) sum[k][c] += bias[c];
    if (k < columns) cuda::store_pack(to + int64_t{k} * s.other_pixel, cuda::convert_pack<T>(sum[k]));
  }
}

template <class Config>
__global__ void __launch_bounds__(32 * kRingWarps, Config::kBlocks)
    ring_image(const __grid_constant__ CUtensorMap source, const __grid_constant__ RingShape s,
               const __grid_constant__ ConvProblem p) {
  using T = typename Config::T;
  constexpr int kSize = Config::kSize, kOwn = Config::kOwn, kWide = Config::kWide, kLast = kSize - 1;
  if constexpr (!ptx::kHasClusters) return;  // without TMA it is never launched
  extern __shared__ __align__(128) unsigned char raw[];
  T* const taps = reinterpret_cast<T*>(raw);
  Ring<Config, false> ring(raw + RingLayout<Config>::kWeight, s, source);
  ring.start(s, source, nullptr);
  const bool finite = __syncthreads_and(gather_weight<Config>(taps, s));
  cuda::Pack<T, kOwn> weight[kSize][kSize];
#pragma unroll
  for (int i = 0; i < Config::kTaps; ++i)
    weight[i / kSize][i % kSize] =
        cuda::load_pack<kOwn>(taps + i * Config::kChannels + static_cast<int>(threadIdx.x) % 32 * kOwn);
  const int channel = blockIdx.x * Config::kChannels + threadIdx.x % 32 * kOwn;
  float bias[kOwn] = {};
  load_bias<T>(bias, s, channel);
  const int wide = s.warps * kWide;
  for (RingCursor<Config::kReach> at(s, wide); at.any(); at.leave(s, wide)) {
    float sum[kSize][kWide][kOwn] = {};
    const int column = at.column + threadIdx.x / 32 * kWide, steps = at.steps(), top = at.first - s.top;
    T* const result = static_cast<T*>(s.result) + at.n * s.other_batch + at.first * s.other_row +
                      int64_t{column} * s.other_pixel + channel;
    const int columns = channel < s.channels ? s.out_width - column : 0;
    const auto step = [&]<int kPhase>(int q) {
      ring.wait();
      if (is_inside(s, top + q)) {
        float in[Config::kSpan][kOwn];
        take_columns(ring.line(), in);
        ring.release(s, source, nullptr);
        add_row<Config, kPhase>(sum, in, weight);
      } else {
        ring.release(s, source, nullptr);
#pragma unroll
        for (int k = 0; k < kWide; ++k)
#pragma unroll
          for (int c = 0; c < kOwn; ++c) sum[Config::slot(kPhase, 0)][k][c] = 0;
      }
      if (q >= kLast)
        store_columns<T>(result + (q - kLast) * s.other_row, s, sum[Config::slot(kPhase, kLast)], bias, columns);
      if constexpr (Config::kPhases == 1)
#pragma unroll
        for (int i = kLast; i > 0; --i)
#pragma unroll
          for (int k = 0; k < kWide; ++k)
#pragma unroll
            for (int c = 0; c < kOwn; ++c) sum[i][k][c] = sum[i - 1][k][c];
    };
    for (int q = 0; q < steps; q += Config::kPhases) {
      step.template operator()<0>(q);
      if constexpr (Config::kPhases == 3) {
        if (q + 1 < steps) step.template operator()<1>(q + 1);
        if (q + 2 < steps) step.template operator()<2>(q + 2);
      }
    }
  }
  if (!finite) mend_block<Config>(p, s);
}

/// A source row's products with the kSize rows of grad that it meets.
template <class Config, int kPhase>
__device__ __forceinline__ void add_taps(
    float (&sum)[Config::kSize][Config::kSize][Config::kOwn], const float (&in)[Config::kSpan][Config::kOwn],
    cuda::Pack<typename Config::T, Config::kOwn> (&g)[Config::kSize][Config::kWide]) {
#pragma unroll
  for (int i = 0; i < Config::kSize; ++i)
#pragma unroll
    for (int k = 0; k < Config::kWide; ++k) {
      auto& packed = g[Config::slot(kPhase, i)][k];
      keep_packed(packed);
      float along[Config::kOwn];
      cuda::widen_pack(packed, along);
#pragma unroll
      for (int j = 0; j < Config::kSize; ++j)
#pragma unroll
        for (int c = 0; c < Config::kOwn; ++c) sum[i][j][c] = fmaf(in[k + j][c], along[c], sum[i][j][c]);
    }
}

/// Adds the warps' sums in ascending order: sums[block, tap, channel].
template <class Config>
__device__ __forceinline__ void store_taps(unsigned char* memory, const RingShape& s,
                                           const float (&sum)[Config::kSize][Config::kSize][Config::kOwn]) {
  constexpr int kCount = Config::kTaps * Config::kChannels;
  float* const all = reinterpret_cast<float*>(memory);  // [warps, taps, channels]
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Config::kTaps; ++i)
#pragma unroll
    for (int c = 0; c < Config::kOwn; ++c)
      all[threadIdx.x / 32 * kCount + i * Config::kChannels + threadIdx.x % 32 * Config::kOwn + c] =
          sum[i / Config::kSize][i % Config::kSize][c];
  __syncthreads();
  for (int i = threadIdx.x; i < kCount; i += blockDim.x) {
    const int tap = i / Config::kChannels, channel = blockIdx.x * Config::kChannels + i % Config::kChannels;
    float whole = all[i];
    for (int k = 1; k < s.warps; ++k) whole += all[k * kCount + i];
    if (channel < s.channels) s.sums[(int64_t{blockIdx.y} * Config::kTaps + tap) * s.channels + channel] = whole;
  }
}

template <class Config>
__global__ void __launch_bounds__(32 * kRingWarps, Config::kBlocks)
    ring_weight(const __grid_constant__ CUtensorMap source, const __grid_constant__ CUtensorMap grad,
                const __grid_constant__ RingShape s) {
  using T = typename Config::T;
  constexpr int kSize = Config::kSize, kOwn = Config::kOwn, kWide = Config::kWide;
  if constexpr (!ptx::kHasClusters) return;  // without TMA it is never launched
  extern __shared__ __align__(128) unsigned char raw[];
  Ring<Config, true> ring(raw, s, source);
  ring.start(s, source, &grad);
  float sum[kSize][kSize][kOwn] = {};
  const int wide = s.warps * kWide;
  for (RingCursor<Config::kReach> at(s, wide); at.any(); at.leave(s, wide)) {
    cuda::Pack<T, kOwn> g[kSize][kWide] = {};
    const int rows = at.last - at.first, steps = at.steps(), top = at.first - s.top;
    const auto step = [&]<int kPhase>(int q) {
      ring.wait();
      if constexpr (Config::kPhases == 1)
#pragma unroll
        for (int i = kSize - 1; i > 0; --i)
#pragma unroll
          for (int k = 0; k < kWide; ++k) g[i][k] = g[i - 1][k];
      auto& fresh = g[Config::slot(kPhase, 0)];
#pragma unroll
      for (int k = 0; k < kWide; ++k) {
        fresh[k] = {};
        if (q < rows) fresh[k] = cuda::load_pack<kOwn>(ring.grads() + k * Config::kChannels);
      }
      float in[Config::kSpan][kOwn];
      const bool inside = is_inside(s, top + q);
      if (inside) take_columns(ring.line(), in);
      ring.release(s, source, &grad);
      if (inside) add_taps<Config, kPhase>(sum, in, g);
    };
    for (int q = 0; q < steps; q += Config::kPhases) {
      step.template operator()<0>(q);
      if constexpr (Config::kPhases == 3) {
        if (q + 1 < steps) step.template operator()<1>(q + 1);
        if (q + 2 < steps) step.template operator()<2>(q + 2);
      }
    }
  }
  store_taps<Config>(raw, s, sum);
}

}  // namespace tenor::conv
