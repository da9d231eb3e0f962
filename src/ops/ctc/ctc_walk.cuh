// The recursion of CTC on CUDA: one launch, a block a sample, half of its warps walking from the first frame on and
// half from the last one back. For the loss alone they meet in the middle. For the gradient both go through all frames
// and leave a row of each, from which the class pass (ctc_class.cuh) makes posteriors.
//
// A lane holds a pair of states, blank i and label i, in registers; from the pair below it needs the label alone, by a
// shuffle. Warps work on chunks of frames, each a chunk behind the warp below it, so they meet once a chunk and not
// once a frame. Labels that are longer than the warps of a block take several rounds over the frames ("panels").
#pragma once

#include "src/cuda/content_error.cuh"
#include "src/cuda/convert.cuh"
#include "src/cuda/reduce.cuh"
#include "src/ops/ctc/ctc_class.cuh"

namespace tenor::ctc {

/// Frames between meetings. The log probabilities of the next chunk are read while one is computed, all at once: the
/// hardware waits for loads in few groups, so reads that trickle in would each be waited for.
template <class C>
inline constexpr int kChunk = sizeof(C) == 8 ? 4 : 16;
inline constexpr int kNormalizeEvery = 8;  ///< a step grows mantissas by 4.3 at most
inline constexpr int kMostWarps = 8;       ///< of one direction
inline constexpr int kWarpSize = cuda::kWarp;

/// A sample as its block sees it.
struct Sample {
  int64_t n, frames, labels, offset;  ///< offset: labels of the samples before it
  int64_t middle;                     ///< frames that the first half has
  __device__ int64_t width() const { return 2 * labels + 1; }
  __device__ int64_t states() const { return 2 * offset + n; }  ///< states of the samples before it
};

/// What a block shares.
template <class C>
struct WalkSpace {
  /// Direction, warp, chunk's parity: by frame, the label below the warp's first pair. The last one's are of nobody.
  Scaled<C> inbox[2][kMostWarps + 1][2][kChunk<C>];
  Scaled<C> warps[2 * kMostWarps];
  int64_t sums[2 * kMostWarps];
};

template <class C>
__device__ __forceinline__ Scaled<C> shuffle_up(Scaled<C> x) {
  return {__shfl_up_sync(~0u, x.m, 1), __shfl_up_sync(~0u, x.e, 1)};
}

/// One lane of one direction. u counts the frames in the order of walking, from 0; pairs count likewise from the end
/// that the walk starts at.
template <class T, bool kGrad>
struct Walker {
  using C = core::Compute<T>;
  using Value = Scaled<C>;
  static constexpr int kFrames = kChunk<C>;
  const WalkArguments<T>& a;
  const Sample& s;
  const bool back;
  const int warp, warps, lane;

  int64_t pair = 0;
  bool has_blank = false, has_label = false, skips = false;
  const T *blank_source = nullptr, *label_source = nullptr;  // of frame 0 of the walk
  Value *blank_row = nullptr, *label_row = nullptr;
  int64_t row_step = 0;
  Value blank, label, carry;
  T blanks[kFrames], labels[kFrames], next_blanks[kFrames], next_labels[kFrames];

  __device__ int64_t class_of(int64_t walked) const {
    return a.targets.at(s.offset * a.target_step, a.target_row * s.n, back ? s.labels - 1 - walked : walked);
  }
  __device__ Value* edge() const { return a.edges + 2 * s.states() + (back ? s.width() : 0); }

  /// Asks for the log probabilities of chunk c.
  __device__ void read_ahead(int64_t c, int64_t end) {
    const int64_t step = back ? -a.frame_stride : a.frame_stride;
    const T *blank_at = blank_source + c * kFrames * step, *label_at = label_source + c * kFrames * step;
    const int64_t left = end - c * kFrames;
#pragma unroll
    for (int j = 0; j < kFrames; ++j) {
      if (j < left) {
        next_blanks[j] = *blank_at;
        next_labels[j] = *label_at;
      }
      blank_at += step;
      label_at += step;
    }
  }

