// A few rows written or added to at named places, dense and aligned on both sides: each block finds by itself which
// entries share its row, so that nothing is sorted or claimed first.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/cuda/launch.h"
#include "src/cuda/vector.cuh"
#include "src/ops/index/index_entries.cuh"
#include "src/ops/index/index_rule.cuh"

namespace tenor::index {

inline constexpr int kFewThreads = 256, kFewEntries = 512;

/// Entry i names row places[i]; strides count elements, packs are of 16 bytes.
struct FewRows {
  Entries entries;
  int count;
  int64_t index_stride, dense_stride, table_stride, packs;
};

/// The places of all entries, in shared memory; -1 for a bad one.
__device__ __forceinline__ void name_rows(const FewRows& rows, int (&places)[kFewEntries]) {
  for (int j = static_cast<int>(threadIdx.x); j < rows.count; j += kFewThreads)
    places[j] = static_cast<int>(place_of(rows.entries, j * rows.index_stride));
  __syncthreads();
}

/// Whether one of the entries from begin to end - 1 names that place; every thread of the block calls.
__device__ __forceinline__ bool is_named(const int (&places)[kFewEntries], int begin, int end, int place) {
  bool named = false;
  for (int j = begin + static_cast<int>(threadIdx.x); j < end; j += kFewThreads) named = named || places[j] == place;
  return __syncthreads_or(named);
}

/// Entry blockIdx.y, if it is the first of its place, and all later ones of the place, in order.
template <class T>
__global__ void __launch_bounds__(kFewThreads)
    add_few_kernel(const __grid_constant__ FewRows rows, Rule<float> rule, const T* __restrict__ dense, T* table) {
  constexpr int kN = cuda::kVector<T>;
  __shared__ int places[kFewEntries];
  const int i = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t pack = int64_t{blockIdx.x} * kFewThreads + threadIdx.x;
  const bool mine = pack < rows.packs;
  const T* const from = dense + pack * kN;
  cuda::Pack<T, kN> x{}, self{};
  if (mine) x = cuda::load_pack<kN>(from + i * rows.dense_stride);
  name_rows(rows, places);
  const int place = places[i];
  if (place < 0 || is_named(places, 0, i, place)) return;
  T* const to = table + place * rows.table_stride + pack * kN;
  if (mine) self = cuda::load_pack<kN>(static_cast<const T*>(to));
  float sum[kN];
#pragma unroll
  for (int k = 0; k < kN; ++k) sum[k] = cuda::widen(self.at[k]);
  const auto add = [&] {
#pragma unroll
    for (int k = 0; k < kN; ++k) sum[k] += rule.scaled ? rule.alpha * cuda::widen(x.at[k]) : cuda::widen(x.at[k]);
  };
  add();
  for (int base = i + 1; base < rows.count; base += 32) {
    const bool alike = base + lane < rows.count && places[base + lane] == place;
    for (unsigned more = __ballot_sync(~0u, alike); more; more &= more - 1) {
      if (mine) x = cuda::load_pack<kN>(from + (base + __ffs(static_cast<int>(more)) - 1) * rows.dense_stride);
      add();
    }
  }
  cuda::Pack<T, kN> out;
#pragma unroll
  for (int k = 0; k < kN; ++k) out.at[k] = cuda::convert<T>(sum[k]);
  if (mine) cuda::store_pack(to, out);
}

/// Entry blockIdx.y, if it is the last of its place, writes it. Strides count packs.
inline __global__ void __launch_bounds__(kFewThreads)
    put_few_kernel(const __grid_constant__ FewRows rows, const uint4* __restrict__ dense, uint4* table) {
  __shared__ int places[kFewEntries];
  const int i = static_cast<int>(blockIdx.y);
  const int64_t pack = int64_t{blockIdx.x} * kFewThreads + threadIdx.x;
  uint4 x{};
  if (pack < rows.packs) x = dense[i * rows.dense_stride + pack];
  name_rows(rows, places);
  const int place = places[i];
  if (place < 0 || is_named(places, i + 1, rows.count, place) || pack >= rows.packs) return;
  table[place * rows.table_stride + pack] = x;
}

/// Host: whether a move is of a few such rows of elements of `item` bytes, and which.
inline bool find_few_rows(const DeviceMove& m, int64_t item, FewRows& rows) {
  size_t along = m.shape.size();
  int64_t width = 1;
  bool fits = !m.resolved && m.size <= INT32_MAX && reinterpret_cast<uintptr_t>(m.dense) % 16 == 0 &&
              reinterpret_cast<uintptr_t>(m.table) % 16 == 0;
  for (size_t d = m.shape.size(); d-- > 0;) {
    if (m.shape[d] == 1) continue;
    if (m.index_strides[d] != 0) {
      fits = fits && along == m.shape.size() && m.table_strides[d] == 0;
      along = d;
    } else {  // of the row
      fits = fits && m.dense_strides[d] == width && m.table_strides[d] == width;
      width *= m.shape[d];
    }
  }
  const bool several = along < m.shape.size();  // else one entry
  const int64_t count = several ? m.shape[along] : 1, index_stride = several ? m.index_strides[along] : 0,
                dense_stride = several ? m.dense_strides[along] : 0;
  if (!fits || count > kFewEntries || width * item % 16 != 0 || dense_stride * item % 16 != 0 ||
      m.place_stride * item % 16 != 0)
    return false;
  rows = {entries_of(m), static_cast<int>(count), index_stride, dense_stride, m.place_stride, width * item / 16};
  return true;
}

/// Host: a launch's blocks.
inline cuda::Grid few_rows_grid(const FewRows& rows) {
  return {dim3(static_cast<unsigned>((rows.packs + kFewThreads - 1) / kFewThreads), static_cast<unsigned>(rows.count)),
          kFewThreads};
}

}  // namespace tenor::index
