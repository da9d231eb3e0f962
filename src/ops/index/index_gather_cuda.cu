// Reading at named places on CUDA: whole rows by the row mover, single elements coalesced on the result.

#include "src/cuda/content_kind.h"
#include "src/cuda/layout.h"
#include "src/cuda/rows.cuh"
#include "src/ops/index/index_entries.cuh"

namespace tenor::index {

namespace {

using cuda::Grid;
using cuda::launch;
using cuda::Layout;
using cuda::offsets;

// ---- rows

/// Row r of the dense side from the table's row that its entry names.
struct SelectMap {
  Entries entries;
  Layout<3> rows;  // dense, index, table
  char* dense;
  const char* table;
  int64_t place_stride, bytes;
  int item;

  __device__ cuda::RowEnds operator()(int64_t r) const {
    int64_t at[3];
    offsets(rows, r, at);
    const int64_t place = place_of(entries, at[1]);
    return {place < 0 ? nullptr : table + (at[2] + place * place_stride) * item, dense + at[0] * item, bytes};
  }
};

/// False, and nothing done, for rows too short to be worth it.
bool select_rows_on_device(const DeviceMove& m, Layout<3> rows, int64_t length, DType dtype) {
  const auto item = static_cast<int64_t>(item_size(dtype));
  const SelectMap map{entries_of(m),  rows,          static_cast<char*>(m.dense), static_cast<const char*>(m.table),
                      m.place_stride, length * item, static_cast<int>(item)};
  const bool aligned = length * item % 16 == 0 && m.place_stride * item % 16 == 0 &&
                       cuda::rows_aligned(rows, 0, m.dense, item) && cuda::rows_aligned(rows, 2, m.table, item);
  if (length * item < (aligned ? 16 : kLeastRowBytes)) return false;
  cuda::move_rows(m.at.op, map, rows.count, length * item, static_cast<int>(item), aligned, m.index.device());
  return true;
}

// ---- elements

constexpr int kThreads = 256;
constexpr int kUnroll = 4;
constexpr int kRounds =
    4;  // a block takes kThreads * kUnroll * kRounds neighbours, which often share a row of the table

/// Neighbours in the result are neighbouring threads.
template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(Entries entries, const T* __restrict__ table, int64_t place_stride, T* __restrict__ dense,
                  const __grid_constant__ Layout<3> layout) {
  for (int round = 0; round < kRounds; ++round) {
    const int64_t first = (int64_t{blockIdx.x} * kRounds + round) * (kThreads * kUnroll) + threadIdx.x;
    T values[kUnroll];
    int64_t at[kUnroll][3], raw[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      at[k][1] = -1;
      if (first + k * kThreads < layout.count) offsets(layout, first + k * kThreads, at[k]);
    }
    raw_entries(
        entries, [&](int k) { return at[k][1]; }, raw);
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      const int64_t place = at[k][1] < 0 ? -1 : place_of_raw(entries, raw[k], at[k][1]);
      values[k] = place < 0 ? T{} : table[at[k][2] + place * place_stride];
    }
#pragma unroll
    for (int k = 0; k < kUnroll; ++k)
      if (first + k * kThreads < layout.count) dense[at[k][0]] = values[k];
  }
}

/// The same where runs of four entries and four results lie together and aligned: the layout counts runs.
template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_runs_kernel(Entries entries, const T* __restrict__ table, int64_t table_step, int64_t place_stride,
                       T* __restrict__ dense, const __grid_constant__ Layout<3> runs) {
#pragma unroll 2
  for (int round = 0; round < kRounds; ++round) {
    const int64_t i = (int64_t{blockIdx.x} * kRounds + round) * kThreads + threadIdx.x;
    if (i >= runs.count) return;
    int64_t at[3], places[4];
    offsets(runs, i, at);
    places_of<4>(entries, at[1], places);
    cuda::Pack<T, 4> values;
#pragma unroll
    for (int k = 0; k < 4; ++k)
      values.at[k] = places[k] < 0 ? T{} : table[at[2] + k * table_step + places[k] * place_stride];
    if constexpr (sizeof(T) <= 4) {
      cuda::store_pack(dense + at[0], values);
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) dense[at[0] + k] = values.at[k];
    }
  }
}

/// The layout of runs of four, when the innermost dim allows it on the dense side and the index.
bool make_runs(const DeviceMove& m, DType dtype, const Layout<3>& layout, Layout<3>& runs) {
  const int last = layout.ndim - 1;
  if (last < 0 || layout.size[last] % 4 != 0 || layout.stride[0][last] != 1 || layout.stride[1][last] != 1)
    return false;
  const bool at_16 = reinterpret_cast<uintptr_t>(m.index.raw()) % 16 == 0 &&
                     reinterpret_cast<uintptr_t>(m.dense) % (4 * item_size(dtype)) == 0;
  for (int d = 0; d < last; ++d)
    if (layout.stride[0][d] % 4 != 0 || layout.stride[1][d] % 4 != 0) return false;
  runs = layout;
  cuda::group_innermost(runs, 4);
  return at_16;
}