  /// Takes up pairs `first` and on at the first frame of its walk, which has `end` of them.
  __device__ void enter(int64_t first, int64_t end) {
    pair = first + warp * kWarpSize + lane;
    has_blank = pair <= s.labels;
    has_label = pair < s.labels;
    const int64_t frame = back ? s.frames - 1 : 0;
    const T* base = a.log_probs + frame * a.frame_stride + s.n * a.sample_stride;
    const int64_t mine = has_label ? class_of(pair) : a.blank;
    const int64_t below = has_label && pair > 0 ? class_of(pair - 1) : mine;
    // A path may pass over a blank between two labels that differ, into one that is no blank itself.
    skips = mine != below && (back ? below : mine) != a.blank;
    blank_source = base + a.blank * a.class_stride;
    label_source = base + mine * a.class_stride;
    if constexpr (kGrad) {
      Value* rows = a.rows[back] + s.states() * a.frames + frame * s.width();
      row_step = back ? -s.width() : s.width();
      blank_row = rows + (back ? s.labels - pair : pair);
      label_row = rows + s.labels + 1 + (back ? s.labels - 1 - pair : pair);
    }
    blank = pair == 0 ? one<C>() : zero<C>();  // as if there were a frame before: blank 0 and label 0 come next
    label = carry = zero<C>();
    read_ahead(0, end);
  }
  __device__ void leave() const {
    if (has_blank) edge()[pair] = blank;
    if (has_label) edge()[s.labels + 1 + pair] = label;
  }

  /// Frame j of a chunk.
  __device__ __forceinline__ void step(int j, const Value* inbox, Value* outbox) {
    const Value blank_p = exponential(cuda::convert<C>(blanks[j]));
    Value label_p = exponential(cuda::convert<C>(labels[j]));
    label_p = {has_label ? label_p.m : C(0), has_label ? label_p.e : zero<C>().e};
    Value under = shuffle_up(label);
    under = {lane == 0 ? carry.m : under.m, lane == 0 ? carry.e : under.e};
    carry = inbox[j];
    const Value skipped{skips ? under.m : C(0), skips ? under.e : zero<C>().e};
    const Value blank_reach = add(blank, under), label_reach = add(label, blank, skipped);
    blank = multiply(blank_reach, blank_p);
    label = multiply(label_reach, label_p);
    if (lane == kWarpSize - 1) outbox[j] = label;
    if constexpr (kGrad) {  // the backward walk leaves its frame's probabilities to the forward one
      const Value my_blank{back ? blank_reach.m : blank.m, back ? blank_reach.e : blank.e};
      const Value my_label{back ? label_reach.m : label.m, back ? label_reach.e : label.e};
      if (has_blank) *blank_row = my_blank;
      if (has_label) *label_row = my_label;
      blank_row += row_step;
      label_row += row_step;
    }
  }

