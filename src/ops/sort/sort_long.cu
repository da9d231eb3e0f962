// Rows of any length, all sorted at once by the device's radix sort: an element is one 64-bit value, its key above its
// row and its place in the row. Sorted by the key first and then, as the sort is stable, by the row. Elements of 64
// bits are pairs of a key and a place of 32 bits; those of rows of 2^32 elements and more, of 64 bits.
#include <cub/device/device_radix_sort.cuh>

#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/ops/sort/sort_cuda.h"
#include "src/ops/sort/sort_wanted.cuh"

namespace tenor::cuda {
namespace {

constexpr int kThreads = 256;

int bit_count(int64_t values) {
  int bits = 0;
  while (bits < 63 && (int64_t{1} << bits) < values) ++bits;
  return bits;
}

/// Rows that are sorted together: how their places are numbered.
struct Batch {
  int64_t first, rows, n, stride;
  int place_bits, row_bits;
  int64_t count() const { return rows * n; }
};

/// Two buffers that the sort goes back and forth between.
template <class T>
struct Buffers {
  Tensor memory[2];
  cub::DoubleBuffer<T> both;
  Buffers(int64_t count, Device device)
      : memory{Tensor::empty({count * static_cast<int64_t>(sizeof(T))}, uint8, device),
               Tensor::empty({count * static_cast<int64_t>(sizeof(T))}, uint8, device)},
        both(reinterpret_cast<T*>(memory[0].raw()), reinterpret_cast<T*>(memory[1].raw())) {}
};

/// Calls a cub function twice: for the size of its workspace, and with it.
template <class F>
void with_workspace(const char* op, Device device, F&& fn) {
  size_t bytes = 0;
  check(fn(nullptr, bytes), op);
  const Tensor workspace = Tensor::empty({static_cast<int64_t>(std::max<size_t>(bytes, 1))}, uint8, device);
  check(fn(workspace.raw(), bytes), op);
}

/// Rows along y: keys above places, or keys and places apart.
template <class K, class P>
__global__ void pack_kernel(const K* __restrict__ x, Batch batch, core::KeyCode code, uint64_t* keys, P* places) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t row = blockIdx.y; row < batch.rows; row += gridDim.y) {
    for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < batch.n; i += step) {
      const uint64_t key = core::encode(x[row * batch.stride + i], code);
      const uint64_t place = static_cast<uint64_t>(row) << batch.place_bits | static_cast<uint64_t>(i);
      keys[row * batch.n + i] = places ? key : key << 32 | place;
      if (places) places[row * batch.n + i] = static_cast<P>(place);
    }
  }
}

/// Elements in order: keys above places, or places, with keys where those are in the same order.
template <class P>
struct SortedPlaces {
  const uint64_t* keys;
  const P* places;
};

/// The first k of every row.
template <class K, class P>
__global__ void unpack_kernel(const K* __restrict__ x, Batch batch, int64_t k, core::KeyCode code,
                              SortedPlaces<P> sorted, K* values, int64_t* indices) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  const uint64_t mask = (uint64_t{1} << batch.place_bits) - 1;
  for (int64_t row = blockIdx.y; row < batch.rows; row += gridDim.y) {
    const K* from = x + row * batch.stride;
    for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < k; i += step) {
      const uint64_t key = sorted.keys ? sorted.keys[row * batch.n + i] : 0,
                     place = sorted.places ? sorted.places[row * batch.n + i] : key;
      const int64_t at = static_cast<int64_t>(place & mask);
      if (values)
        values[row * k + i] =
            sorted.keys ? element_of(from + at, static_cast<K>(sorted.places ? key : key >> 32), code) : from[at];
      if (indices) indices[row * k + i] = at;
    }
  }
}

/// Threads for `count` places of each of `rows` rows.
Grid grid_for(int64_t count, int64_t rows, Device device) {
  const unsigned down = static_cast<unsigned>(std::min<int64_t>(rows, 65535));
  const int waves = static_cast<int>(std::max<int64_t>(1, 32 * multiprocessors(device) / down));
  return {dim3(static_cast<unsigned>(std::clamp<int64_t>((count + 4 * kThreads - 1) / (4 * kThreads), 1, waves)), down),
          kThreads};
}

