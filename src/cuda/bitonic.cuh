// A bitonic sorting network (Batcher 1968) over the registers of a warp or a block.
#pragma once

#include "src/cuda/packed_key.cuh"
#include "src/cuda/reduce.cuh"

namespace tenor::cuda {

template <class P>
__device__ __forceinline__ void order_pair(P& a, P& b, bool rising) {
  if ((b < a) == rising) {
    const P t = a;
    a = b;
    b = t;
  }
}

/// The steps of one merge that stay within a thread: element i of all is v[i % E] of thread i / E.
template <int E, int From, class P>
__device__ __forceinline__ void merge_within(P (&v)[E], bool rising) {
#pragma unroll
  for (int stride = From; stride > 0; stride /= 2)
#pragma unroll
    for (int e = 0; e < E; ++e)
      if ((e & stride) == 0) order_pair(v[e], v[e | stride], rising);
}

/// v of the thread whose number differs in the bits of `mask`, through `exchange` where that is another warp's.
template <int E, class P>
__device__ __forceinline__ void partners(const P (&v)[E], P (&other)[E], int thread, int mask, P* exchange) {
  if (mask < kWarp) {
#pragma unroll
    for (int e = 0; e < E; ++e) other[e] = shuffle_xor(v[e], mask);
    return;
  }
  const int threads = blockDim.x;
  __syncthreads();
#pragma unroll
  for (int e = 0; e < E; ++e) exchange[e * threads + thread] = v[e];
  __syncthreads();
#pragma unroll
  for (int e = 0; e < E; ++e) other[e] = exchange[e * threads + (thread ^ mask)];
}

/// Sorts the first `size` (a power of two, at least E) of the E * blockDim.x elements that the threads along x hold;
/// the rest is padding and stays where it is. `exchange` has room for all of them when they are more than a warp's;
/// then every thread of the block calls.
template <int E, class P>
__device__ void bitonic_sort(P (&v)[E], int size, P* exchange) {
  const int thread = threadIdx.x;
#pragma unroll
  for (int length = 2; length <= E; length *= 2)
#pragma unroll
    for (int stride = length / 2; stride > 0; stride /= 2)
#pragma unroll
      for (int e = 0; e < E; ++e)
        if ((e & stride) == 0) order_pair(v[e], v[e | stride], length == E ? (thread & 1) == 0 : (e & length) == 0);
  for (int length = 2 * E; length <= size; length *= 2) {
    const bool rising = ((thread * E) & length) == 0;
    for (int mask = length / (2 * E); mask > 0; mask /= 2) {
      P other[E];
      partners(v, other, thread, mask, exchange);
      const bool smaller = rising == ((thread & mask) == 0);
#pragma unroll
      for (int e = 0; e < E; ++e)
        if ((other[e] < v[e]) == smaller) v[e] = other[e];
    }
    merge_within<E, E / 2>(v, rising);
  }
}

}  // namespace tenor::cuda
