// A stable radix sort of the values that the threads of a block hold, least significant digit first (Knuth, The Art of
// Computer Programming 3, 5.2.5). Ranks come from votes of a warp (Adinets and Merrill, Onesweep, 2022).
#pragma once

#include "src/cuda/reduce.cuh"

namespace tenor::cuda {

inline constexpr int kRadixBits = 8, kRadixBins = 1 << kRadixBits;

/// Shared memory of a block that sorts Threads * Each values. `items` holds the result.
template <class P, int Threads, int Each>
struct RadixSpace {
  P items[Threads * Each];
  alignas(16) uint32_t counts[Threads / kWarp][kRadixBins];
  uint32_t sums[kWarp];
};

/// The lanes of the warp that hold the same digit.
__device__ __forceinline__ unsigned lanes_alike(uint32_t digit) {
  unsigned alike = ~0u;
#pragma unroll
  for (int b = 0; b < kRadixBits; ++b) {
    const bool set = digit >> b & 1;
    const unsigned vote = __ballot_sync(~0u, set);
    alike &= set ? vote : ~vote;
  }
  return alike;
}

/// The place of value e of this thread among the block's: a warp holds Each times 32 neighbours.
template <int Each>
__device__ __forceinline__ int radix_place(int e) {
  return static_cast<int>(threadIdx.x) / kWarp * (kWarp * Each) + e * kWarp + static_cast<int>(threadIdx.x) % kWarp;
}

/// The sum of `value` over the threads before this one.
template <int Threads>
__device__ __forceinline__ uint32_t block_starts(uint32_t value, uint32_t* warps) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  uint32_t sum = value;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const uint32_t before = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += before;
  }
  if constexpr (Threads > kWarp) {
    if (lane == kWarp - 1) warps[warp] = sum;
    __syncthreads();
    sum += warp_reduce(lane < warp ? warps[lane] : 0u, [](unsigned a, unsigned b) { return a + b; });
  }
  return sum - value;
}

/// Bits [shift, ..) of a value whose lower half is never a digit's.
template <class P>
__device__ __forceinline__ uint32_t digit_of(P value, int shift, uint32_t mask) {
  if constexpr (sizeof(P) == 8)
    return static_cast<uint32_t>(value >> 32) >> (shift - 32) & mask;
  else
    return value >> shift & mask;
}

/// Turns the counts of each warp into where its values of a digit begin: digit by digit, and there warp by warp.
template <class P, int Threads, int Each>
__device__ __forceinline__ void radix_starts(RadixSpace<P, Threads, Each>& space) {
  constexpr int kDigits = Threads < kRadixBins ? kRadixBins / Threads : 1, kWarps = Threads / kWarp;
  const int first = static_cast<int>(threadIdx.x) * kDigits;
  uint32_t sum = 0;
  if (first < kRadixBins)
#pragma unroll
    for (int d = 0; d < kDigits; ++d)
      for (int w = 0; w < kWarps; ++w) sum += space.counts[w][first + d];
  uint32_t start = block_starts<Threads>(sum, space.sums);
  if (first < kRadixBins)
#pragma unroll
    for (int d = 0; d < kDigits; ++d)
      for (int w = 0; w < kWarps; ++w) {
        const uint32_t count = space.counts[w][first + d];
        space.counts[w][first + d] = start;
        start += count;
      }
}

/// A value's rank among those of its warp and digit, until it is placed: 16 bits. A 64-bit value carries it in its bits
/// 16 to 31, which saves registers; two of the others' share one.
template <class P, int Each>
struct RadixRanks {
  uint32_t pairs[sizeof(P) == 8 ? 1 : (Each + 1) / 2];

  __device__ __forceinline__ void set(P (&v)[Each], int e, uint32_t rank) {
    if constexpr (sizeof(P) == 8)
      v[e] = v[e] >> 32 << 32 | __byte_perm(static_cast<uint32_t>(v[e]), rank, 0x5410);
    else
      pairs[e / 2] = e % 2 == 0 ? rank : __byte_perm(pairs[e / 2], rank, 0x5410);
  }
  __device__ __forceinline__ uint32_t get(const P (&v)[Each], int e) const {
    if constexpr (sizeof(P) == 8)
      return static_cast<uint32_t>(v[e]) >> 16;
    else
      return e % 2 == 0 ? pairs[e / 2] & 0xFFFF : pairs[e / 2] >> 16;
  }
};

/// Sorts by bits [begin, end) of the values, which lie in their upper half; value e of a thread stands at
/// radix_place(e) first. Every thread of the block calls; the result lies in space.items, and the block has met. Of
/// 64-bit values bits 16 to 31 are lost.
template <class P, int Threads, int Each>
__device__ __forceinline__ void block_radix_sort(P (&v)[Each], int begin, int end,
                                                 RadixSpace<P, Threads, Each>& space) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  uint32_t* const mine = space.counts[threadIdx.x / kWarp];
  const unsigned earlier = (1u << lane) - 1;
  if (begin >= end) {
#pragma unroll
    for (int e = 0; e < Each; ++e) space.items[radix_place<Each>(e)] = v[e];
    __syncthreads();
    return;
  }
  const int passes = (end - begin + kRadixBits - 1) / kRadixBits, bits = (end - begin + passes - 1) / passes;
  for (int shift = begin; shift < end; shift += bits) {
    const uint32_t mask = (1u << min(bits, end - shift)) - 1;
    RadixRanks<P, Each> ranks;
#pragma unroll
    for (int b = 0; b < kRadixBins; b += 4 * kWarp)
      *reinterpret_cast<uint4*>(mine + b + 4 * lane) = make_uint4(0, 0, 0, 0);
    __syncwarp();
#pragma unroll
    for (int e = 0; e < Each; ++e) {
      const uint32_t digit = digit_of(v[e], shift, mask);
      const unsigned alike = lanes_alike(digit);
      const int leader = 31 - __clz(static_cast<int>(alike));
      const uint32_t before = mine[digit];
      __syncwarp();
      if (lane == leader) mine[digit] = before + static_cast<uint32_t>(__popc(alike));
      __syncwarp();
      ranks.set(v, e, before + static_cast<uint32_t>(__popc(alike & earlier)));
    }
    __syncthreads();
    radix_starts(space);
    __syncthreads();
#pragma unroll
    for (int e = 0; e < Each; ++e) space.items[mine[digit_of(v[e], shift, mask)] + ranks.get(v, e)] = v[e];
    __syncthreads();
    if (shift + bits >= end) break;
#pragma unroll
    for (int e = 0; e < Each; ++e) v[e] = space.items[radix_place<Each>(e)];
  }
}

}  // namespace tenor::cuda
