// What the kernels of flash_tensorcore share: a launch's shape, and the tasks that it is cut into.
#pragma once

#include "src/cuda/ptx/target.cuh"
#include "src/ops/attention/attention_device.cuh"

namespace tenor::attn {

namespace ptx = tenor::cuda::ptx;

/// What a launch needs beside the problem.
struct FlashShape {
  DeviceProblem p;
  int tasks;  ///< tiles of rows of all heads
  int pack;   ///< heads whose rows share a tile: 1, or all of a key head's, row r being head r % pack of query r / pack
  int splits, split;  ///< parts of the keys, each a task of its own, and tiles of keys a part; 1: all of them are one
  float *partial, *partial_lse;  ///< of more parts: [splits, batch, heads, queries, value_dim] and less its last dim
  int section;                   ///< heads whose keys and values stay in L2 together
  int* counter;                  ///< of tasks given out beyond the first of each block; null: rounds in order
  int before, after;             ///< query i of equally long sequences sees keys i + before .. i + after
  float scale, scale_log2;       ///< of products to scores; of what the softmax takes to powers of two
  float softcap, cap_log2;       ///< 0: none; 2 scale log2(e) / softcap
  bool shared_head[4], shared_batch[4];  ///< q, k, v, bias: one for all heads, or for the whole batch
  bool bias_tiles;                       ///< bias comes by TMA, tile by tile with the keys
  bool tma_out;                          ///< rows of out, 64 of them, are stored by TMA
  bool wide_out;                         ///< rows of out are written sixteen bytes at a time
  bool mask_pairs, mask_fours;           ///< mask is read so many neighbours at a time
};

/// One tile of rows, and the tiles of keys that it needs.
struct FlashTask {
  int row, queries, keys;    // the first query, and the sequence's lengths; row -1: there is no more to do
  int sequence, q, k;        // which, and its first row of q and of k
  int head, kv_head, batch;  // the first head
  int part;                  // of the keys
  int before, after;
  int begin, end;            // tiles of keys
  int full_begin, full_end;  // of these, tiles that hide no key from any row

  /// False for a place without rows.
  template <class Config>
  __device__ __forceinline__ bool find(const FlashShape& s, int i) {
    part = i % s.splits, i /= s.splits;
    const DeviceProblem& p = s.p;
    const int heads = static_cast<int>(p.kv_heads * p.group) / s.pack, rows = Config::kRows / s.pack;
    int shift = 0;
    if (p.cu_q.data) {
      const int slot = (s.tasks - 1 - i) / heads;
      head = (s.tasks - 1 - i) % heads, batch = 0;
      const Slot place(p, slot, rows, 1);
      const Sequence at(p, place.sequence);
      sequence = static_cast<int>(place.sequence), q = static_cast<int>(at.q), k = static_cast<int>(at.k);
      queries = static_cast<int>(at.queries), keys = static_cast<int>(at.keys);
      row = static_cast<int>(place.tile) * rows;
      if (p.causal != Causal::kTopLeft) shift = keys - queries;
    } else {
      const int tiles = (static_cast<int>(p.queries) + rows - 1) / rows;
      const int all = heads * static_cast<int>(p.sequences), per_section = s.section * tiles;
      const int section = i / per_section, within = i - section * per_section, first = section * s.section;
      const int here = min(s.section, all - first), at = first + within % here;  // longest rows first
      head = at % heads, batch = at / heads, sequence = batch, q = k = 0;
      queries = static_cast<int>(p.queries), keys = static_cast<int>(p.keys);
      row = (tiles - 1 - within / here) * rows;
    }
    asm volatile("" ::: "memory");  // a task in shared memory need not be held in registers as well
    head *= s.pack, kv_head = head / static_cast<int>(p.group);
    before = s.before + shift, after = s.after + shift;
    if (row >= queries) return false;
    const int last = min(row + rows, queries) - 1;
    const int low = max(row + before, 0), high = min(last + after + 1, keys);
    begin = low / Config::kKeys, end = high > low ? (high + Config::kKeys - 1) / Config::kKeys : begin;
    const int full_low = max(last + before, 0), full_high = max(min(row + after + 1, keys), 0);
    full_begin = min(max((full_low + Config::kKeys - 1) / Config::kKeys, begin), end);
    full_end = max(min(full_high / Config::kKeys, end), full_begin);
    if (s.splits > 1) keep_part(part * s.split, part == s.splits - 1 ? end : (part + 1) * s.split);
    return true;
  }
  /// Of the tiles only [first, past).
  __device__ __forceinline__ void keep_part(int first, int past) {
    end = min(end, past), begin = min(max(begin, first), end);
    full_end = min(max(full_end, begin), end), full_begin = min(max(full_begin, begin), full_end);
  }
  /// The query and head of a row of the tile.
  __device__ __forceinline__ int query_of(const FlashShape& s, int r) const {
    return row + (s.pack == 1 ? r : r / s.pack);
  }
  __device__ __forceinline__ int head_of(const FlashShape& s, int r) const {
    return head + (s.pack == 1 ? 0 : r % s.pack);
  }
  template <class Config>
  __device__ __forceinline__ bool holds(const FlashShape& s, int r) const {
    if (s.pack == 1) return row + r < queries;
    return r < Config::kRows / s.pack * s.pack && query_of(s, r) < queries;
  }
  __device__ __forceinline__ bool empty() const { return begin == end; }
  /// Whether tile n hides a key from some row: by the diagonal, the window or the end, or by anything else.
  __device__ __forceinline__ bool hides_by_place(int n) const { return n >= full_end || n < full_begin; }
  template <class Config>
  __device__ __forceinline__ bool hides(int n) const {
    return Config::kGeneral || hides_by_place(n);
  }
};

}  // namespace tenor::attn
