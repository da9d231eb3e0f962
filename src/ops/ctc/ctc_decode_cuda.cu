// The decoders on CUDA, a block a sample. Greedy: argmax, then labels are counted and placed a block's frames at a
// time. Beams: the classes of every frame in order (topk), then frame after frame.
#include <algorithm>
#include <bit>

#include "src/core/step.h"
#include "src/core/visit.h"
#include "src/cuda/content_error.cuh"
#include "src/cuda/content_kind.h"
#include "src/cuda/convert.cuh"
#include "src/cuda/launch.h"
#include "src/ops/ctc/ctc_beam.h"
#include "src/ops/ctc/ctc_lengths_cuda.h"
#include "tenor/elementwise.h"
#include "tenor/reduce.h"
#include "tenor/sort.h"

namespace tenor::ctc {
namespace {

constexpr int kThreads = 256;

/// Where a decoder writes, and how many frames a sample has.
struct DecodeArguments {
  Integers input_lengths;  ///< data null: all frames
  int64_t frames, blank;
  int64_t *ids, *lengths;
  int64_t id_sample, id_place, length_stride;
  cuda::ContentError* flag;
  int op;

  /// 0 where the length is bad, which raises the flag. Every thread calls.
  __device__ int64_t frames_of(int64_t n) const {
    if (!input_lengths.data) return frames;
    const int64_t own = input_lengths.at(0, 0, n);
    if (own >= 0 && own <= frames) return own;
    if (threadIdx.x == 0) cuda::raise_content_error(flag, op, n, own);
    return 0;
  }
  __device__ int64_t* row(int64_t n) const { return ids + n * id_sample; }
};

DecodeArguments decode_arguments(const CudaDecode& p, std::vector<Tensor>& kept) {
  static const int greedy = cuda::content_op("ctc_greedy_decode", "input_lengths", cuda::ContentKind::kValue),
                   beam = cuda::content_op("ctc_beam_decode", "input_lengths", cuda::ContentKind::kValue);
  const Device device = p.log_probs.device();
  DecodeArguments a{{nullptr, 0, false},
                    p.log_probs.shape(0),
                    p.blank,
                    p.ids.data<int64_t>(),
                    p.lengths.data<int64_t>(),
                    p.ids.stride(0),
                    p.ids.stride(1),
                    p.lengths.stride(0),
                    cuda::content_error(current_stream(device)),
                    p.width == 0 ? greedy : beam};
  if (!p.input_lengths.array.defined() && !p.input_lengths.numbers) return a;
  kept.push_back(kernel_integers(length_array(p.op, p.input_lengths, device)));
  a.input_lengths = {kept.back().raw(), kept.back().stride(0), kept.back().dtype() == int64};
  return a;
}

/// How many threads before this one say so, and in `total` how many do. `warps` has room for one int a warp.
__device__ int place_among(bool mine, int* warps, int& total) {
  const unsigned votes = __ballot_sync(~0u, mine);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  __syncthreads();
  if (lane == 0) warps[warp] = __popc(votes);
  __syncthreads();
  int before = __popc(votes & ((1u << lane) - 1));
  total = 0;
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w < warp) before += warps[w];
    total += warps[w];
  }
  return before;
}

__global__ void __launch_bounds__(kThreads)
    collapse_kernel(const __grid_constant__ DecodeArguments a, const int64_t* best, int64_t frame_stride,
                    int64_t sample_stride) {
  __shared__ int warps[kThreads / 32];
  const int64_t n = blockIdx.x, frames = a.frames_of(n);
  const auto at = [&](int64_t t) { return best[t * frame_stride + n * sample_stride]; };
  int64_t count = 0;
  for (int64_t first = 0; first < frames; first += kThreads) {
    const int64_t t = first + threadIdx.x;
    const int64_t k = t < frames ? at(t) : a.blank;
    const bool kept = k != a.blank && (t == 0 || k != at(t - 1));
    int total;
    const int place = place_among(kept, warps, total);
    if (kept) a.row(n)[(count + place) * a.id_place] = k;
    count += total;
  }
  for (int64_t i = count + threadIdx.x; i < a.frames; i += kThreads) a.row(n)[i * a.id_place] = -1;
  if (threadIdx.x == 0) a.lengths[n * a.length_stride] = count;
}

/// What a sample's block keeps in global memory.
struct BeamSpace {
  BeamPrefix *beam, *next, *kept;  ///< [width]
  BeamCandidate* candidates;       ///< [most_candidates]
  uint8_t* taken;                  ///< [most_candidates]: leads to a prefix of the beam
  unsigned long long* nodes;       ///< [table]: the prefixes by (parent, label); a prefix is its place
};
struct BeamArguments {
  DecodeArguments out;
  int64_t width, table, most_candidates, ranks;  ///< ranks: classes in order for each frame
  const int64_t* ranked;                         ///< [T, N, ranks], best first
  int64_t ranked_frame, ranked_sample;
  BeamPrefix* prefixes;
  BeamCandidate* candidates;
  uint8_t* taken;
  unsigned long long* nodes;

