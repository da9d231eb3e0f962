// Entries of an index grouped by the place that they write to.
#pragma once

#include "src/ops/index/index_cuda.h"

namespace tenor::index {

/// Positions of an index and the places they write to, sorted by place and, within a place, by position.
struct SortedView {
  const void* keys;
  const void* positions;
  bool wide;  ///< both hold uint64, else uint32
  int64_t count;
  uint64_t past_end;   ///< the key of dropped entries, above all others
  int64_t key_stride;  ///< a key times this is the element offset of the place in the table

#ifdef __CUDACC__
  __device__ __forceinline__ uint64_t key(int64_t i) const {
    return wide ? static_cast<const uint64_t*>(keys)[i] : static_cast<const uint32_t*>(keys)[i];
  }
  __device__ __forceinline__ int64_t position(int64_t i) const {
    return wide ? static_cast<int64_t>(static_cast<const uint64_t*>(positions)[i])
                : static_cast<const uint32_t*>(positions)[i];
  }
  /// Whether entry i, whose key is given, is the first of its place, and the place is one.
  __device__ __forceinline__ bool is_head(int64_t i, uint64_t at) const {
    return at != past_end && (i == 0 || key(i - 1) != at);
  }
#endif
};
struct SortedEntries {
  SortedView view{};
  Tensor memory;  ///< what the view points into
};
SortedEntries sort_entries(const DeviceMove& move);
/// The view of a move's entries, without the arrays.
SortedView describe_entries(const DeviceMove& move);

/// Dims of a move that the index walks, and dims that share an entry.
struct SplitMove {
  Dims entry_shape, entry_index, entry_dense, entry_table;
  Dims column_shape, column_dense, column_table;
  bool by_place = true;    ///< an entry's place alone tells where its row starts; a key is then the place
  int64_t key_stride = 1;  ///< place_stride then, else 1: keys count elements
  int64_t keys = 0;        ///< how many values a key may have
};
SplitMove split_move(const DeviceMove& move);

}  // namespace tenor::index
