// A stable radix sort of an index's entries by the place they write to.
#include <cub/device/device_radix_sort.cuh>

#include "src/cuda/launch.h"
#include "src/cuda/layout.h"
#include "src/ops/index/index_entries.cuh"
#include "src/ops/index/index_sorted.cuh"

namespace tenor::index {

namespace {

constexpr int kThreads = 256;

/// keys[i] = where entry i writes, positions[i] = i.
template <class K>
__global__ void keys_kernel(Entries entries, int64_t factor, uint64_t past_end,
                            const __grid_constant__ cuda::Layout<2> layout, K* keys, K* positions) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= layout.count) return;
  int64_t at[2];  // index, table
  cuda::offsets(layout, i, at);
  const int64_t place = place_of(entries, at[0]);
  keys[i] = static_cast<K>(place < 0 ? past_end : static_cast<uint64_t>(at[1] + place * factor));
  positions[i] = static_cast<K>(i);
}

Tensor bytes_on(Device device, size_t bytes) { return Tensor::empty({static_cast<int64_t>(bytes)}, uint8, device); }

template <class K>
void sort_into(const DeviceMove& m, const SplitMove& split, SortedEntries& out) {
  const Device device = m.index.device();
  constexpr size_t kAlign = 256;
  const size_t array = (out.view.count * sizeof(K) + kAlign - 1) / kAlign * kAlign;
  const int bits = 64 - __builtin_clzll(out.view.past_end | 1);
  cub::DoubleBuffer<K> keys, positions;
  size_t scratch = 0;
  const cudaStream_t stream = current_stream(device).handle;
  cuda::check(cub::DeviceRadixSort::SortPairs(nullptr, scratch, keys, positions, out.view.count, 0, bits, stream),
              m.at.op);
  out.memory = bytes_on(device, 4 * array + scratch);
  char* memory = out.memory.data<char>();
  const auto part = [&](int i) { return reinterpret_cast<K*>(memory + i * array); };
  keys = {part(0), part(1)};
  positions = {part(2), part(3)};
  const cuda::Layout<2> layout = cuda::collapse(m.at.op, split.entry_shape, {split.entry_index, split.entry_table}, 0);
  const cuda::Grid grid{static_cast<unsigned>((out.view.count + kThreads - 1) / kThreads), kThreads};
  const int64_t factor = split.by_place ? 1 : m.place_stride;
  cuda::launch(m.at.op, keys_kernel<K>, grid, device, entries_of(m), factor, out.view.past_end, layout, keys.Current(),
               positions.Current());
  cuda::check(
      cub::DeviceRadixSort::SortPairs(memory + 4 * array, scratch, keys, positions, out.view.count, 0, bits, stream),
      m.at.op);
  out.view.keys = keys.Current();
  out.view.positions = positions.Current();
}

}  // namespace

SplitMove split_move(const DeviceMove& m) {
  SplitMove split;
  int64_t reach = 0;
  for (size_t d = 0; d < m.shape.size(); ++d) {
    if (m.shape[d] == 1) continue;
    const bool entry = m.index_strides[d] != 0;
    (entry ? split.entry_shape : split.column_shape).push_back(m.shape[d]);
    (entry ? split.entry_dense : split.column_dense).push_back(m.dense_strides[d]);
    (entry ? split.entry_table : split.column_table).push_back(m.table_strides[d]);
    if (!entry) continue;
    split.entry_index.push_back(m.index_strides[d]);
    split.by_place = split.by_place && m.table_strides[d] == 0;
    reach += (m.shape[d] - 1) * m.table_strides[d];
  }
  split.key_stride = split.by_place ? std::max<int64_t>(m.place_stride, 1) : 1;
  split.keys = split.by_place ? m.size : reach + (m.size - 1) * m.place_stride + 1;
  return split;
}

SortedView describe_entries(const DeviceMove& m) {
  const SplitMove split = split_move(m);
  SortedView view{};
  view.count = product(split.entry_shape);
  view.key_stride = split.key_stride;
  view.past_end = static_cast<uint64_t>(split.keys);
  view.wide = view.past_end > UINT32_MAX || static_cast<uint64_t>(view.count) > UINT32_MAX;
  return view;
}

SortedEntries sort_entries(const DeviceMove& m) {
  SortedEntries out;
  out.view = describe_entries(m);
  if (out.view.wide) {
    sort_into<uint64_t>(m, split_move(m), out);
  } else {
    sort_into<uint32_t>(m, split_move(m), out);
  }
  return out;
}

}  // namespace tenor::index
