// Routing on CUDA: a warp a token holds its scores in registers (or shared memory) and takes the best of them top_k
// times; a block then counts its chunk's slots. Where one block does it all, it arranges them too.
#include "src/cuda/launch.h"
#include "src/ops/contract/gemm_element.cuh"
#include "src/ops/moe/moe_arrange.h"
#include "src/ops/moe/moe_cuda.h"
#include "src/ops/moe/moe_score.h"

namespace tenor::cuda {
namespace {

using contract::element;
using moe::Rank;
using moe::Softmax;

constexpr int kMostWarps = 16;
constexpr size_t kMostShared = 160 << 10;

struct Router {
  moe::Slots slots;
  const void* logits;
  DType dtype;
  int64_t row, column;
  int* ids;
  void* weights;  ///< [tokens, top_k] of the logits' dtype
  bool sigmoid, renormalize, filter, top_two;
  const float* bias;
  int64_t bias_step;
  int groups, selected;
  double scale;
};

/// The best of all lanes' (rank, number): the largest rank, the lowest number on ties.
__device__ __forceinline__ int best_of(uint32_t rank, int number, uint32_t& best) {
  best = __reduce_max_sync(~0u, rank);
  return static_cast<int>(__reduce_min_sync(~0u, rank == best ? static_cast<unsigned>(number) : ~0u));
}
__device__ __forceinline__ int best_of(uint64_t rank, int number, uint64_t& best) {
  best = rank;
  for (int mask = kWarp / 2; mask > 0; mask /= 2)
    best = max(best, static_cast<uint64_t>(__shfl_xor_sync(~0u, static_cast<unsigned long long>(best), mask)));
  return static_cast<int>(__reduce_min_sync(~0u, rank == best ? static_cast<unsigned>(number) : ~0u));
}

/// A lane's ranks: of experts lane, lane + 32, ... in registers, or (kPer 0) in the warp's shared memory.
template <class C, int kPer>
struct Ranks {
  Rank<C> own[kPer];
  __device__ Ranks(Rank<C>*, int) {}
  template <class F>
  __device__ __forceinline__ void for_each(int, F&& fn) {
#pragma unroll
    for (int j = 0; j < kPer; ++j) fn(static_cast<int>(threadIdx.x % kWarp) + j * kWarp, own[j]);
  }
};
template <class C>
struct Ranks<C, 0> {
  Rank<C>* own;
  __device__ Ranks(Rank<C>* shared, int) : own(shared) {}
  template <class F>
  __device__ __forceinline__ void for_each(int experts, F&& fn) {
    for (int e = threadIdx.x % kWarp; e < experts; e += kWarp) fn(e, own[e]);
  }
};

/// One token's logits and what is made of them.
template <class C>
struct Token {
  const Router& r;
  int64_t at;
  Softmax<C> softmax;
  __device__ Token(const Router& r, int token) : r(r), at(token * r.row), softmax{} {}
  __device__ __forceinline__ C logit(int e) const { return element<C>(r.logits, r.dtype, at + e * r.column); }
  __device__ __forceinline__ C biased(int e) const {
    const C s = moe::sigmoid(logit(e));
    return r.bias ? s + static_cast<C>(r.bias[e * r.bias_step]) : s;
  }
  __device__ __forceinline__ C weight(int e) const { return r.sigmoid ? moe::sigmoid(logit(e)) : softmax(logit(e)); }
  __device__ void add_up() {
    C top = -INFINITY, sum = 0;
    for (int e = threadIdx.x % kWarp; e < r.slots.experts; e += kWarp) top = logit(e) > top ? logit(e) : top;
    top = warp_reduce(top, [](C a, C b) { return a > b ? a : b; });
    for (int e = threadIdx.x % kWarp; e < r.slots.experts; e += kWarp) sum += moe::exponential(logit(e) - top);
    softmax = {top, warp_reduce(sum, [](C a, C b) { return a + b; })};
  }
};

/// Which groups' experts may be chosen.
struct Groups {
  uint64_t low = ~0ull, high = ~0ull;
  __device__ __forceinline__ bool has(int g) const { return (g < 64 ? low >> g : high >> (g - 64)) & 1; }
};

/// A group's rank by its scores in shared memory, as routing_cpu.cpp has it.
template <class C>
__device__ Rank<C> group_rank(const C* scores, int size, bool top_two) {
  Rank<C> first = moe::kOutOfTheRunning, second = moe::kOutOfTheRunning;
  C best = 0, next = 0;
  for (int e = 0; e < size; ++e) {
    const Rank<C> own = moe::rank_of(scores[e]);
    if (own > first) {
      second = first, next = best, first = own, best = scores[e];
    } else if (own > second) {
      second = own, next = scores[e];
    }
  }
  return moe::rank_of(top_two ? best + next : best);
}

template <class C>
__device__ Groups choose_groups(const Router& r, const C* scores) {
  constexpr int kPer = 128 / kWarp;
  const int lane = threadIdx.x % kWarp, size = r.slots.experts / r.groups;
  Rank<C> own[kPer];
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    const int g = lane + j * kWarp;
    own[j] = g < r.groups ? group_rank(scores + g * size, size, r.top_two) : Rank<C>(moe::kOutOfTheRunning);
  }
  Groups kept{0, 0};
  for (int i = 0; i < r.selected; ++i) {
    Rank<C> rank = 0, best;
    int number = 0;
#pragma unroll
    for (int j = 0; j < kPer; ++j)
      if (own[j] > rank) rank = own[j], number = lane + j * kWarp;
    const int g = best_of(rank, number, best);
#pragma unroll
    for (int j = 0; j < kPer; ++j)
      if (g == lane + j * kWarp) own[j] = moe::kOutOfTheRunning;
    (g < 64 ? kept.low : kept.high) |= 1ull << (g % 64);
  }
  return kept;
}

/// Writes the first top_k numbers, best first.
template <class C, int kPer>
__device__ void take_best(Ranks<C, kPer>& ranks, int experts, int top_k, int* ids) {
  for (int k = 0; k < top_k; ++k) {
    Rank<C> rank = 0, best;
    int number = 0;
    ranks.for_each(experts, [&](int e, Rank<C>& own) {
      if (own > rank) rank = own, number = e;
    });
    const int e = best_of(rank, number, best);
    if (e % kWarp == static_cast<int>(threadIdx.x % kWarp))
      ranks.for_each(experts, [&](int own_e, Rank<C>& own) {
        if (own_e == e) own = moe::kOutOfTheRunning;
      });
    if (threadIdx.x % kWarp == 0) ids[k] = e;
  }
}

/// Weights of the chosen experts, added in the order of their slots.
template <class C>
__device__ void write_weights(const Router& r, const Token<C>& token, const int* ids, int64_t first) {
  const int lane = threadIdx.x % kWarp, top_k = r.slots.top_k;
  C sum = 0;
  for (int base = 0; r.renormalize && base < top_k; base += kWarp) {
    const C own = base + lane < top_k ? token.weight(ids[base + lane]) : C(0);
    for (int k = 0; k < min(kWarp, top_k - base); ++k) sum += __shfl_sync(~0u, own, k);
  }
  for (int k = lane; k < top_k; k += kWarp) {
    C w = token.weight(ids[k]);
    if (r.renormalize) w = w / (r.sigmoid ? sum + C(1e-20) : sum);
    if (r.sigmoid) w = w * static_cast<C>(r.scale);
    contract::set_element(r.weights, r.dtype, first + k, w);
  }
}

template <class C, int kPer>
__device__ void route_token(const Router& r, int t, void* shared) {
  const int experts = r.slots.experts, lane = threadIdx.x % kWarp;
  Token<C> token(r, t);
  Ranks<C, kPer> ranks(static_cast<Rank<C>*>(shared), experts);
  Groups kept;
  if (!r.sigmoid) token.add_up();
  if (r.filter) {
    C* scores = static_cast<C*>(shared);
    for (int e = lane; e < experts; e += kWarp) scores[e] = token.biased(e);
    __syncwarp();
    kept = choose_groups(r, scores);
    __syncwarp();
  }
  const int size = experts / r.groups;
  ranks.for_each(experts, [&](int e, Rank<C>& own) {
    own = moe::kOutOfTheRunning;
    if (e >= experts || !kept.has(e / size)) return;
    own = r.sigmoid ? moe::rank_of(token.biased(e)) : token.softmax.rank(token.logit(e));
  });
  const int64_t first = int64_t{t} * r.slots.top_k;
  take_best(ranks, experts, r.slots.top_k, r.ids + first);
  __syncwarp();
  write_weights(r, token, r.ids + first, first);
}

/// Dynamic shared memory: counts of the buckets, then a row of scores a warp.
template <class C, int kPer>
__global__ void __launch_bounds__(kMostWarps* kWarp) route_kernel(const __grid_constant__ Router r) {
  extern __shared__ __align__(16) unsigned char raw[];
  __shared__ int sums[kMostWarps];
  int* counts = reinterpret_cast<int*>(raw);
  const moe::Slots& s = r.slots;
  const int warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  unsigned char* own = raw + (s.experts + 4) / 4 * 16 + size_t(warp) * s.experts * sizeof(C);
  for (int t = blockIdx.x * s.chunk_tokens + warp;
       t < min((static_cast<int>(blockIdx.x) + 1) * s.chunk_tokens, s.tokens); t += warps)
    route_token<C, kPer>(r, t, own);
  __syncthreads();
  count_slots(s, blockIdx.x, counts);
  if (s.chunks == 1) {
    scan_counts(s, counts, sums);
    for (int i = threadIdx.x; s.arrivals && i < moe::kArrivals; i += blockDim.x) s.arrivals[i] = 0;
    if (warp == 0) deal_rows(s, 0, counts);
    return;
  }
  for (int b = threadIdx.x; b <= s.experts; b += blockDim.x)
    s.counts[int64_t{blockIdx.x} * (s.experts + 1) + b] = counts[b];
}

template <class C, int kPer>
void launch_router(const char* op, const Router& r, Device device) {
  const size_t row = kPer == 0 || r.filter ? r.slots.experts * sizeof(C) : 0, counts = (r.slots.experts + 4) / 4 * 16;
  const int warps = row == 0 ? kMostWarps : std::clamp(static_cast<int>((kMostShared - counts) / row), 1, kMostWarps);
  const auto threads = static_cast<unsigned>(std::min(warps, r.slots.chunk_tokens) * kWarp);
  launch(op, route_kernel<C, kPer>, {static_cast<unsigned>(r.slots.chunks), threads, counts + warps * row}, device, r);
}

}  // namespace