  __device__ BeamSpace space(int64_t n) const {
    BeamPrefix* own = prefixes + 3 * n * width;
    return {own,
            own + width,
            own + 2 * width,
            candidates + n * most_candidates,
            taken + n * most_candidates,
            nodes + n * table};
  }
};
constexpr unsigned long long kFree = ~0ull;
constexpr int64_t kRoot = int64_t{1} << 31;  ///< the empty prefix; tables are smaller

/// The node of parent's child with that label, made where there is none. Which place it has depends on who was first;
/// that the same prefix has one place does not.
__device__ int64_t child_node(unsigned long long* nodes, int64_t table, int64_t parent, int64_t label) {
  const unsigned long long key = static_cast<unsigned long long>(parent) << 32 | static_cast<unsigned long long>(label);
  unsigned long long at = key * 0x9E3779B97F4A7C15ull >> 20;
  for (;; ++at) {
    const unsigned long long found = atomicCAS(nodes + (at & (table - 1)), kFree, key);
    if (found == kFree || found == key) return static_cast<int64_t>(at & (table - 1));
  }
}

/// One frame's candidates and the best of them. `ranked` are its classes in order, of which the first `classes` count.
template <class P>
__device__ int64_t advance(const BeamArguments& a, BeamSpace& s, int64_t prefixes, const int64_t* ranked,
                           int64_t classes, P probability, unsigned* counter) {
  const int64_t width = a.width, slots = a.most_candidates;
  const auto first_of = [&](int64_t r) {  // where the candidates that lengthen prefix r begin
    int64_t sum = prefixes;
    for (int64_t q = 0; q < r; ++q) sum += classes_for(q, width, classes);
    return sum;
  };
  for (int64_t i = threadIdx.x; i < slots; i += kThreads) s.taken[i] = 0, s.candidates[i].value = zero<double>();
  if (threadIdx.x == 0) *counter = 0;
  __syncthreads();
  const Probability blank_p = probability(a.out.blank);
  for (int64_t r = threadIdx.x; r < prefixes; r += kThreads) {
    const BeamPrefix x = s.beam[r];
    int64_t parent = -1;
    for (int64_t q = 0; q < prefixes && x.parent != kNoNode; ++q)
      if (s.beam[q].node == x.parent) parent = q;
    s.kept[r] =
        kept(x, blank_p, x.last < 0 ? zero<double>() : probability(x.last), parent < 0 ? nullptr : &s.beam[parent]);
    s.candidates[r] = {s.kept[r].total, r, -1};
    if (parent < 0) continue;
    const int64_t most = classes_for(parent, width, classes);
    for (int64_t j = 0; j < most; ++j)
      if (ranked[j] == x.last) s.taken[first_of(parent) + j] = 1;
  }
  __syncthreads();
  int64_t begin = prefixes;
  for (int64_t r = 0; r < prefixes; ++r) {
    const int64_t most = classes_for(r, width, classes);
    for (int64_t j = threadIdx.x; j < most; j += kThreads)
      if (!s.taken[begin + j] && ranked[j] != a.out.blank)
        s.candidates[begin + j] = {lengthened(s.beam[r], ranked[j], probability(ranked[j])), r, j};
    begin += most;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < begin; i += kThreads) {
    const BeamCandidate c = s.candidates[i];
    if (!(c.value.m > 0)) continue;
    int64_t rank = 0;
    for (int64_t k = 0; k < begin && rank < width; ++k)
      rank += s.candidates[k].value.m > 0 && precedes(s.candidates[k], c);
    if (rank >= width) continue;
    atomicAdd(counter, 1u);
    if (c.rank < 0) {
      s.next[rank] = s.kept[c.from];
      continue;
    }
    const int64_t parent = s.beam[c.from].node, last = ranked[c.rank];
    s.next[rank] = {child_node(s.nodes, a.table, parent, last), parent, last, zero<double>(), c.value, c.value};
  }
  __syncthreads();
  BeamPrefix* before = s.beam;
  s.beam = s.next;
  s.next = before;
  return *counter;
}