  __device__ void chunk(int64_t c, int64_t end, const Value* inbox, Value* outbox) {
#pragma unroll
    for (int j = 0; j < kFrames; ++j) {
      blanks[j] = next_blanks[j];
      labels[j] = next_labels[j];
    }
    read_ahead(c + 1, end);
    const int left = end - c * kFrames < kFrames ? static_cast<int>(end - c * kFrames) : kFrames;
    if (left == kFrames) {
#pragma unroll
      for (int j = 0; j < kFrames; ++j) {
        step(j, inbox, outbox);
        if ((j + 1) % kNormalizeEvery == 0 || j + 1 == kFrames) normalize();
      }
    } else {
#pragma unroll
      for (int j = 0; j < kFrames; ++j) {
        if (j < left) step(j, inbox, outbox);
        if ((j + 1) % kNormalizeEvery == 0 || j + 1 == kFrames) normalize();
      }
    }
  }
  __device__ void normalize() {
    blank = normalized(blank);
    label = normalized(label);
  }
};

/// All pairs through the first `end` frames of this walk's order, chunk by chunk behind the warps below.
template <class T, bool kGrad>
__device__ void walk(Walker<T, kGrad>& w, WalkSpace<core::Compute<T>>& space, int64_t end, int64_t most_frames) {
  using C = core::Compute<T>;
  constexpr int kFrames = kChunk<C>;
  const int64_t pairs = w.s.labels + 1, panel = int64_t{w.warps} * kWarpSize;
  const int64_t chunks = (end + kFrames - 1) / kFrames, most_chunks = (most_frames + kFrames - 1) / kFrames;
  auto& boxes = space.inbox[w.back];
  if (w.warp == 0 && w.lane < kFrames) boxes[0][0][w.lane] = boxes[0][1][w.lane] = zero<C>();
  __syncwarp();
  Scaled<C>* columns = w.a.columns + w.s.n * 4 * w.a.frames + (w.back ? 2 * w.a.frames : 0);
  for (int64_t first = 0, round = 0; first < pairs; first += panel, ++round) {
    const int64_t left = (pairs - first + kWarpSize - 1) / kWarpSize;
    const int working = left < w.warps ? static_cast<int>(left) : w.warps;
    const bool mine = w.warp < working && chunks > 0;
    if (mine) w.enter(first, end);
    const bool more = first + panel < pairs;  // the next panel reads what the last lane finds
    for (int64_t at = 0; at < most_chunks + working - 1; ++at) {
      const int64_t c = at - w.warp;
      if (mine && c >= 0 && c < chunks) {
        Scaled<C>*inbox = boxes[w.warp][c % 2], *outbox = boxes[w.warp + 1][c % 2];
        const bool reads = w.warp == 0 && round > 0, writes = more && w.warp + 1 == working;
        const int64_t at_lane = c * kFrames + w.lane;
        const bool is_frame = w.lane < kFrames && at_lane < end;
        if (reads && is_frame) inbox[w.lane] = columns[(round - 1) % 2 * w.a.frames + at_lane];
        if (reads) __syncwarp();
        w.chunk(c, end, inbox, outbox);
        if (writes) __syncwarp();
        if (writes && is_frame) columns[round % 2 * w.a.frames + at_lane] = outbox[w.lane];
      }
      __syncthreads();
    }
    if (!kGrad && mine) w.leave();
  }
  __syncthreads();
}

/// The likelihood from where the two halves met; the same for every thread.
template <class T>
__device__ Scaled<core::Compute<T>> likelihood(const WalkArguments<T>& a, const Sample& s,
                                               WalkSpace<core::Compute<T>>& space) {
  using C = core::Compute<T>;
  const Scaled<C>*from = a.edges + 2 * s.states(), *back = from + s.width();
  const int64_t S = s.labels;
  const auto class_of = [&](int64_t i) { return a.targets.at(s.offset * a.target_step, a.target_row * s.n, i); };
  Scaled<C> sum = zero<C>();
  for (int64_t i = threadIdx.x; i <= S; i += blockDim.x) {
    const bool has_label = i < S;
    if (s.frames == 1) {
      if (i == S) sum = add(sum, from[i]);
      if (i == S - 1) sum = add(sum, from[S + 1 + i]);
      continue;
    }
    const Scaled<C> under = i > 0 ? from[S + i] : zero<C>();
    sum = add(sum, multiply(add(from[i], under), back[S - i]));
    if (has_label) {
      const bool skips = i > 0 && class_of(i) != class_of(i - 1) && class_of(i) != a.blank;
      sum = add(sum, multiply(add(from[S + 1 + i], from[i], skips ? under : zero<C>()), back[S + 1 + S - 1 - i]));
    }
    sum = normalized(sum);
  }
  const auto both = [](Scaled<C> x, Scaled<C> y) { return normalized(add(x, y)); };
  sum = cuda::warp_reduce(normalized(sum), both);
  if (threadIdx.x % kWarpSize == 0) space.warps[threadIdx.x / kWarpSize] = sum;
  __syncthreads();
  sum = space.warps[0];
  for (unsigned i = 1; i < blockDim.x / kWarpSize; ++i) sum = both(sum, space.warps[i]);
  return sum;
}

/// The same where the forward walk has gone through every frame.
template <class T>
__device__ Scaled<core::Compute<T>> likelihood_at_end(const WalkArguments<T>& a, const Sample& s) {
  const auto* last = a.rows[0] + s.states() * a.frames + (s.frames - 1) * s.width();
  return normalized(s.labels > 0 ? add(last[s.labels], last[2 * s.labels]) : last[0]);
}

/// The sum over the samples before n of their label counts; bad ones count as 0.
template <class T>
__device__ int64_t labels_before(const WalkArguments<T>& a, int64_t n, int64_t* sums) {
  int64_t sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const int64_t count = a.target_lengths.at(0, 0, i);
    sum += count > 0 && count <= a.most_labels ? count : 0;
  }
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(~0u, sum, mask);
  if (threadIdx.x % kWarpSize == 0) sums[threadIdx.x / kWarpSize] = sum;
  __syncthreads();
  sum = 0;
  for (unsigned i = 0; i < blockDim.x / kWarpSize; ++i) sum += sums[i];
  return sum;
}

