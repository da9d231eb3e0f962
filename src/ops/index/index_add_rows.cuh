// Sums of whole rows at named places: their kernels.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/ops/index/index_entries.cuh"
#include "src/ops/index/index_rule.cuh"
#include "src/ops/index/index_sorted.cuh"

namespace tenor::index {

inline constexpr int kAddThreads = 256;

/// Packs of 16 bytes that a thread keeps of a row: 16 sums, which leaves registers for two blocks a multiprocessor.
template <class T>
inline constexpr int kPacksOf = 16 / cuda::kVector<T>;
inline constexpr int kRowsAhead = 2;  // rows of a place that are loaded before the first is added

/// Sums of whole rows that lie dense and aligned on both sides. A slot of `lanes` neighbours takes kPacks * lanes
/// packs of one entry's row.
struct RowSlots {
  int lanes_log2;
  int64_t pieces, packs;  ///< slots, and packs, of a row
};
template <class T>
__global__ void __launch_bounds__(kAddThreads)
    add_rows_kernel(SortedView entries, Rule<float> rule, const T* __restrict__ dense, T* table,
                    const __grid_constant__ cuda::Layout<1> entry, const __grid_constant__ cuda::Layout<2> columns,
                    RowSlots slots) {
  constexpr int kN = cuda::kVector<T>, kPacks = kPacksOf<T>;
  const int lanes = 1 << slots.lanes_log2;
  const int64_t slot = int64_t{blockIdx.x} * (kAddThreads >> slots.lanes_log2) + (threadIdx.x >> slots.lanes_log2);
  const int64_t i = slots.pieces == 1 ? slot : slot / slots.pieces;
  if (i >= entries.count) return;
  const uint64_t key = entries.key(i);
  if (!entries.is_head(i, key)) return;
  const int64_t first = (slot - i * slots.pieces) * lanes * kPacks + (threadIdx.x & (lanes - 1));
  int64_t column[kPacks][2];  // dense, table
  T* const row = table + static_cast<int64_t>(key) * entries.key_stride;
  cuda::Pack<T, kN> self[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    column[p][0] = column[p][1] = 0;
    if (first + p * lanes >= slots.packs) continue;
    cuda::offsets(columns, first + p * lanes, column[p]);
    self[p] = cuda::load_pack<kN>(static_cast<const T*>(row + column[p][1]));
  }
  float sum[kPacks][kN];
  int64_t j = i;
  for (int found = kRowsAhead; found == kRowsAhead; j += found) {
    found = 0;
    cuda::Pack<T, kN> x[kRowsAhead][kPacks];
#pragma unroll
    for (int q = 0; q < kRowsAhead; ++q) {
      if (j + q >= entries.count || entries.key(j + q) != key) continue;
      ++found;
      int64_t from[1];
      cuda::offsets(entry, entries.position(j + q), from);
#pragma unroll
      for (int p = 0; p < kPacks; ++p)
        if (first + p * lanes < slots.packs) x[q][p] = cuda::load_once<kN>(dense + from[0] + column[p][0]);
    }
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
#pragma unroll
      for (int k = 0; k < kN; ++k) {
        if (j == i) sum[p][k] = cuda::widen(self[p].at[k]);
#pragma unroll
        for (int q = 0; q < kRowsAhead; ++q)
          if (q < found)
            sum[p][k] += rule.scaled ? rule.alpha * cuda::widen(x[q][p].at[k]) : cuda::widen(x[q][p].at[k]);
      }
  }
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (first + p * lanes >= slots.packs) continue;
    cuda::Pack<T, kN> out;
#pragma unroll
    for (int k = 0; k < kN; ++k) out.at[k] = cuda::convert<T>(sum[p][k]);
    cuda::store_pack(row + column[p][1], out);
  }
}

}  // namespace tenor::index
