// A problem as kernels see it: sizes, pointers and strides by value; packed sequences found in cu_seqlens on the
// device.
#pragma once

#include "src/cuda/offsets.cuh"
#include "src/ops/attention/attention_problem.h"

namespace tenor::attn {

using cuda::Offsets;

struct DeviceProblem {
  Plane q, k, v, mask, bias, out, lse;
  const void* sinks;
  int64_t sinks_stride;
  bool sinks_float, bias_float;
  Offsets cu_q, cu_k;        ///< data null: a batch of equal sequences
  cuda::ContentError* flag;  ///< raised where cu_seqlens are not what they must be
  int64_t sequences;         ///< the batch; with cu_seqlens one more, the rows past the end
  int64_t queries, keys;     ///< of each sequence; with cu_seqlens of all
  int64_t kv_heads, group, dim, value_dim;
  double scale, softcap;
  Causal::Kind causal;
  int64_t left, right;
};

/// By value from the host; @throws nothing, reads no device memory.
DeviceProblem device_problem(const Problem& problem);

#ifdef __CUDACC__
using cuda::check_offsets;
using cuda::offset_at;

__device__ __forceinline__ void check_offsets(const DeviceProblem& p) {
  if (!p.cu_q.data || blockIdx.x != 0) return;
  check_offsets(p.cu_q, p.sequences, p.queries, p.flag);
  check_offsets(p.cu_k, p.sequences, p.keys, p.flag);
}

/// Where sequence n starts and how long it is. Whatever cu_seqlens hold, it lies inside the operands.
struct Sequence {
  int64_t q, queries, k, keys;
  __device__ Sequence(const DeviceProblem& p, int64_t n) : q(0), queries(p.queries), k(0), keys(p.keys) {
    if (!p.cu_q.data) return;
    const bool past = n == p.sequences - 1;  // rows that belong to no sequence have no keys
    q = inside(offset_at(p.cu_q, n), 0, p.queries);
    queries = (past ? p.queries : inside(offset_at(p.cu_q, n + 1), q, p.queries)) - q;
    k = past ? 0 : inside(offset_at(p.cu_k, n), 0, p.keys);
    keys = past ? 0 : inside(offset_at(p.cu_k, n + 1), k, p.keys) - k;
  }
  static __device__ int64_t inside(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }
};

/// Where an operand's sequence n begins that starts at `row` of all rows.
__device__ __forceinline__ int64_t origin(const DeviceProblem& p, const Plane& x, int64_t n, int64_t row) {
  return p.cu_q.data ? row * x.row : n * x.batch;
}

/// Tiles of `rows` rows, `packed` of them a query: sequence n's begin at slot (rows before it) / rows + n, which leaves
/// each as many as it needs without anyone having counted the others'. Some slots stay empty.
__host__ __device__ inline int64_t slots_of(const DeviceProblem& p, int64_t rows, int64_t packed) {
  const int64_t all = p.queries * packed;
  return p.cu_q.data ? all / rows + p.sequences : (all + rows - 1) / rows * p.sequences;
}
struct Slot {
  int64_t sequence, tile;
  __device__ Slot(const DeviceProblem& p, int64_t slot, int64_t rows, int64_t packed) {
    if (!p.cu_q.data) {
      const int64_t tiles = (p.queries * packed + rows - 1) / rows;
      sequence = slot / tiles, tile = slot % tiles;
      return;
    }
    int64_t low = 0, high = p.sequences - 1;  // the last sequence that begins at `slot` or before
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      if (first(p, middle, rows, packed) <= slot)
        low = middle;
      else
        high = middle - 1;
    }
    sequence = low, tile = slot - first(p, low, rows, packed);
  }
  static __device__ int64_t first(const DeviceProblem& p, int64_t n, int64_t rows, int64_t packed) {
    return Sequence::inside(offset_at(p.cu_q, n), 0, p.queries) * packed / rows + n;
  }
};
#endif

}  // namespace tenor::attn