/// The labels of the best prefix, from its last one back.
__device__ int64_t write_labels(const BeamArguments& a, const BeamSpace& s, int64_t n, bool any) {
  int64_t count = 0;
  const int64_t best = any ? s.beam[0].node : kRoot;
  for (int64_t node = best; node != kRoot; node = static_cast<int64_t>(s.nodes[node] >> 32)) ++count;
  int64_t at = count;
  for (int64_t node = best; node != kRoot; node = static_cast<int64_t>(s.nodes[node] >> 32))
    a.out.row(n)[--at * a.out.id_place] = static_cast<int64_t>(s.nodes[node] & 0xFFFFFFFFull);
  return count;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    beam_kernel(const __grid_constant__ BeamArguments a, const T* log_probs, int64_t frame_stride,
                int64_t sample_stride, int64_t class_stride) {
  __shared__ unsigned counter;
  __shared__ int64_t labels;
  const int64_t n = blockIdx.x, frames = a.out.frames_of(n);
  BeamSpace s = a.space(n);
  for (int64_t i = threadIdx.x; i < a.table; i += kThreads) s.nodes[i] = kFree;
  if (threadIdx.x == 0) s.beam[0] = empty_prefix(kRoot);
  __syncthreads();
  int64_t prefixes = 1;
  for (int64_t t = 0; t < frames; ++t) {
    const T* row = log_probs + t * frame_stride + n * sample_stride;
    const auto probability = [&](int64_t c) {
      return class_probability(static_cast<double>(cuda::convert<core::Compute<T>>(row[c * class_stride])));
    };
    prefixes =
        advance(a, s, prefixes, a.ranked + t * a.ranked_frame + n * a.ranked_sample, a.ranks, probability, &counter);
    __syncthreads();
  }
  if (threadIdx.x == 0) labels = write_labels(a, s, n, prefixes > 0);
  __syncthreads();
  for (int64_t i = labels + threadIdx.x; i < a.out.frames; i += kThreads) a.out.row(n)[i * a.out.id_place] = -1;
  if (threadIdx.x == 0) a.out.lengths[n * a.out.length_stride] = labels;
}

/// Every frame's classes, best first, but for the blank and those that have no probability, which come last.
Tensor ranked_classes(const CudaDecode& p, int64_t ranks) {
  const Tensor& x = p.log_probs;
  const Scalar none = -std::numeric_limits<double>::infinity();
  const Tensor usable = where(lt(x, std::numeric_limits<double>::infinity()), x, none).contiguous();
  fill_(usable.with_layout({x.shape(0), x.shape(1)}, {usable.stride(0), usable.stride(1)},
                           usable.offset() + p.blank * usable.stride(2)),
        none);
  return topk(usable, ranks, {.dim = 2}).indices;
}

}  // namespace

void greedy_cuda(const CudaDecode& p) {
  const Device device = p.log_probs.device();
  const cuda::DeviceGuard guard(device);
  std::vector<Tensor> kept;
  const DecodeArguments a = decode_arguments(p, kept);
  const Tensor best = argmax(p.log_probs, {.dim = 2});
  cuda::launch(p.op, collapse_kernel, {static_cast<unsigned>(p.log_probs.shape(1)), kThreads}, device, a,
               best.data<int64_t>(), best.stride(0), best.stride(1));
}

void beam_cuda(const CudaDecode& p) {
  const Device device = p.log_probs.device();
  const Tensor& x = p.log_probs;
  const cuda::DeviceGuard guard(device);
  std::vector<Tensor> kept;
  const int64_t T = x.shape(0), N = x.shape(1), C = x.shape(2);
  BeamArguments a{.out = decode_arguments(p, kept), .width = p.width};
  a.ranks = std::min(C, 3 * p.width);
  const int64_t nodes = core::count_product(T, p.width);
  if (nodes >= kRoot / 2 || C > INT32_MAX)
    throw UnsupportedError("ctc_beam_decode: beams of 2^30 prefixes over all frames and more have no CUDA kernel");
  a.table = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * nodes + 2)));
  for (int64_t r = 0; r < p.width && classes_for(r, p.width, a.ranks) > 0; ++r)
    a.most_candidates += 1 + classes_for(r, p.width, a.ranks);
  const auto room = [&]<class E>(E*& to, int64_t count) {
    kept.push_back(Tensor::empty({std::max<int64_t>(count, 1) * static_cast<int64_t>(sizeof(E))}, uint8, device));
    to = static_cast<E*>(kept.back().raw());
  };
  room(a.prefixes, 3 * N * p.width);
  room(a.candidates, N * a.most_candidates);
  room(a.taken, N * a.most_candidates);
  room(a.nodes, N * a.table);
  const Tensor ranked = T > 0 ? ranked_classes(p, a.ranks) : Tensor::empty({0, N, a.ranks}, int64, device);
  a.ranked = ranked.data<int64_t>();
  a.ranked_frame = ranked.stride(0), a.ranked_sample = ranked.stride(1);
  core::visit_float(x.dtype(), [&]<class E>() {
    cuda::launch(p.op, beam_kernel<E>, {static_cast<unsigned>(N), kThreads}, device, a, x.data<E>(), x.stride(0),
                 x.stride(1), x.stride(2));
  });
}

}  // namespace tenor::ctc