template <class T>
void gather_elements(const DeviceMove& m, const Layout<3>& layout, DType dtype) {
  const Device device = m.index.device();
  const auto* table = static_cast<const T*>(m.table);
  auto* dense = static_cast<T*>(m.dense);
  Layout<3> runs;
  const bool has_runs = make_runs(m, dtype, layout, runs);
  const int64_t per_block = has_runs ? kThreads * kRounds : kThreads * kUnroll * kRounds;
  const Grid grid{static_cast<unsigned>(((has_runs ? runs.count : layout.count) + per_block - 1) / per_block),
                  kThreads};
  if (has_runs)
    return launch(m.at.op, gather_runs_kernel<T>, grid, device, entries_of(m), table, layout.stride[2][layout.ndim - 1],
                  m.place_stride, dense, runs);
  launch(m.at.op, gather_kernel<T>, grid, device, entries_of(m), table, m.place_stride, dense, layout);
}

/// Raises the flag for bad entries, no more.
__global__ void look_kernel(Entries entries, int64_t count) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i < count) place_of(entries, i);
}

// ---- several index arrays

constexpr int kMaxArrays = 8;

struct ArrayList {
  int count = 0;
  Entries entries[kMaxArrays];
  int64_t stride[kMaxArrays];
};

/// out[i] = the sum over arrays of place * stride; -1 for a bad entry. `so_far` holds the sum of earlier arrays.
__global__ void resolve_kernel(const __grid_constant__ ArrayList arrays,
                               const __grid_constant__ Layout<kMaxArrays> layout, bool first, int64_t* out) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= layout.count) return;
  int64_t at[kMaxArrays];
  offsets(layout, i, at);
  int64_t sum = first ? 0 : out[i];
#pragma unroll
  for (int k = 0; k < kMaxArrays; ++k) {
    if (k >= arrays.count) break;
    const int64_t place = place_of(arrays.entries[k], at[k]);
    sum = place < 0 || sum < 0 ? -1 : sum + place * arrays.stride[k];
  }
  out[i] = sum;
}

}  // namespace

Entries entries_of(Argument at, const Tensor& index, int64_t size, bool from_zero) {
  const Device device = index.device();
  return {index.raw(),
          index.dtype(),
          size,
          from_zero,
          false,
          cuda::named_content_op(at.op, at.name),
          cuda::content_error(current_stream(device))};
}

Entries entries_of(const DeviceMove& m) {
  Entries entries = entries_of(m.at, m.index, m.size);
  entries.resolved = m.resolved;
  return entries;
}

void look_at_entries(const DeviceMove& m) {
  const int64_t count = m.index.numel();
  if (count == 0) return;
  const Grid grid{static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads};
  launch(m.at.op, look_kernel, grid, m.index.device(), entries_of(m), count);
}

void gather_on_device(const DeviceMove& m, DType dtype) {
  const cuda::DeviceGuard guard(m.index.device());
  if (product(m.shape) == 0) return look_at_entries(m);
  Layout<3> layout = cuda::collapse(m.at.op, m.shape, {m.dense_strides, m.index_strides, m.table_strides}, 0);
  Layout<3> rows = layout;
  const int64_t length = take_row(rows);
  if (length > 0 && select_rows_on_device(m, rows, length, dtype)) return;
  core::visit_size(dtype, [&]<class T>() { gather_elements<T>(m, layout, dtype); });
}

Tensor resolve_places(const PlaceArrays& given) {
  const Device device = given.arrays[0].device();
  const cuda::DeviceGuard guard(device);
  const Tensor out = Tensor::empty(given.shape, int64, device);
  if (out.numel() == 0) return out;
  for (size_t first = 0; first < given.arrays.size(); first += kMaxArrays) {
    ArrayList list;
    Dims strides[kMaxArrays];
    for (auto& s : strides) s = Dims(given.shape.size(), 0);
    for (size_t k = first; k < given.arrays.size() && list.count < kMaxArrays; ++k, ++list.count) {
      list.entries[list.count] = entries_of(given.at, given.arrays[k], given.sizes[k]);
      list.entries[list.count].resolved = given.resolved[k];
      list.stride[list.count] = given.strides[k];
      strides[list.count] = given.array_strides[k];
    }
    const Layout<kMaxArrays> layout = cuda::collapse(given.at.op, given.shape, strides, -1);
    const Grid grid{static_cast<unsigned>((layout.count + kThreads - 1) / kThreads), kThreads};
    launch(given.at.op, resolve_kernel, grid, device, list, layout, first == 0, out.data<int64_t>());
  }
  return out;
}

}  // namespace tenor::index
