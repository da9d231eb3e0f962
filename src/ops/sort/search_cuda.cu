// searchsorted and bincount on CUDA.
#include <bit>

#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/ops/sort/sort_cuda.h"

namespace tenor::cuda {
namespace {

constexpr int kThreads = 256;

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

constexpr int kAtOnce = 4;  // values of a thread

template <class K>
__global__ void __launch_bounds__(kThreads) search_kernel(const K* __restrict__ sequences, const K* __restrict__ values,
                                                          const __grid_constant__ Sequences s, int64_t* places) {
  const int64_t first = blockIdx.x * int64_t{kThreads * kAtOnce} + threadIdx.x;
  const K* sequence[kAtOnce];
  K key[kAtOnce] = {};
  int64_t place[kAtOnce];
#pragma unroll
  for (int u = 0; u < kAtOnce; ++u) {
    const int64_t i = first + u * kThreads;
    sequence[u] = s.per_row == s.count || i >= s.count ? sequences : sequences + i / s.per_row * s.n;
    if (i < s.count) key[u] = core::encode(values[i], s.code);
  }
  find_places(sequence, s, key, place);
#pragma unroll
  for (int u = 0; u < kAtOnce; ++u)
    if (first + u * kThreads < s.count) places[first + u * kThreads] = place[u];
}
template <class K>
__global__ void search_one_kernel(const K* sequence, K value, const __grid_constant__ Sequences s, int64_t* place) {
  const K* const sequences[] = {sequence};
  const K key[] = {core::encode(value, s.code)};
  int64_t places[1];
  find_places(sequences, s, key, places);
  *place = places[0];
}

/// What bincount must know of x before it has a result.
struct Extremes {
  long long most;                 ///< the largest element
  unsigned long long refused_at;  ///< the first that is negative, or beyond int64
};

__global__ void begin_extremes(Extremes* e) { *e = {-1, ~0ull}; }

template <class T>
__global__ void extremes_kernel(const T* __restrict__ x, int64_t count, Extremes* e) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  long long most = -1;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count; i += step) {
    const long long value = static_cast<long long>(x[i]);
    most = max(most, value);
    if (value < 0) atomicMin(&e->refused_at, static_cast<unsigned long long>(i));
  }
  for (int mask = 16; mask > 0; mask /= 2) most = max(most, __shfl_xor_sync(~0u, most, mask));
  if (threadIdx.x % 32 == 0 && most >= 0) atomicMax(&e->most, most);
}

__global__ void zero_kernel(int64_t* out, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count; i += step) out[i] = 0;
}

/// Bins that a block counts in its own memory first.
constexpr int64_t kOwnBins = 8192;

/// Integer sums: the same in any order.
template <class T>
__global__ void count_kernel(const T* __restrict__ x, int64_t count, int64_t bins, unsigned long long* counts) {
  extern __shared__ uint32_t own[];
  const bool shares = bins <= kOwnBins;
  for (int64_t b = threadIdx.x; shares && b < bins; b += kThreads) own[b] = 0;
  __syncthreads();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count; i += step) {
    if (shares)
      atomicAdd(&own[x[i]], 1u);
    else
      atomicAdd(&counts[x[i]], 1ull);
  }
  __syncthreads();
  for (int64_t b = threadIdx.x; shares && b < bins; b += kThreads)
    if (own[b] > 0) atomicAdd(&counts[b], static_cast<unsigned long long>(own[b]));
}

/// A thread a bin: the weights of its elements, whose places `order` holds one after another, in index order.
template <class T>
__global__ void weigh_kernel(const T* __restrict__ x, const int64_t* __restrict__ order,
                             const double* __restrict__ weights, int64_t count, int64_t bins, double* sums) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t bin = blockIdx.x * int64_t{kThreads} + threadIdx.x; bin < bins; bin += step) {
    int64_t low = 0;
    for (int64_t left = count; left > 0;) {
      const int64_t half = left / 2;
      const bool after = static_cast<int64_t>(x[order[low + half]]) < bin;
      low = after ? low + half + 1 : low;
      left = after ? left - half - 1 : half;
    }
    double sum = 0;
    for (; low < count && static_cast<int64_t>(x[order[low]]) == bin; ++low) sum += weights[order[low]];
    sums[bin] = sum;
  }
}

