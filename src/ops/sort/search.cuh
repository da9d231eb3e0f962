// searchsorted's kernels.
#pragma once

#include "src/core/order_key.h"
#include "src/cuda/vector.cuh"

namespace tenor::cuda {

inline constexpr int kSearchThreads = 256;

struct Sequences {
  int64_t n, stride;  ///< elements of a sequence and their distance
  int64_t per_row;    ///< values that are looked up in one sequence
  int64_t count;
  core::KeyCode code;
  bool right;
  int64_t first_step;  ///< the greatest power of two that is not above n
};

/// For each of U keys, how many elements of its sequence are < key, or <= key. All take the same steps, so that their
/// reads are under way together.
template <int U, class K>
__device__ void find_places(const K* const (&sequence)[U], const Sequences& s, const K (&key)[U], int64_t (&place)[U]) {
#pragma unroll
  for (int64_t& p : place) p = 0;
  for (int64_t step = s.first_step; step > 0; step /= 2) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int64_t next = place[u] + step;
      if (next > s.n) continue;
      const K before = core::encode(sequence[u][(next - 1) * s.stride], s.code);
      if (s.right ? before <= key[u] : before < key[u]) place[u] = next;
    }
  }
}

inline constexpr int kAtOnce = 4;  // values of a thread

template <class K>
__global__ void __launch_bounds__(kSearchThreads)
    search_kernel(const K* __restrict__ sequences, const K* __restrict__ values, const __grid_constant__ Sequences s,
                  int64_t* places) {
  const int64_t first = blockIdx.x * int64_t{kSearchThreads * kAtOnce} + threadIdx.x;
  const K* sequence[kAtOnce];
  K key[kAtOnce] = {};
  int64_t place[kAtOnce];
#pragma unroll
  for (int u = 0; u < kAtOnce; ++u) {
    const int64_t i = first + u * kSearchThreads;
    sequence[u] = s.per_row == s.count || i >= s.count ? sequences : sequences + i / s.per_row * s.n;
    if (i < s.count) key[u] = core::encode(values[i], s.code);
  }
  find_places(sequence, s, key, place);
#pragma unroll
  for (int u = 0; u < kAtOnce; ++u)
    if (first + u * kSearchThreads < s.count) places[first + u * kSearchThreads] = place[u];
}
/// Of one sequence that many values are looked up in, the last key of every `gap` elements stands in shared memory:
/// only the steps between two samples go to the sequence itself, to 32 bytes of it where it is no longer than 8 *
/// kMostSamples.
struct Samples {
  int gap, count;  ///< powers of two; samples past the end are the last key
  int n;
  bool packs;  ///< the sequence is dense and aligned to 16 bytes
};
/// 128 KiB, so that a block has a multiprocessor to itself.
template <class K>
inline constexpr int kMostSamples = (128 << 10) / static_cast<int>(sizeof(K) < 4 ? 4 : sizeof(K));
inline constexpr int kSampledThreads = 1024;

template <class K>
__device__ __forceinline__ K sample_of(const K* __restrict__ sequence, const Sequences& s, const Samples& samples,
                                       int i) {
  const int64_t at = (i + 1) * int64_t{samples.gap} - 1;
  return at < samples.n ? core::encode(sequence[at * s.stride], s.code) : static_cast<K>(~K(0));
}
/// Where sample i stands: level by level of a search tree, its root at 1 and the last sample at 0. In the order of the
/// samples themselves a step's addresses would lie powers of two apart, in one bank.
__device__ __forceinline__ int tree_place(int i, int count) {
  if (i + 1 == count) return 0;
  const int below = __ffs(i + 1) - 1;  // levels
  return (count >> (below + 1)) + ((i + 1) >> (below + 1));
}

template <class K>
__global__ void __launch_bounds__(kSearchThreads)
    sample_kernel(const K* __restrict__ sequence, const __grid_constant__ Sequences s, Samples samples, K* out) {
  const int i = static_cast<int>(blockIdx.x * kSearchThreads + threadIdx.x);
  if (i < samples.count) out[tree_place(i, samples.count)] = sample_of(sequence, s, samples, i);
}

/// The samples as a tree, by a block's threads. `ready` holds it (then they are many), or nothing.
template <class K>
__device__ __forceinline__ void load_samples(const K* __restrict__ sequence, const K* __restrict__ ready,
                                             const Sequences& s, const Samples& samples, K* tree) {
  constexpr int kN = kVector<K>;
  if (ready) {
#pragma unroll 8
    for (int i = threadIdx.x * kN; i < samples.count; i += kSampledThreads * kN)
      store_pack(tree + i, load_pack<kN>(ready + i));
    return;
  }
#pragma unroll 4
  for (int i = threadIdx.x; i < samples.count; i += kSampledThreads)
    tree[tree_place(i, samples.count)] = sample_of(sequence, s, samples, i);
}

template <class K, bool kRight>
__global__ void __launch_bounds__(kSampledThreads, 2)
    search_sampled_kernel(const K* __restrict__ sequence, const K* __restrict__ values, const K* __restrict__ ready,
                          const __grid_constant__ Sequences s, Samples samples, int64_t* places) {
  extern __shared__ __align__(16) char memory[];
  K* const tree = reinterpret_cast<K*>(memory);
  load_samples(sequence, ready, s, samples, tree);
  __syncthreads();
  constexpr int64_t kPerBlock = int64_t{kSampledThreads} * kAtOnce;
  for (int64_t first = blockIdx.x * kPerBlock + threadIdx.x; first < s.count; first += gridDim.x * kPerBlock) {
    K key[kAtOnce] = {};
    int place[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      if (first + u * kSampledThreads < s.count) key[u] = core::encode(values[first + u * kSampledThreads], s.code);
    const auto is_before = [](K other, K mine) { return kRight ? other <= mine : other < mine; };
    const auto step_between = [&](int at, int step, K mine) {
      return at + step <= samples.n && is_before(core::encode(sequence[(at + step - 1) * s.stride], s.code), mine)
                 ? step
                 : 0;
    };
#pragma unroll
    for (int& p : place) p = 1;
    for (int level = 1; level < samples.count; level *= 2)
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) place[u] = 2 * place[u] + is_before(tree[place[u]], key[u]);
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      place[u] -= samples.count;
      place[u] += place[u] + 1 == samples.count && is_before(tree[0], key[u]);
      place[u] = min(static_cast<int64_t>(place[u]) * samples.gap, int64_t{samples.n});
    }
    constexpr int kN = kVector<K>;
    const bool packs = samples.packs && samples.gap >= kN;
    for (int step = samples.gap / 2; step >= (packs ? kN : 1); step /= 2)
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) place[u] += step_between(place[u], step, key[u]);
    if (packs)
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        if (place[u] + kN <= samples.n) {
          const Pack<K, kN> some = load_pack<kN>(sequence + place[u]);
          int further = 0;
#pragma unroll
          for (int e = 0; e < kN; ++e) further += is_before(core::encode(some.at[e], s.code), key[u]);
          place[u] += further;
        } else {
          for (int step = kN / 2; step > 0; step /= 2) place[u] += step_between(place[u], step, key[u]);
        }
      }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      if (first + u * kSampledThreads < s.count) places[first + u * kSampledThreads] = place[u];
  }
}

template <class K>
__global__ void search_one_kernel(const K* sequence, K value, const __grid_constant__ Sequences s, int64_t* place) {
  const K* const sequences[] = {sequence};
  const K key[] = {core::encode(value, s.code)};
  int64_t places[1];
  find_places(sequences, s, key, places);
  *place = places[0];
}

}  // namespace tenor::cuda