/// Reads a sample's numbers. A bad one, or a bad label, raises the flag and drops the sample: false.
template <class T>
__device__ bool read_sample(const WalkArguments<T>& a, Sample& s, int64_t* sums) {
  s.frames = a.input_lengths.at(0, 0, s.n);
  s.labels = a.target_lengths.at(0, 0, s.n);
  s.offset = a.flat ? labels_before(a, s.n, sums) : s.n * a.most_labels;
  bool good = true;
  const auto refuse = [&](int op, int64_t position, int64_t value) {
    if (threadIdx.x == 0) cuda::raise_content_error(a.flag, op, position, value);
    good = false;
  };
  if (s.frames < 0 || s.frames > a.frames) {
    refuse(a.ops.input_lengths, s.n, s.frames);
    s.frames = 0;
  }
  if (s.labels < 0 || s.labels > a.most_labels) refuse(a.ops.target_lengths, s.n, s.labels);
  if (good && a.flat && s.n == a.samples - 1 && s.offset + s.labels != a.most_labels)
    refuse(a.ops.flat, a.most_labels, s.offset + s.labels);
  if (good && a.flat && s.offset + s.labels > a.most_labels) good = false;  // the last sample's block says so
  int64_t wrong = -1;
  if (good)
    for (int64_t i = threadIdx.x; i < s.labels; i += blockDim.x) {
      const int64_t k = a.targets.at(s.offset * a.target_step, a.target_row * s.n, i);
      if (k < 0 || k >= a.classes) wrong = i;
    }
  if (wrong >= 0)
    cuda::raise_content_error(a.flag, a.ops.targets, s.offset + wrong,
                              a.targets.at(s.offset * a.target_step, a.target_row * s.n, wrong));
  good = __syncthreads_and(good && wrong < 0);
  s.middle = (s.frames + 1) / 2;
  return good;
}

/// Labels in the order of their classes, equal ones in theirs: order[r] is the r-th, sorted[r] its class.
template <class T>
__device__ void rank_labels(const WalkArguments<T>& a, const Sample& s) {
  const auto class_of = [&](int64_t i) { return a.targets.at(s.offset * a.target_step, a.target_row * s.n, i); };
  for (int64_t i = threadIdx.x; i < s.labels; i += blockDim.x) {
    const int64_t mine = class_of(i);
    int64_t rank = 0;
    for (int64_t j = 0; j < s.labels; ++j) {
      const int64_t k = class_of(j);
      rank += k < mine || (k == mine && j < i);
    }
    a.order[s.offset + rank] = i;
    a.sorted[s.offset + rank] = mine;
  }
}

template <class T, bool kGrad>
__global__ void __launch_bounds__(2 * kMostWarps * kWarpSize)
    walk_kernel(const __grid_constant__ WalkArguments<T> a, const __grid_constant__ ClassArguments<T> classes) {
  using C = core::Compute<T>;
  __shared__ WalkSpace<C> space;
  if constexpr (kGrad)  // there are more blocks than samples
    if (blockIdx.x >= a.samples) return exponential_rows(classes, blockIdx.x - a.samples, gridDim.x - a.samples);
  Sample s{};
  s.n = blockIdx.x;
  const bool good = read_sample(a, s, space.sums);
  const bool possible = good && s.labels <= s.frames && s.frames > 0;  // a label takes a frame at least
  double loss = good && s.labels == 0 && s.frames == 0 ? 0.0 : std::numeric_limits<double>::infinity();
  if (!good) loss = 0;
  Scaled<C> p = one<C>();
  if (possible) {
    if constexpr (kGrad) rank_labels(a, s);
    const int warps = blockDim.x / kWarpSize / 2, warp = threadIdx.x / kWarpSize;
    const bool back = warp >= warps;
    Walker<T, kGrad> walker{a, s, back, back ? warp - warps : warp, warps, static_cast<int>(threadIdx.x % kWarpSize)};
    if constexpr (kGrad) {
      walk(walker, space, s.frames, s.frames);
      p = likelihood_at_end(a, s);
    } else {
      walk(walker, space, back ? s.frames - s.middle : s.middle, s.middle);
      p = likelihood(a, s, space);
    }
    loss = -logarithm(p);
  }
  if (threadIdx.x != 0) return;
  const bool infinite = loss == std::numeric_limits<double>::infinity();
  a.losses[s.n] = infinite && a.zero_infinity ? 0.0 : loss;
  if constexpr (kGrad)
    a.found[s.n] = {s.frames,
                    good ? s.labels : 0,
                    s.offset,
                    !good || (infinite && a.zero_infinity) ? Outcome::kZero
                    : infinite                             ? Outcome::kNan
                                                           : Outcome::kFine,
                    static_cast<double>(C(1) / p.m),
                    static_cast<double>(-p.e)};
}

}  // namespace tenor::ctc
