// The first few of rows of up to 256 elements: a warp a row finds the key of the last one by halving, and sorts no more
// than those it keeps.
#include "src/core/visit.h"
#include "src/cuda/bitonic.cuh"
#include "src/cuda/launch.h"
#include "src/ops/sort/sort_cuda.h"

namespace tenor::cuda {
namespace {

constexpr int kRows = 8;                    // of a block, a warp each
constexpr int kHeld = kTinyRow / kWarp;     // elements of a lane
constexpr int kKept = kMostOfTiny / kWarp;  // results of a lane

__device__ __forceinline__ int lanes_below(uint32_t lanes) {
  return __popc(lanes & ((1u << (threadIdx.x % kWarp)) - 1));
}

/// A row in a warp's registers: lane l holds elements l, l + 32, ...
struct HeldRow {
  uint32_t keys[kHeld];
  int n;

  __device__ static int index(int e) { return e * kWarp + static_cast<int>(threadIdx.x); }

  template <class K>
  __device__ HeldRow(const K* x, int n_in, core::KeyCode code) : n(n_in) {
#pragma unroll
    for (int e = 0; e < kHeld; ++e) keys[e] = index(e) < n ? core::encode(x[index(e)], code) : 0;
  }

  /// How many elements `accepts` a key of, in the warp.
  template <class F>
  __device__ int count(F&& accepts) const {
    unsigned mine = 0;
#pragma unroll
    for (int e = 0; e < kHeld; ++e) mine += index(e) < n && accepts(keys[e]);
    return static_cast<int>(__reduce_add_sync(~0u, mine));
  }

  /// A key that k elements do not exceed, and not one fewer would for any lower key: found by halving.
  __device__ uint32_t key_of_rank(int k) const {
    uint32_t low = ~0u, high = 0;
#pragma unroll
    for (int e = 0; e < kHeld; ++e)
      if (index(e) < n) low = min(low, keys[e]), high = max(high, keys[e]);
    low = __reduce_min_sync(~0u, low), high = __reduce_max_sync(~0u, high);
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      const int found = count([&](uint32_t key) { return key <= middle; });
      if (found == k) return middle;
      if (found > k)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }

  /// Lists the elements before `last`, and of its equals as many of the first as make k.
  __device__ void list(uint32_t last, int k, uint64_t* kept) const {
    int listed = 0, equals = k - count([&](uint32_t key) { return key < last; });
#pragma unroll
    for (int e = 0; e < kHeld; ++e) {
      const bool same = index(e) < n && keys[e] == last;
      const uint32_t all_same = __ballot_sync(~0u, same);
      const bool keep = index(e) < n && (keys[e] < last || (same && lanes_below(all_same) < equals));
      const uint32_t lanes = __ballot_sync(~0u, keep);
      if (keep) kept[listed + lanes_below(lanes)] = pack<uint32_t>(keys[e], index(e));
      listed += __popc(lanes);
      equals -= min(equals, __popc(all_same));
    }
    __syncwarp();
  }
};

/// Puts a warp's first k entries in order.
__device__ void sort_kept(uint64_t* kept, int k) {
  uint64_t v[kKept];
#pragma unroll
  for (int e = 0; e < kKept; ++e) {
    const int i = threadIdx.x * kKept + e;
    v[e] = i < k ? kept[i] : last_packed<uint32_t>();
  }
  bitonic_sort(v, kMostOfTiny, static_cast<uint64_t*>(nullptr));
#pragma unroll
  for (int e = 0; e < kKept; ++e) kept[threadIdx.x * kKept + e] = v[e];
  __syncwarp();
}

template <class K>
__global__ void __launch_bounds__(kRows* kWarp)
    topk_kernel(const K* __restrict__ x, int64_t rows, int n, int64_t stride, core::KeyCode code, int k, K* values,
                int64_t* indices) {
  __shared__ uint64_t shared[kRows][kMostOfTiny];
  const int64_t row = blockIdx.x * int64_t{kRows} + threadIdx.y;
  if (row >= rows) return;  // whole warps
  uint64_t* kept = shared[threadIdx.y];
  const K* from = x + row * stride;
  const HeldRow held(from, n, code);
  held.list(held.key_of_rank(k), k, kept);
  sort_kept(kept, k);
  for (int i = threadIdx.x; i < k; i += kWarp) {
    const uint32_t index = index_of(kept[i]);
    if (values) values[row * k + i] = from[index];
    if (indices) indices[row * k + i] = index;
  }
}

template <class K>
void launch_topk(const OrderRows& p, int64_t k) {
  const Grid grid{static_cast<unsigned>((p.rows + kRows - 1) / kRows), dim3(kWarp, kRows)};
  launch(p.op, topk_kernel<K>, grid, p.device, static_cast<const K*>(p.x), p.rows, static_cast<int>(p.n), p.stride,
         p.code, static_cast<int>(k), static_cast<K*>(p.values), p.indices);
}

}  // namespace

void topk_tiny(const OrderRows& p, int64_t k) {
  if (p.rows == 0 || k == 0) return;
  const DeviceGuard guard(p.device);
  core::visit_size(p.dtype, [&]<class K>() {
    if constexpr (sizeof(K) <= 4) launch_topk<K>(p, k);
  });
}

}  // namespace tenor::cuda
