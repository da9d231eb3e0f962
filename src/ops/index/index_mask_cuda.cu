#include "src/core/backend.h"
#include "src/cuda/launch.h"
#include "src/cuda/layout.h"
#include "src/cuda/reduce.cuh"
#include "src/ops/index/index_entries.cuh"
#include "src/ops/index/index_mask_cuda.h"

namespace tenor::index {

namespace {

using cuda::Grid;
using cuda::kWarp;
using cuda::launch;
using cuda::Layout;
using cuda::offsets;

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kEach = 16;  // places a thread
constexpr int kWarpTile = kWarp * kEach, kTile = kWarps * kWarpTile;

constexpr int kAhead = 4;  // elements a thread has under way

/// Elements of one size, some of whose bits make them "not zero": all but the sign of floats. Row-major.
template <class T>
struct Truth {
  const T* data;
  T bits;
  bool packed;  ///< dense bytes that 16-byte loads may read
  Layout<1> layout;
};

/// Bit b of a lane's kEach bits: whether place base + kEach * lane + b is true. The whole warp calls.
template <class T>
__device__ uint32_t truth_bits(const Truth<T>& truth, int64_t base) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if constexpr (sizeof(T) == 1) {
    if (truth.packed && base + kWarpTile <= truth.layout.count) {
      const uint4 bytes = *reinterpret_cast<const uint4*>(truth.data + base + lane * kEach);
      const uint32_t quads[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
      uint32_t bits = 0;
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const uint32_t set = __vcmpne4(quads[q] & (0x01010101u * truth.bits), 0) & 0x08040201u;
        bits |= ((set * 0x01010101u) >> 24) << (4 * q);
      }
      return bits;
    }
  }
  uint32_t mine = 0;  // of places base + 32 * lane and on, for the first half of the lanes
#pragma unroll 4
  for (int r = 0; r < kEach; ++r) {
    const int64_t i = base + r * kWarp + lane;
    int64_t at[1] = {0};
    if (i < truth.layout.count) offsets(truth.layout, i, at);
    const uint32_t word = __ballot_sync(~0u, i < truth.layout.count && (truth.data[at[0]] & truth.bits) != 0);
    if (lane == r) mine = word;
  }
  return (__shfl_sync(~0u, mine, lane / 2) >> (lane % 2 * kEach)) & 0xFFFF;
}

template <class T>
__global__ void __launch_bounds__(kThreads) count_kernel(const __grid_constant__ Truth<T> truth, int64_t* counts) {
  __shared__ int shared[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const uint32_t bits = truth_bits(truth, int64_t{blockIdx.x} * kTile + warp * kWarpTile);
  const int count = cuda::block_reduce<kThreads>(__popc(bits), shared, [](int a, int b) { return a + b; });
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

/// The sum over lower lanes and lower warps, and over all threads.
template <class T, int kBlock>
__device__ T exclusive_sum(T value, T* shared, T& total) {
  constexpr int kBlockWarps = kBlock / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  T sum = value;
#pragma unroll
  for (int d = 1; d < kWarp; d *= 2) {
    const T below = __shfl_up_sync(~0u, sum, d);
    if (lane >= d) sum += below;
  }
  __syncthreads();
  if (lane == kWarp - 1) shared[warp] = sum;
  __syncthreads();
  T before = 0;
  total = 0;
  for (int w = 0; w < kBlockWarps; ++w) {
    before += w < warp ? shared[w] : 0;
    total += shared[w];
  }
  return before + sum - value;
}

constexpr int kScanThreads = 1024;

/// sums[i] = the sum of counts below i, sums[n] of all; in one block, in place or not. Negative counts are 0 and raise
/// the flag, when there is one.
__global__ void __launch_bounds__(kScanThreads)
    running_sums_kernel(const int64_t* counts, int64_t n, int64_t* sums, int op, cuda::ContentError* flag) {
  __shared__ int64_t shared[kScanThreads / kWarp];
  constexpr int kEach = 4;
  int64_t start = 0;
  for (int64_t base = 0; base < n; base += kScanThreads * kEach) {
    int64_t own[kEach], sum = 0, total;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int64_t i = base + threadIdx.x * kEach + k;
      own[k] = i < n ? counts[i] : 0;
      if (own[k] < 0) {
        if (flag) cuda::raise_content_error(flag, op, i, own[k]);
        own[k] = 0;
      }
      sum += own[k];
    }
    int64_t below = start + exclusive_sum<int64_t, kScanThreads>(sum, shared, total);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int64_t i = base + threadIdx.x * kEach + k;
      if (i < n) sums[i] = below;
      below += own[k];
    }
    start += total;
  }
  if (threadIdx.x == 0) sums[n] = start;
}

/// Where a tile's true places are: their offsets from the tile's first place, in order, in shared memory.
struct TilePlaces {
  uint16_t* list;
  int count;
  int64_t start;  ///< true places in front of the tile
};

template <class T>
__device__ TilePlaces tile_places(const Truth<T>& truth, const int64_t* starts) {
  __shared__ uint16_t list[kTile];
  __shared__ int shared[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  TilePlaces out{list, 0, starts[blockIdx.x]};
  if (starts[blockIdx.x + 1] == out.start) return out;  // the same for all threads
  uint32_t bits = truth_bits(truth, int64_t{blockIdx.x} * kTile + warp * kWarpTile);
  int k = exclusive_sum<int, kThreads>(__popc(bits), shared, out.count);
  for (; bits; bits &= bits - 1)
    list[k++] = static_cast<uint16_t>(threadIdx.x * kEach + __ffs(static_cast<int>(bits)) - 1);
  __syncthreads();
  return out;
}

struct PlaceSizes {
  int ndim;
  int64_t size[64];
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    places_kernel(const __grid_constant__ Truth<T> truth, const int64_t* starts,
                  const __grid_constant__ PlaceSizes sizes, int64_t* out, int64_t limit, int64_t row, int64_t step) {
  const TilePlaces tile = tile_places(truth, starts);
  for (int k = static_cast<int>(threadIdx.x); k < tile.count; k += kThreads) {
    int64_t at = int64_t{blockIdx.x} * kTile + tile.list[k];
    if (tile.start + k >= limit) return;
    int64_t* to = out + (tile.start + k) * row;
    for (int d = sizes.ndim; d-- > 0;) {
      const int64_t next = d == 0             ? 0
                           : at <= UINT32_MAX ? static_cast<uint32_t>(at) / static_cast<uint32_t>(sizes.size[d])
                                              : at / sizes.size[d];
      to[d * step] = at - next * sizes.size[d];
      at = next;
    }
  }
}

__device__ __forceinline__ int64_t offset_of(const Layout<1>& layout, int64_t i) {
  if (layout.ndim == 1) return i * layout.stride[0][0];
  int64_t at[1];
  offsets(layout, i, at);
  return at[0];
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    select_masked_kernel(const __grid_constant__ Truth<uint8_t> mask, const int64_t* starts, const T* __restrict__ x,
                         const __grid_constant__ Layout<1> layout, T* __restrict__ out, int64_t limit) {
  const TilePlaces tile = tile_places(mask, starts);
  const int count = static_cast<int>(min(int64_t{tile.count}, limit - tile.start));
  for (int first = static_cast<int>(threadIdx.x); first < count; first += kThreads * kAhead) {
    T values[kAhead];
#pragma unroll
    for (int q = 0; q < kAhead; ++q) {
      const int k = first + q * kThreads;
      if (k < count) values[q] = x[offset_of(layout, int64_t{blockIdx.x} * kTile + tile.list[k])];
    }
#pragma unroll
    for (int q = 0; q < kAhead; ++q)
      if (first + q * kThreads < count) out[tile.start + first + q * kThreads] = values[q];
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    put_masked_kernel(const __grid_constant__ Truth<uint8_t> mask, const int64_t* starts, T* target,
                      const __grid_constant__ Layout<1> layout, const T* source, int64_t step, int64_t limit, int op,
                      cuda::ContentError* flag) {
  const TilePlaces tile = tile_places(mask, starts);
#pragma unroll 4
  for (int k = static_cast<int>(threadIdx.x); k < tile.count; k += kThreads) {
    const int64_t position = int64_t{blockIdx.x} * kTile + tile.list[k];
    if (tile.start + k < limit) {
      target[offset_of(layout, position)] = source[(tile.start + k) * step];
    } else {
      cuda::raise_content_error(flag, op, position, 1);
    }
  }
}

__global__ void expect_count_kernel(const int64_t* total, int64_t expected, int op, cuda::ContentError* flag) {
  if (*total != expected) cuda::raise_content_error(flag, op, expected, *total);
}

__global__ void repeated_places_kernel(const int64_t* sums, int64_t n, int64_t* places, int64_t count) {
  const int64_t j = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (j >= count) return;
  int64_t low = 0, high = n;  // sums[low] <= j < sums[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (sums[middle] <= j ? low : high) = middle;
  }
  places[j] = low;
}

Layout<1> row_major(const char* op, const Tensor& x) { return cuda::collapse(op, x.shape(), {x.strides()}, -1); }

template <class T>
Truth<T> truth_of(const char* op, const Tensor& x) {
  const T all = static_cast<T>(~T(0));
  Truth<T> truth{static_cast<const T*>(x.raw()), is_float(x.dtype()) ? static_cast<T>(all >> 1) : all, false,
                 row_major(op, x)};
  truth.packed = sizeof(T) == 1 && truth.layout.is_dense(0) && reinterpret_cast<uintptr_t>(truth.data) % 16 == 0;
  return truth;
}

unsigned tiles_of(const Tensor& starts) { return static_cast<unsigned>(starts.numel() - 1); }

}  // namespace

Tensor device_true_starts(const char* op, const Tensor& x) {
  const cuda::DeviceGuard guard(x.device());
  const int64_t tiles = (x.numel() + kTile - 1) / kTile;
  const Tensor starts = Tensor::empty({tiles + 1}, int64, x.device());
  auto* counts = starts.data<int64_t>();
  if (tiles > 0)
    core::visit_size(x.dtype(), [&]<class T>() {
      launch(op, count_kernel<T>, Grid{static_cast<unsigned>(tiles), kThreads}, x.device(), truth_of<T>(op, x), counts);
    });
  launch(op, running_sums_kernel, Grid{1, kScanThreads}, x.device(), counts, tiles, counts, 0,
         static_cast<cuda::ContentError*>(nullptr));
  return starts;
}

int64_t device_true_count(const char* op, const Tensor& starts) {
  core::Backend& backend = core::backend(starts.device());
  backend.check_may_wait(op, starts.device());
  int64_t count = 0;
  backend.copy_bytes(&count, kCpu, starts.data<int64_t>() + starts.numel() - 1, starts.device(), sizeof(count));
  return count;
}

void write_places_on_device(const char* op, const Tensor& x, const Tensor& starts, const Tensor& out) {
  if (out.shape(0) == 0 || tiles_of(starts) == 0) return;
  const cuda::DeviceGuard guard(x.device());
  PlaceSizes sizes{x.ndim(), {}};
  for (int d = 0; d < x.ndim(); ++d) sizes.size[d] = x.shape(d);
  core::visit_size(x.dtype(), [&]<class T>() {
    launch(op, places_kernel<T>, Grid{tiles_of(starts), kThreads}, x.device(), truth_of<T>(op, x),
           starts.data<int64_t>(), sizes, out.data<int64_t>(), out.shape(0), out.stride(0), out.stride(1));
  });
}

void expect_count_on_device(Argument at, const Tensor& starts, int64_t expected) {
  const cuda::DeviceGuard guard(starts.device());
  const Entries names = entries_of(at, starts, 0);
  launch(at.op, expect_count_kernel, Grid{1, 1}, starts.device(), starts.data<int64_t>() + starts.numel() - 1, expected,
         names.op, names.flag);
}

void select_masked_on_device(const char* op, const Tensor& x, const Tensor& mask, const Tensor& starts,
                             const Tensor& out) {
  if (out.numel() == 0) return;
  const cuda::DeviceGuard guard(x.device());
  core::visit_size(x.dtype(), [&]<class T>() {
    launch(op, select_masked_kernel<T>, Grid{tiles_of(starts), kThreads}, x.device(), truth_of<uint8_t>(op, mask),
           starts.data<int64_t>(), static_cast<const T*>(x.raw()), row_major(op, x), static_cast<T*>(out.raw()),
           out.numel());
  });
}

void put_masked_on_device(Argument at, const Tensor& target, const Tensor& mask, const Tensor& starts,
                          const Tensor& source, bool repeat) {
  if (target.numel() == 0) return;
  const cuda::DeviceGuard guard(target.device());
  const Entries names = entries_of(at, mask, 0);
  const Tensor dense = source.contiguous();
  const int64_t step = repeat ? 0 : 1, limit = repeat ? INT64_MAX : dense.numel();
  core::visit_size(target.dtype(), [&]<class T>() {
    launch(at.op, put_masked_kernel<T>, Grid{tiles_of(starts), kThreads}, target.device(),
           truth_of<uint8_t>(at.op, mask), starts.data<int64_t>(), static_cast<T*>(target.raw()),
           row_major(at.op, target), static_cast<const T*>(dense.raw()), step, limit, names.op, names.flag);
  });
}

Tensor device_running_sums(Argument at, const Tensor& counts) {
  const cuda::DeviceGuard guard(counts.device());
  const Entries names = entries_of(at, counts, 0);
  const Tensor sums = Tensor::empty({counts.numel() + 1}, int64, counts.device());
  launch(at.op, running_sums_kernel, Grid{1, kScanThreads}, counts.device(), counts.data<int64_t>(), counts.numel(),
         sums.data<int64_t>(), names.op, names.flag);
  return sums;
}

void write_repeated_places_on_device(const char* op, const Tensor& sums, const Tensor& places) {
  if (places.numel() == 0) return;
  const cuda::DeviceGuard guard(places.device());
  launch(op, repeated_places_kernel, Grid{static_cast<unsigned>((places.numel() + kThreads - 1) / kThreads), kThreads},
         places.device(), sums.data<int64_t>(), sums.numel() - 1, places.data<int64_t>(), places.numel());
}

}  // namespace tenor::index
