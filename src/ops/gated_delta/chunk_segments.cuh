// One long sequence of few heads in segments that are computed side by side. What a segment does to the state is
// affine: S' = M S + b. The first pass finds b, the state that a segment makes of zeros (the first one: of the state it
// starts from), and M, what it makes of the identity with no values; the states at the segments' ends follow from those
// one after the other; the second pass computes all outputs from them.
#pragma once

#include <algorithm>
#include <cmath>

#include "src/core/modes.h"
#include "src/ops/gated_delta/chunk_scan.cuh"
#include "src/ops/gated_delta/gated_delta_launch.h"

namespace tenor::delta {

/// The segments of a call: `chunks` chunks each, of a sequence `count` at most, at least three.
struct Segments {
  unsigned count, chunks;
  float* ends;    ///< [sequence][segment but the last][value head][K][V]: b, then the states at the segments' ends
  float* maps;    ///< [sequence][segment between first and last][value head]: M transposed, [K][K]
  float* starts;  ///< [sequence][value head][K][V], of a pool: states before the last segments write there; or null

  __host__ __device__ int64_t end_at(int64_t n, int64_t segment, const DeviceProblem& p, int64_t head) const {
    return ((n * (count - 1) + segment) * p.value_heads + head) * p.key_dim * p.value_dim;
  }
  __host__ __device__ int64_t map_at(int64_t n, int64_t segment, const DeviceProblem& p, int64_t head) const {
    return ((n * (count - 2) + segment - 1) * p.value_heads + head) * p.key_dim * p.key_dim;
  }
};

/// Segments of a sequence of so many steps; one without a step is a segment of none.
__device__ __forceinline__ int64_t segments_of(int64_t steps, const Segments& s) {
  const int64_t each = int64_t{s.chunks} * kChunk;
  return steps <= each ? 1 : (steps + each - 1) / each;
}

/// A block's part of a pass: a segment's columns, of the value or of the map.
struct Part {
  int64_t segment, first;
  bool is_map;
};
/// Units of 64 columns, the last of which may have fewer.
__host__ __device__ inline unsigned units_of(int64_t columns) { return static_cast<unsigned>((columns + 63) / 64); }
inline unsigned first_pass_units(const DeviceProblem& p, unsigned segments) {
  return units_of(p.value_dim) + (segments - 2) * (units_of(p.value_dim) + units_of(p.key_dim));
}
inline unsigned second_pass_units(const DeviceProblem& p, unsigned segments) {
  return segments * units_of(p.value_dim);
}
template <bool kOutputs>
__device__ __forceinline__ Part part_of(unsigned unit, const DeviceProblem& p) {
  const unsigned values = units_of(p.value_dim), keys = units_of(p.key_dim);
  if (kOutputs || unit < values) return {unit / values, 64 * int64_t{unit % values}, false};
  const unsigned at = (unit - values) % (values + keys), segment = 1 + (unit - values) / (values + keys);
  if (at < values) return {segment, 64 * int64_t{at}, false};
  return {segment, 64 * int64_t{at - values}, true};
}

template <int kKeyDim>
__device__ __forceinline__ void add_identity(float (&state)[kKeyDim / 8][4], int64_t first) {
  const int lane = threadIdx.x % 32, column = static_cast<int>(first) + 16 * (threadIdx.x / 32) + lane / 4;
#pragma unroll
  for (int n = 0; n < kKeyDim / 8; ++n)
#pragma unroll
    for (int c = 0; c < 4; ++c) state[n][c] = 8 * n + lane % 4 * 2 + c % 2 == column + c / 2 * 8 ? 1.0f : state[n][c];
}

/// A block's task in a pass: the second one where it makes outputs, else the first. Blocks: value heads fastest, then
/// sequences, then units.
struct SegmentTask {
  ScanTask t;
  Part part;
  bool is_last;  ///< of its sequence
  bool is_one;   ///< else there is nothing to do
};
template <bool kOutputs>
__device__ __forceinline__ SegmentTask segment_task(const DeviceProblem& p, const Segments& segments) {
  const unsigned heads = static_cast<unsigned>(p.value_heads), rest = blockIdx.x / heads;
  const int64_t n = rest % static_cast<unsigned>(p.sequences.count);
  const Part part = part_of<kOutputs>(rest / static_cast<unsigned>(p.sequences.count), p);
  ScanTask t{DeviceSequence(p.sequences, n), n, place_of(p.sequences, n), blockIdx.x % heads};
  const int64_t count = segments_of(t.s.length, segments), before = part.segment * segments.chunks;
  const bool is_last = part.segment + 1 == count;
  const bool is_one = t.place >= 0 && part.segment < count && (kOutputs || !is_last);
  t.slot = first_slot(p.sequences, n) + before;
  t.s.begin += before * kChunk;
  t.s.length = min(t.s.length - before * kChunk, int64_t{segments.chunks} * kChunk);
  t.chunks = (t.s.length + kChunk - 1) / kChunk;
  t.first = part.is_map ? 0 : part.first, t.is_map = part.is_map;
  return {t, part, is_last, is_one};
}

/// What a block's columns start from and where they go, and where what they start from is kept for the second pass.
struct SegmentEnds {
  Columns from, to, start;
};
template <bool kOutputs>
__device__ __forceinline__ SegmentEnds ends_of(const DeviceProblem& p, const Segments& segments,
                                               const SegmentTask& at) {
  const ScanTask& t = at.t;
  const Part& part = at.part;
  const auto end_of = [&](int64_t segment) {
    return Columns{segments.ends + segments.end_at(t.n, segment, p, t.head) + part.first, p.value_dim, 1};
  };
  SegmentEnds ends;
  if (segments.starts && part.segment == 0 && !at.is_last)
    ends.start = {segments.starts + (t.n * p.value_heads + t.head) * p.key_dim * p.value_dim + part.first, p.value_dim,
                  1};
  if (part.segment == 0 && starts_from_state(p.sequences, t.n)) ends.from = columns_of(p.first, t);
  if (kOutputs && ends.start.data) ends.from = ends.start;
  if (kOutputs && part.segment > 0) ends.from = end_of(part.segment - 1);
  if (!kOutputs) ends.to = end_of(part.segment);
  if (part.is_map)
    ends.to = {segments.maps + segments.map_at(t.n, part.segment, p, t.head) + part.first * p.key_dim, 1, p.key_dim};
  if (kOutputs && at.is_last) ends.to = columns_of(p.last, t);
  return ends;
}

/// A pass. Dynamic shared memory: Config::Shared.
template <class Config, bool kOutputs>
__global__ void __launch_bounds__(Config::kThreads, 1)
    segments_kernel(const __grid_constant__ DeviceProblem p, const typename Config::Factors* factors,
                    const __grid_constant__ ChunkMaps maps, Segments segments) {
  if constexpr (!ptx::kIsHopper) return;  // in PTX for other devices the kernel is empty, and never launched
  static_assert(Config::kGroups == 1);
  extern __shared__ __align__(1024) unsigned char segment_memory[];
  auto& shared = *reinterpret_cast<typename Config::Shared*>(segment_memory);
  const SegmentTask at = segment_task<kOutputs>(p, segments);
  if (!at.is_one) return ptx::wait_for_previous();
  if (at.part.is_map)
    for (int i = threadIdx.x; i < kSquareBytes / 16; i += Config::kThreads)
      reinterpret_cast<uint4*>(shared.output[0][0])[i] = make_uint4(0, 0, 0, 0);
  begin_scan<Config>(shared, maps);
  if (threadIdx.x >= 128) return move_chunks<Config, kOutputs>(shared, p, factors, maps, at.t);
  ptx::registers_increase<232>();
  const SegmentEnds ends = ends_of<kOutputs>(p, segments, at);
  float state[Config::kKeyDim / 8][4];
  read_state<Config::kKeyDim>(state, warp_columns(ends.from));
  if (!kOutputs) write_state<Config::kKeyDim>(state, warp_columns(ends.start));
  if (at.part.is_map) add_identity<Config::kKeyDim>(state, at.part.first);
  scan_chunks<Config, kOutputs>(state, shared, at.t);
  write_state<Config::kKeyDim>(state, warp_columns(ends.to));
}

inline constexpr int kJoinThreads = 256, kJoinColumns = 4;

template <int kKeyDim>
struct JoinShared {
  static constexpr int kParts = kJoinThreads / (kKeyDim / 2);  // of a product's inner dimension
  alignas(128) float map[2][kKeyDim][kKeyDim];
  float4 state[kKeyDim], parts[kParts][kKeyDim];
  uint64_t full[2];
};

__device__ __forceinline__ void add_scaled(float4& to, float x, float4 y) {
  to.x = fmaf(x, y.x, to.x), to.y = fmaf(x, y.y, to.y), to.z = fmaf(x, y.z, to.z), to.w = fmaf(x, y.w, to.w);
}

/// The states at the segments' ends, one after the other in float32: blocks of four columns fastest, then value heads,
/// then sequences. The next map is on its way while one is applied; a thread multiplies two of its rows by a part of
/// the state. Dynamic shared memory: JoinShared.
template <int kKeyDim>
__global__ void __launch_bounds__(kJoinThreads)
    join_segments_kernel(const __grid_constant__ DeviceProblem p, Segments segments) {
  if constexpr (!ptx::kIsHopper) return;
  using Shared = JoinShared<kKeyDim>;
  extern __shared__ __align__(128) unsigned char join_memory[];
  auto& shared = *reinterpret_cast<Shared*>(join_memory);
  const unsigned blocks = static_cast<unsigned>(p.value_dim / kJoinColumns), rest = blockIdx.x / blocks;
  const int64_t head = rest % static_cast<unsigned>(p.value_heads), n = rest / static_cast<unsigned>(p.value_heads);
  const int64_t count = segments_of(DeviceSequence(p.sequences, n).length, segments);
  if (place_of(p.sequences, n) < 0 || count < 3) return;
  const int t = threadIdx.x;
  const int row = t % (kKeyDim / 2) * 2, part = t / (kKeyDim / 2);
  const auto end_of = [&](int64_t segment) {
    return reinterpret_cast<float4*>(segments.ends + segments.end_at(n, segment, p, head) + t * p.value_dim +
                                     blockIdx.x % blocks * kJoinColumns);
  };
  const auto load_map = [&](int64_t segment) {
    uint64_t* full = &shared.full[segment % 2];
    ptx::mbarrier_arrive_expect(full, sizeof(shared.map[0]));
    ptx::bulk_load(shared.map[segment % 2], segments.maps + segments.map_at(n, segment, p, head), sizeof(shared.map[0]),
                   full);
  };
  if (t == 0) {
    ptx::mbarrier_init(&shared.full[0], 1), ptx::mbarrier_init(&shared.full[1], 1);
    ptx::mbarrier_init_fence();
    load_map(1);
  }
  const bool owns = t < kKeyDim;  // a row of the sum
  if (owns) shared.state[t] = *end_of(0);
  __syncthreads();
  for (int64_t segment = 1; segment + 1 < count; ++segment) {
    if (t == 0 && segment + 2 < count) load_map(segment + 1);  // over a map that all have read
    float4 sum = owns ? *end_of(segment) : float4{};
    ptx::mbarrier_wait(&shared.full[segment % 2], (segment - 1) / 2 & 1);
    float4 own[2] = {};
#pragma unroll
    for (int i = 0; i < kKeyDim / Shared::kParts; ++i) {
      const int j = part * (kKeyDim / Shared::kParts) + i;
      const float2 m = *reinterpret_cast<const float2*>(&shared.map[segment % 2][j][row]);
      const float4 s = shared.state[j];
      add_scaled(own[0], m.x, s), add_scaled(own[1], m.y, s);
    }
    shared.parts[part][row] = own[0], shared.parts[part][row + 1] = own[1];
    __syncthreads();
    if (owns) {
#pragma unroll
      for (int i = 0; i < Shared::kParts; ++i) add_scaled(sum, 1.0f, shared.parts[i][t]);
      shared.state[t] = sum, *end_of(segment) = sum;
    }
    __syncthreads();
  }
}

/// What a call's parts take, in a chunk's time with outputs.
struct SegmentCosts {
  double silent, join;  ///< a chunk without outputs; a state passed from end to end
  double worth;         ///< the share of the time without segments that they may take
  int64_t least;        ///< chunks of a segment
};

/// The most chunks that a sequence may have.
inline unsigned most_chunks(const DeviceProblem& p) {
  const int64_t slots = chunk_slots(p.sequences);
  return static_cast<unsigned>(p.sequences.starts.data ? slots : slots / std::max<int64_t>(p.sequences.count, 1));
}

/// How a call's sequences are cut where their columns leave a third of the multiprocessors idle; a count of 0: not at
/// all. Bits depend on it, so batch_invariant() has none of it.
inline Segments choose_segments(const DeviceProblem& p, const SegmentCosts& costs, Device device) {
  if (core::batch_invariant()) return {};
  const double fits = cuda::multiprocessors(device);
  const int64_t chunks = most_chunks(p);
  const int64_t heads = p.sequences.count * p.value_heads;
  if (3 * heads * units_of(p.value_dim) > 2 * cuda::multiprocessors(device)) return {};
  constexpr int64_t kMost = 64;  // segments
  Segments best{};
  double least = costs.worth * static_cast<double>(chunks);
  for (int64_t wanted = 3; wanted <= std::min(chunks / costs.least, kMost); ++wanted) {
    const auto each = static_cast<unsigned>((chunks + wanted - 1) / wanted),
               count = static_cast<unsigned>((chunks + each - 1) / each);
    if (count < 3) continue;
    const auto waves = [&](unsigned units) { return std::ceil(static_cast<double>(units * heads) / fits); };
    const double time = each * (costs.silent * waves(first_pass_units(p, count)) + waves(second_pass_units(p, count))) +
                        costs.join * count;
    if (time < least) least = time, best = {count, each, nullptr, nullptr, nullptr};
  }
  return best;
}

/// Calls first(segments, blocks), joins the ends, and calls second(segments, blocks).
template <int kKeyDim, class First, class Second>
void run_segments(const char* op, const DeviceProblem& p, Segments s, Device device, First&& first, Second&& second) {
  const int64_t heads = p.sequences.count * p.value_heads, each = p.key_dim * p.value_dim;
  const Tensor ends = Tensor::empty({core::count_product((s.count - 1) * heads, each)}, float32, device),
               maps =
                   Tensor::empty({core::count_product((s.count - 2) * heads, p.key_dim * p.key_dim)}, float32, device);
  s.ends = ends.data<float>(), s.maps = maps.data<float>();
  Tensor starts;
  if (p.first.data && p.first.data == p.last.data)
    starts = Tensor::empty({core::count_product(heads, each)}, float32, device), s.starts = starts.data<float>();
  first(s, blocks_of(op, first_pass_units(p, s.count), p.value_heads, p.sequences.count));
  cuda::launch(op, join_segments_kernel<kKeyDim>,
               {dim3(blocks_of(op, p.value_dim / kJoinColumns, p.value_heads, p.sequences.count)), dim3(kJoinThreads),
                sizeof(JoinShared<kKeyDim>)},
               device, p, s);
  second(s, blocks_of(op, second_pass_units(p, s.count), p.value_heads, p.sequences.count));
}

}  // namespace tenor::delta
