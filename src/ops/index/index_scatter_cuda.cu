// Writing at named places on CUDA: where positions meet at one place the last one wins. Either each place keeps the
// greatest position that names it (an integer maximum, whatever the order of arrival), or, when the table is far larger
// than the index, the entries are sorted by place.
#include "src/cuda/layout.h"
#include "src/cuda/rows.cuh"
#include "src/ops/index/index_columns_cuda.h"
#include "src/ops/index/index_entries.cuh"
#include "src/ops/index/index_few_rows.cuh"
#include "src/ops/index/index_lines_cuda.h"
#include "src/ops/index/index_sorted.cuh"

namespace tenor::index {

namespace {

using cuda::Grid;
using cuda::launch;
using cuda::Layout;
using cuda::offsets;

constexpr int kThreads = 256;

/// For each key the greatest position that names it, plus 1; 32 or 64 bits.
struct Winners {
  void* last;
  bool wide;
  bool by_place;  ///< the key is the place, not the element offset of the row

  __device__ void claim(int64_t key, int64_t position) const {
    if (wide) {
      atomicMax(static_cast<unsigned long long*>(last) + key, static_cast<unsigned long long>(position) + 1);
    } else {
      atomicMax(static_cast<uint32_t*>(last) + key, static_cast<uint32_t>(position) + 1);
    }
  }
  __device__ bool won(int64_t key, int64_t position) const {
    if (wide) return static_cast<const uint64_t*>(last)[key] == static_cast<uint64_t>(position) + 1;
    return static_cast<const uint32_t*>(last)[key] == static_cast<uint32_t>(position) + 1;
  }
};

__global__ void claim_kernel(Entries entries, Winners winners, int64_t place_stride,
                             const __grid_constant__ Layout<2> layout) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= layout.count) return;
  int64_t at[2];  // index, table
  offsets(layout, i, at);
  const int64_t place = place_of(entries, at[0]);
  if (place >= 0) winners.claim(winners.by_place ? place : at[1] + place * place_stride, at[0]);
}

/// Row r of the dense side to the table's row that its entry names, where that entry is its last.
struct PutMap {
  Entries entries;
  Winners winners;
  Layout<3> rows;  // dense, index, table
  const char* dense;
  char* table;
  int64_t place_stride, bytes;
  int item;

  __device__ int64_t target(int64_t r, int64_t (&at)[3]) const {
    offsets(rows, r, at);
    const int64_t place = place_of(entries, at[1]);
    if (place < 0) return -1;
    const int64_t to = at[2] + place * place_stride;
    return winners.won(winners.by_place ? place : to, at[1]) ? to : -1;
  }
  __device__ cuda::RowEnds operator()(int64_t r) const {
    int64_t at[3];
    const int64_t to = target(r, at);
    return {dense + at[0] * item, to < 0 ? nullptr : table + to * item, bytes};
  }
};

template <class T>
__global__ void put_kernel(const __grid_constant__ PutMap map) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= map.rows.count) return;
  int64_t at[3];
  const int64_t to = map.target(i, at);
  if (to >= 0) reinterpret_cast<T*>(map.table)[to] = reinterpret_cast<const T*>(map.dense)[at[0]];
}

/// The sorted way: the last entry of each run of equal keys writes. Columns are neighbouring threads.
template <class T>
__global__ void put_sorted_kernel(SortedView entries, const T* dense, T* table, const __grid_constant__ Layout<1> entry,
                                  const __grid_constant__ Layout<2> columns) {
  const int64_t at = blockIdx.x * int64_t{kThreads} + threadIdx.x, i = at / columns.count;
  if (i >= entries.count) return;
  const uint64_t key = entries.key(i);
  if (key == entries.past_end || (i + 1 < entries.count && entries.key(i + 1) == key)) return;
  int64_t from[1], column[2];  // dense, table
  offsets(entry, entries.position(i), from);
  offsets(columns, at - i * columns.count, column);
  table[static_cast<int64_t>(key) * entries.key_stride + column[1]] = dense[from[0] + column[0]];
}

