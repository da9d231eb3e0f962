// Slots sorted stably by expert, without atomics: counts of chunks of slots, their prefix sums over chunks and experts,
// then each chunk's slots in order. Slots that are not dispatched count as those of an expert behind the last.
#pragma once

#include <cstdint>

#include "src/cuda/block_scan.cuh"

namespace tenor::moe {

/// Tokens of a chunk where there are few; chunks grow where there would be more than so many of them.
inline constexpr int kChunkTokens = 16, kMostChunks = 1024;

struct Slots {
  const int* ids;    ///< [tokens, top_k]
  int* rows;         ///< [tokens, top_k]
  int64_t* offsets;  ///< [experts + 1]
  int* counts;       ///< [chunks, experts + 1]: of each chunk and expert; then their first rows
  int tokens, top_k, experts, chunk_tokens, chunks;
  int* arrivals = nullptr;  ///< set to 0 where there are any

  __device__ __forceinline__ int first(int chunk) const { return chunk * chunk_tokens * top_k; }
  __device__ __forceinline__ int last(int chunk) const { return min((chunk + 1) * chunk_tokens, tokens) * top_k; }
  __device__ __forceinline__ int bucket(int id) const { return id < 0 ? experts : id; }
};

/// counts[b] = slots of the chunk in bucket b; all threads of the block. Integers: their order of adding does not show.
__device__ inline void count_slots(const Slots& s, int chunk, int* counts) {
  for (int b = threadIdx.x; b <= s.experts; b += blockDim.x) counts[b] = 0;
  __syncthreads();
  for (int i = s.first(chunk) + threadIdx.x; i < s.last(chunk); i += blockDim.x)
    atomicAdd(&counts[s.bucket(s.ids[i])], 1);
  __syncthreads();
}

/// The counts become the sums of those before them, which are the experts' offsets; all threads of the block.
__device__ inline void scan_counts(const Slots& s, int* counts, int* warps) {
  int before = 0;
  for (int strip = 0; strip <= s.experts; strip += blockDim.x) {
    const int b = strip + threadIdx.x, count = b <= s.experts ? counts[b] : 0;
    const int sum = cuda::block_scan(count, warps);
    if (b <= s.experts) s.offsets[b] = counts[b] = before + sum - count;
    for (int w = 0; w < static_cast<int>(blockDim.x) / cuda::kWarp; ++w) before += warps[w];
  }
  __syncthreads();
}

/// The rows of a chunk's slots, in order, by one warp; next[b] is the first row of the chunk's slots in bucket b.
__device__ inline void deal_rows(const Slots& s, int chunk, int* next) {
  const int lane = threadIdx.x % cuda::kWarp, last = s.last(chunk);
  for (int at = s.first(chunk); at < last; at += cuda::kWarp) {
    const int i = at + lane;
    const bool own = i < last;
    const int id = own ? s.ids[i] : 0, bucket = own ? s.bucket(id) : s.experts + 1;
    const unsigned alike = __match_any_sync(~0u, bucket);
    const int before = __popc(alike & ((1u << lane) - 1)), first = own ? next[bucket] : 0;
    __syncwarp();
    if (own && before == 0) next[bucket] = first + __popc(alike);
    __syncwarp();
    if (own) s.rows[i] = id < 0 ? -1 - (first + before) : first + before;
  }
}

}  // namespace tenor::moe