void route_tokens(const moe::Routing& routing) {
  const Device device = routing.logits.device();
  const DeviceGuard guard(device);
  const ArrangeSpace space(routing.plan);
  const Tensor& x = routing.logits;
  Router r{};
  r.slots = space.slots;
  if (routing.plan.arrivals.defined()) r.slots.arrivals = routing.plan.arrivals.data<int>();
  r.logits = x.raw(), r.dtype = x.dtype(), r.row = x.stride(0), r.column = x.stride(1);
  r.ids = routing.plan.ids.data<int>(), r.weights = routing.plan.weights.raw();
  r.sigmoid = routing.sigmoid, r.renormalize = routing.renormalize, r.top_two = routing.group_top_two;
  r.filter = routing.sigmoid && routing.selected_groups < routing.groups;
  if (routing.bias.defined()) r.bias = routing.bias.data<float>(), r.bias_step = routing.bias.stride(0);
  r.groups = static_cast<int>(routing.groups), r.selected = static_cast<int>(routing.selected_groups),
  r.scale = routing.scale;
  const int64_t experts = r.slots.experts;
  if (x.dtype() == float64)
    launch_router<double, 0>(routing.op, r, device);
  else if (experts <= 128)
    launch_router<float, 4>(routing.op, r, device);
  else if (experts <= 256)
    launch_router<float, 8>(routing.op, r, device);
  else if (experts <= 512)
    launch_router<float, 16>(routing.op, r, device);
  else
    launch_router<float, 0>(routing.op, r, device);
  if (r.slots.chunks > 1) arrange_counted(routing.op, r.slots, device);
}

}  // namespace tenor::cuda