int64_t first_step(int64_t n) { return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n))); }

Grid grid_for(int64_t count, Device device) { return {blocks_for(count, kThreads * 4, device), kThreads}; }

}  // namespace

void search_rows(const Tensor& sequences, const Tensor& values, bool right, const Tensor& places) {
  const bool one = sequences.ndim() == 1;
  const Sequences s{sequences.shape(-1),
                    one ? sequences.stride(0) : 1,
                    one ? std::max<int64_t>(values.numel(), 1) : values.shape(-1),
                    values.numel(),
                    core::key_code(sequences.dtype()),
                    right,
                    first_step(sequences.shape(-1))};
  if (s.count == 0) return;
  const DeviceGuard guard(places.device());
  constexpr int64_t kPerBlock = int64_t{kThreads} * kAtOnce;
  const Grid grid{dim3(static_cast<unsigned>((s.count + kPerBlock - 1) / kPerBlock)), dim3(kThreads)};
  core::visit_size(sequences.dtype(), [&]<class K>() {
    launch("searchsorted", search_kernel<K>, grid, places.device(), sequences.data<K>(), values.data<K>(), s,
           places.data<int64_t>());
  });
}

void search_one(const Tensor& sequence, const Tensor& value, bool right, const Tensor& place) {
  const Sequences s{sequence.shape(0),
                    sequence.stride(0),
                    1,
                    1,
                    core::key_code(sequence.dtype()),
                    right,
                    first_step(sequence.shape(0))};
  const DeviceGuard guard(place.device());
  core::visit_size(sequence.dtype(), [&]<class K>() {
    launch("searchsorted", search_one_kernel<K>, Grid{1, 1}, place.device(), sequence.data<K>(), *value.data<K>(), s,
           place.data<int64_t>());
  });
}

int64_t largest_count(const Tensor& x, int64_t* refused_at) {
  backend().check_may_wait("bincount", x.device());
  const Tensor extremes = Tensor::empty({2}, int64, x.device());
  const DeviceGuard guard(x.device());
  launch("bincount", begin_extremes, Grid{1, 1}, x.device(), extremes.data<Extremes>());
  if (x.numel() > 0)
    core::visit_integer(x.dtype(), [&]<class T>() {
      launch("bincount", extremes_kernel<T>, grid_for(x.numel(), x.device()), x.device(), x.data<T>(), x.numel(),
             extremes.data<Extremes>());
    });
  const Tensor host = extremes.to(kCpu);
  *refused_at = host.data<int64_t>()[1];
  return host.data<int64_t>()[0];
}

void count_bins(const Tensor& x, const Tensor& counts) {
  const int64_t bins = counts.numel();
  if (bins == 0) return;
  const DeviceGuard guard(x.device());
  launch("bincount", zero_kernel, grid_for(bins, x.device()), x.device(), counts.data<int64_t>(), bins);
  if (x.numel() == 0) return;
  Grid grid = grid_for(x.numel(), x.device());
  grid.shared = bins <= kOwnBins ? static_cast<size_t>(bins) * sizeof(uint32_t) : 0;
  core::visit_integer(x.dtype(), [&]<class T>() {
    launch("bincount", count_kernel<T>, grid, x.device(), x.data<T>(), x.numel(), bins,
           counts.data<unsigned long long>());
  });
}

void weigh_bins(const Tensor& x, const Tensor& order, const Tensor& weights, const Tensor& sums) {
  if (sums.numel() == 0) return;
  const DeviceGuard guard(x.device());
  core::visit_integer(x.dtype(), [&]<class T>() {
    launch("bincount", weigh_kernel<T>, grid_for(sums.numel() * 4, x.device()), x.device(), x.data<T>(),
           order.data<int64_t>(), weights.data<double>(), x.numel(), sums.numel(), sums.data<double>());
  });
}

}  // namespace tenor::cuda
