// Reads at places that an index names, in fused kernels: a bad entry reads as 0 and raises the flag of its stream, as
// in the gather that has a kernel of its own.
#pragma once

#include "src/cuda/content_error.cuh"
#include "src/cuda/fusion/prelude/packs.cuh"

namespace tenor::fused {

/// What a gather is told: five of the kernel's scalars.
struct GatherOf {
  int64_t size;    ///< places
  int64_t stride;  ///< elements from one place to the next
  int64_t first;   ///< position, in the whole index, of the entry that the kernel's array starts with
  int op;          ///< of the flag
  cuda::ContentError* flag;
};
__device__ __forceinline__ GatherOf gather_of(const uint64_t* scalar) {
  return {static_cast<int64_t>(scalar[0]), static_cast<int64_t>(scalar[1]), static_cast<int64_t>(scalar[2]),
          static_cast<int>(scalar[3]), reinterpret_cast<cuda::ContentError*>(scalar[4])};
}

/// The place that an entry names, or -1 after raising the flag. `at`: elements from the array's first entry.
template <class S>
__device__ __forceinline__ int64_t place_of(const GatherOf& g, S entry, int64_t at) {
  const int64_t value = static_cast<int64_t>(entry);
  const int64_t place = value < 0 && !std::is_same_v<S, uint64_t> ? value + g.size : value;
  if (place >= 0 && place < g.size) return place;
  cuda::raise_content_error(g.flag, g.op, g.first + at, value);
  return -1;
}

/// V neighbours of the place that one entry names (a pack may have it in all places): those from p on, moved there,
/// aligned as load() wants them.
template <class T, int V, class S, int N>
__device__ __forceinline__ Pack<T, V> gather(const T* p, const GatherOf& g, const Pack<S, N>& entry, int64_t at) {
  const int64_t place = place_of(g, entry.at[0], at);
  if (place >= 0) return load<T, V>(p + place * g.stride);
  return Pack<T, V>{};
}
/// V elements, each of the place that its entry names (or all of one entry's), `step` apart; entries are `entry_step`
/// apart.
template <class T, int V, class S, int N>
__device__ __forceinline__ Pack<T, V> gather_apart(const T* p, int64_t step, const GatherOf& g,
                                                   const Pack<S, N>& entries, int64_t at, int64_t entry_step) {
  Pack<T, V> x{};
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const int64_t place = place_of(g, entries.at[N == 1 ? 0 : v], at + (N == 1 ? 0 : v * entry_step));
    if (place >= 0) x.at[v] = p[v * step + place * g.stride];
  }
  return x;
}

}  // namespace tenor::fused