template <class T>
void sort_bits(const char* op, Device device, Buffers<T>& values, int64_t count, int begin, int end) {
  if (end == begin) return;
  with_workspace(op, device, [&](void* workspace, size_t& bytes) {
    return cub::DeviceRadixSort::SortKeys(workspace, bytes, values.both, count, begin, end,
                                          current_stream(device).handle);
  });
}

/// Where a batch's results go.
template <class K>
struct Results {
  int64_t k;
  K* values;
  int64_t* indices;
};

/// Keys above places in one value.
template <class K>
void sort_values(const OrderRows& p, const K* x, const Batch& batch, const Results<K>& to) {
  Buffers<uint64_t> values(batch.count(), p.device);
  launch(p.op, pack_kernel<K, uint32_t>, grid_for(batch.n, batch.rows, p.device), p.device, x, batch, p.code,
         values.both.Current(), nullptr);
  sort_bits(p.op, p.device, values, batch.count(), 32, 32 + 8 * static_cast<int>(sizeof(K)));
  sort_bits(p.op, p.device, values, batch.count(), batch.place_bits, batch.place_bits + batch.row_bits);
  launch(p.op, unpack_kernel<K, uint32_t>, grid_for(to.k, batch.rows, p.device), p.device, x, batch, to.k, p.code,
         SortedPlaces<uint32_t>{values.both.Current(), nullptr}, to.values, to.indices);
}

/// Keys and places apart. Sorted by rows afterwards are the places alone.
template <class K, class P>
void sort_pairs(const OrderRows& p, const K* x, const Batch& batch, const Results<K>& to) {
  Buffers<uint64_t> keys(batch.count(), p.device);
  Buffers<P> places(batch.count(), p.device);
  launch(p.op, pack_kernel<K, P>, grid_for(batch.n, batch.rows, p.device), p.device, x, batch, p.code,
         keys.both.Current(), places.both.Current());
  with_workspace(p.op, p.device, [&](void* workspace, size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs(workspace, bytes, keys.both, places.both, batch.count(), 0,
                                           8 * static_cast<int>(sizeof(K)), current_stream(p.device).handle);
  });
  sort_bits(p.op, p.device, places, batch.count(), batch.place_bits, batch.place_bits + batch.row_bits);
  launch(p.op, unpack_kernel<K, P>, grid_for(to.k, batch.rows, p.device), p.device, x, batch, to.k, p.code,
         SortedPlaces<P>{batch.row_bits == 0 ? keys.both.Current() : nullptr, places.both.Current()}, to.values,
         to.indices);
}

template <class K>
void sort_batch(const OrderRows& p, const Batch& batch, int64_t k) {
  const K* x = static_cast<const K*>(p.x) + batch.first * p.stride;
  const Results<K> to{k, p.values ? static_cast<K*>(p.values) + batch.first * k : nullptr,
                      p.indices ? p.indices + batch.first * k : nullptr};
  if (batch.place_bits + batch.row_bits > 32) return sort_pairs<K, uint64_t>(p, x, batch, to);
  if constexpr (sizeof(K) == 8)
    sort_pairs<K, uint32_t>(p, x, batch, to);
  else
    sort_values(p, x, batch, to);
}

}  // namespace

void sort_long(const OrderRows& p, int64_t k) {
  if (p.rows == 0 || p.n == 0 || k == 0) return;
  const DeviceGuard guard(p.device);
  const int place_bits = bit_count(p.n);
  // As many rows at once as leave the place and the row in 32 bits.
  const int64_t together = std::max<int64_t>(1, int64_t{1} << std::max(0, 32 - place_bits));
  for (int64_t first = 0; first < p.rows; first += together) {
    const int64_t rows = std::min(together, p.rows - first);
    core::visit_size(p.dtype, [&]<class K>() {
      sort_batch<K>(p, {first, rows, p.n, p.stride, place_bits, bit_count(rows)}, k);
    });
  }
}

}  // namespace tenor::cuda
