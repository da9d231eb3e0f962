// Rows of any length, all sorted at once by the device's radix sort: an element is one 64-bit value, its key above its
// row and its place in the row. Sorted by the key first and then, as the sort is stable, by the row. Elements of 64
// bits are pairs.
#include <cub/device/device_radix_sort.cuh>

#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/ops/sort/sort_cuda.h"

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
struct Buffers {
  Tensor memory[2];
  cub::DoubleBuffer<uint64_t> both;
  Buffers(int64_t count, Device device)
      : memory{Tensor::empty({count}, uint64, device), Tensor::empty({count}, uint64, device)},
        both(memory[0].data<uint64_t>(), memory[1].data<uint64_t>()) {}
};

/// Calls a cub function twice: for the size of its workspace, and with it.
template <class F>
void with_workspace(const char* op, Device device, F&& fn) {
  size_t bytes = 0;
  check(fn(nullptr, bytes), op);
  const Tensor workspace = Tensor::empty({static_cast<int64_t>(std::max<size_t>(bytes, 1))}, uint8, device);
  check(fn(workspace.raw(), bytes), op);
}

/// Rows along y.
template <class K>
__global__ void pack_kernel(const K* __restrict__ x, Batch batch, core::KeyCode code, uint64_t* keys,
                            uint64_t* places) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t row = blockIdx.y; row < batch.rows; row += gridDim.y) {
    for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < batch.n; i += step) {
      const uint64_t key = core::encode(x[row * batch.stride + i], code);
      const uint64_t place = static_cast<uint64_t>(row) << batch.place_bits | static_cast<uint64_t>(i);
      if (places) {
        keys[row * batch.n + i] = key;
        places[row * batch.n + i] = place;
      } else {
        keys[row * batch.n + i] = key << 32 | place;
      }
    }
  }
}

/// An element's bits from its key, without a look at the element where the key tells them all: -0 and NaN share theirs.
template <class K>
__device__ K element_of(const K* element, K key, core::KeyCode code) {
  const K zero = core::encode(K(0), code);
  if (code.kind == core::KeyKind::kFloat && (key == zero || key == core::nan_key<K>(code))) return *element;
  return core::decode(key, code);
}

/// The first k of every row. Sorted are keys above places, or places alone.
template <class K>
__global__ void unpack_kernel(const K* __restrict__ x, Batch batch, int64_t k, core::KeyCode code, bool with_keys,
                              const uint64_t* __restrict__ sorted, K* values, int64_t* indices) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  const uint64_t mask = (uint64_t{1} << batch.place_bits) - 1;
  for (int64_t row = blockIdx.y; row < batch.rows; row += gridDim.y) {
    const K* from = x + row * batch.stride;
    for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < k; i += step) {
      const uint64_t packed = sorted[row * batch.n + i];
      const int64_t at = static_cast<int64_t>(packed & mask);
      if (values)
        values[row * k + i] = with_keys ? element_of(from + at, static_cast<K>(packed >> 32), code) : from[at];
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

/// Sorts keys-only values by bits [begin, end).
void sort_bits(const char* op, Device device, Buffers& values, int64_t count, int begin, int end) {
  if (end == begin) return;
  with_workspace(op, device, [&](void* workspace, size_t& bytes) {
    return cub::DeviceRadixSort::SortKeys(workspace, bytes, values.both, count, begin, end,
                                          current_stream(device).handle);
  });
}
void sort_pairs(const char* op, Device device, Buffers& keys, Buffers& values, int64_t count, int begin, int end) {
  if (end == begin) return;
  with_workspace(op, device, [&](void* workspace, size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs(workspace, bytes, keys.both, values.both, count, begin, end,
                                           current_stream(device).handle);
  });
}

template <class K>
void sort_batch(const OrderRows& p, const Batch& batch, int64_t k) {
  const K* x = static_cast<const K*>(p.x) + batch.first * p.stride;
  constexpr int kKeyBits = 8 * sizeof(K);
  const bool pairs = sizeof(K) == 8 || batch.place_bits + batch.row_bits > 32;
  Buffers keys(batch.count(), p.device), places(pairs ? batch.count() : 0, p.device);
  launch(p.op, pack_kernel<K>, grid_for(batch.n, batch.rows, p.device), p.device, x, batch, p.code, keys.both.Current(),
         pairs ? places.both.Current() : nullptr);
  if (pairs) {
    sort_pairs(p.op, p.device, keys, places, batch.count(), 0, kKeyBits);
    sort_pairs(p.op, p.device, places, keys, batch.count(), batch.place_bits, batch.place_bits + batch.row_bits);
  } else {
    sort_bits(p.op, p.device, keys, batch.count(), 32, 32 + kKeyBits);
    sort_bits(p.op, p.device, keys, batch.count(), batch.place_bits, batch.place_bits + batch.row_bits);
  }
  launch(p.op, unpack_kernel<K>, grid_for(k, batch.rows, p.device), p.device, x, batch, k, p.code, !pairs,
         (pairs ? places : keys).both.Current(), p.values ? static_cast<K*>(p.values) + batch.first * k : nullptr,
         p.indices ? p.indices + batch.first * k : nullptr);
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