unsigned blocks_of(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

template <class T>
void put_sorted(const DeviceMove& m, const SortedEntries& sorted) {
  const SplitMove split = split_move(m);
  const Layout<1> entry = cuda::collapse(m.at.op, split.entry_shape, {split.entry_dense}, -1);
  const Layout<2> columns = cuda::collapse(m.at.op, split.column_shape, {split.column_dense, split.column_table}, 1);
  launch(m.at.op, put_sorted_kernel<T>, Grid{blocks_of(sorted.view.count * columns.count), kThreads}, m.index.device(),
         sorted.view, static_cast<const T*>(m.dense), static_cast<T*>(m.table), entry, columns);
}

/// Moves every position's element, whole rows where both sides have them.
void put_winners(const DeviceMove& m, const Winners& winners, DType dtype) {
  const Device device = m.index.device();
  const auto item = static_cast<int64_t>(item_size(dtype));
  const Layout<3> layout = cuda::collapse(m.at.op, m.shape, {m.dense_strides, m.index_strides, m.table_strides}, 0);
  PutMap map{entries_of(m),
             winners,
             layout,
             static_cast<const char*>(m.dense),
             static_cast<char*>(m.table),
             m.place_stride,
             0,
             static_cast<int>(item)};
  const int64_t length = winners.by_place ? take_row(map.rows) : 0;
  map.bytes = length * item;
  if (length > 0) {
    const bool aligned = length * item % 16 == 0 && m.place_stride * item % 16 == 0 &&
                         cuda::rows_aligned(map.rows, 0, m.dense, item) &&
                         cuda::rows_aligned(map.rows, 2, m.table, item);
    if (map.bytes >= (aligned ? 16 : kLeastRowBytes))
      return cuda::move_rows(m.at.op, map, map.rows.count, map.bytes, map.item, aligned, device);
  }
  map.rows = layout;
  core::visit_size(dtype, [&]<class T>() {
    launch(m.at.op, put_kernel<T>, Grid{blocks_of(layout.count), kThreads}, device, map);
  });
}

/// A few whole rows, by packs of 16 bytes. False, and nothing done, for others.
bool put_few(const DeviceMove& m, int64_t item) {
  FewRows rows{};
  if (!find_few_rows(m, item, rows)) return false;
  rows.dense_stride = rows.dense_stride * item / 16;
  rows.table_stride = rows.table_stride * item / 16;
  launch(m.at.op, put_few_kernel, few_rows_grid(rows), m.index.device(), rows, static_cast<const uint4*>(m.dense),
         static_cast<uint4*>(m.table));
  return true;
}

}  // namespace

void scatter_on_device(const DeviceMove& m, DType dtype) {
  const Device device = m.index.device();
  const cuda::DeviceGuard guard(device);
  if (m.size == 0 || product(m.shape) == 0) return look_at_entries(m);
  if (scatter_lines_on_device(m, dtype) || scatter_columns_on_device(m, dtype)) return;
  if (put_few(m, static_cast<int64_t>(item_size(dtype)))) return;
  const SplitMove split = split_move(m);
  const int64_t positions = product(m.shape), entries = product(split.entry_shape);
  // An entry's place tells its row, or an entry is one element: then a key is one place to write to.
  const bool by_place = split.by_place, by_element = split.column_shape.empty();
  if ((by_place || by_element) && split.keys <= std::max<int64_t>(8 * positions, 1 << 16)) {
    const bool wide = entries >= UINT32_MAX;
    const Tensor last = Tensor::empty({split.keys}, wide ? uint64 : uint32, device);
    cuda::check(cudaMemsetAsync(last.raw(), 0, split.keys * item_size(last.dtype()), current_stream(device).handle),
                m.at.op);
    const Winners winners{last.raw(), wide, by_place};
    const Layout<2> layout = cuda::collapse(m.at.op, split.entry_shape, {split.entry_index, split.entry_table}, 0);
    launch(m.at.op, claim_kernel, Grid{blocks_of(layout.count), kThreads}, device, entries_of(m), winners,
           m.place_stride, layout);
    return put_winners(m, winners, dtype);
  }
  const SortedEntries sorted = sort_entries(m);
  core::visit_size(dtype, [&]<class T>() { put_sorted<T>(m, sorted); });
}

}  // namespace tenor::index
