#include <climits>

#include "src/cuda/convert.cuh"
#include "src/cuda/launch.h"
#include "src/cuda/layout.h"
#include "src/ops/index/index_entries.cuh"
#include "src/ops/index/index_lines_cuda.h"
#include "src/ops/index/index_rule.cuh"

namespace tenor::index {

namespace {

using cuda::Grid;
using cuda::launch;
using cuda::Layout;
using cuda::offsets;

constexpr int kThreads = 512;
constexpr int kEach = 4;  // entries that a thread holds

/// A line: `length` entries that name `places` neighbouring elements of the table.
struct Lines {
  Entries entries;
  Layout<3> layout;  // of the lines: dense, index, table
  int64_t length, places;
  int64_t dense_step;
};

/// Lines of a move whose entries walk one dim of the table, neighbouring places being neighbouring elements.
bool find_lines(const DeviceMove& m, Lines& out) {
  size_t along = m.shape.size();
  for (size_t d = 0; d < m.shape.size(); ++d) {
    if (m.shape[d] == 1 || m.table_strides[d] != 0 || m.index_strides[d] == 0) continue;
    if (along != m.shape.size()) return false;
    along = d;
  }
  if (along == m.shape.size() || m.resolved || m.place_stride != 1 || m.index_strides[along] != 1 ||
      m.dense_strides[along] > 1)
    return false;
  Dims shape, dense, index, table;
  for (size_t d = 0; d < m.shape.size(); ++d) {
    if (d == along) continue;
    shape.push_back(m.shape[d]);
    dense.push_back(m.dense_strides[d]);
    index.push_back(m.index_strides[d]);
    table.push_back(m.table_strides[d]);
  }
  out.length = m.shape[along];
  out.places = m.size;
  out.dense_step = m.dense_strides[along];
  out.layout = cuda::collapse(m.at.op, shape, {dense, index, table}, -1);
  return out.length < INT_MAX / 2 && out.layout.count >= 2 * cuda::multiprocessors(m.index.device()) &&
         m.size <= 4 * out.length;
}

/// The last entry of each place writes it.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_lines_kernel(const __grid_constant__ Lines lines, const T* __restrict__ dense, T* __restrict__ table) {
  extern __shared__ int last[];  // by place: its last entry, plus 1
  int64_t at[3];
  offsets(lines.layout, blockIdx.x, at);
  const int places = static_cast<int>(lines.places), length = static_cast<int>(lines.length);
  for (int p = static_cast<int>(threadIdx.x); p < places; p += kThreads) last[p] = 0;
  __syncthreads();
  for (int base = static_cast<int>(threadIdx.x); base < length; base += kThreads * kEach) {
    int64_t raw[kEach];
    raw_entries(
        lines.entries, [&](int k) { return base + k * kThreads < length ? at[1] + base + k * kThreads : -1; }, raw);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int j = base + k * kThreads;
      const int64_t place = j < length ? place_of_raw(lines.entries, raw[k], at[1] + j) : -1;
      if (place >= 0) atomicMax(&last[place], j + 1);
    }
  }
  __syncthreads();
#pragma unroll 4
  for (int p = static_cast<int>(threadIdx.x); p < places; p += kThreads)
    if (last[p] > 0) table[at[2] + p] = dense[at[0] + (last[p] - 1) * lines.dense_step];
}

constexpr int kFree = INT_MAX, kTouched = INT_MAX - 1;  // what a place's claim holds between rounds

/// Entries go in order, kThreads * kEach at a time, and those in rounds: in each the first entry left of every place
/// combines. The claims are by integer minimum, so the order of arrival does not matter.
template <class T>
__global__ void __launch_bounds__(kThreads)
    combine_lines_kernel(const __grid_constant__ Lines lines, Rule<core::Compute<T>> rule, const T* __restrict__ dense,
                         T* __restrict__ table) {
  using C = core::Compute<T>;
  extern __shared__ double memory[];
  C* const sums = reinterpret_cast<C*>(memory);
  int* const claims = reinterpret_cast<int*>(memory + (lines.places * sizeof(C) + 7) / 8);
  int64_t at[3];
  offsets(lines.layout, blockIdx.x, at);
  const int places = static_cast<int>(lines.places), length = static_cast<int>(lines.length),
            tid = static_cast<int>(threadIdx.x);
  for (int p = tid; p < places; p += kThreads) {
    sums[p] = cuda::widen(table[at[2] + p]);
    claims[p] = kFree;
  }
  for (int base = 0; base < length; base += kThreads * kEach) {
    int place[kEach];
    C x[kEach];
    bool left[kEach];
    int64_t raw[kEach];
    raw_entries(
        lines.entries,
        [&](int k) { return base + k * kThreads + tid < length ? at[1] + base + k * kThreads + tid : -1; }, raw);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int j = base + k * kThreads + tid;
      x[k] = j < length ? cuda::widen(dense[at[0] + j * lines.dense_step]) : C{};
    }
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int j = base + k * kThreads + tid;
      place[k] = j < length ? static_cast<int>(place_of_raw(lines.entries, raw[k], at[1] + j)) : -1;
      left[k] = place[k] >= 0;
    }
    bool any = true;
    while (__syncthreads_or(any)) {
#pragma unroll
      for (int k = 0; k < kEach; ++k)
        if (left[k]) atomicMin(&claims[place[k]], k * kThreads + tid);
      __syncthreads();
      any = false;
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        if (left[k] && claims[place[k]] == k * kThreads + tid) {
          sums[place[k]] = rule(sums[place[k]], x[k]);
          claims[place[k]] = kTouched;
          left[k] = false;
        }
        any = any || left[k];
      }
    }
  }
  __syncthreads();
  for (int p = tid; p < places; p += kThreads)
    if (claims[p] == kTouched) table[at[2] + p] = cuda::convert<T>(sums[p]);
}

}  // namespace

size_t most_shared(Device device) { return std::min<size_t>(200 << 10, cuda::capability(device).shared); }

bool scatter_lines_on_device(const DeviceMove& m, DType dtype) {
  Lines lines{};
  const size_t shared = static_cast<size_t>(m.size) * sizeof(int);
  if (shared > most_shared(m.index.device()) || !find_lines(m, lines)) return false;
  lines.entries = entries_of(m);
  const Grid grid{static_cast<unsigned>(lines.layout.count), kThreads, shared};
  core::visit_size(dtype, [&]<class T>() {
    launch(m.at.op, scatter_lines_kernel<T>, grid, m.index.device(), lines, static_cast<const T*>(m.dense),
           static_cast<T*>(m.table));
  });
  return true;
}

bool combine_lines_on_device(const DeviceMove& m, DType dtype, const CombineRule& given) {
  Lines lines{};
  if (!given.include_self || given.combine == DeviceCombine::kMean) return false;
  const size_t width = item_size(compute_dtype(dtype)), places = static_cast<size_t>(m.size);
  const size_t shared = (places * width + 7) / 8 * 8 + places * sizeof(int);
  if (shared > most_shared(m.index.device()) || !find_lines(m, lines)) return false;
  lines.entries = entries_of(m);
  const Grid grid{static_cast<unsigned>(lines.layout.count), kThreads, shared};
  core::visit(dtype, [&]<class T>() {
    launch(m.at.op, combine_lines_kernel<T>, grid, m.index.device(), lines, rule_of<core::Compute<T>>(given),
           static_cast<const T*>(m.dense), static_cast<T*>(m.table));
  });
  return true;
}

}  // namespace tenor::index
