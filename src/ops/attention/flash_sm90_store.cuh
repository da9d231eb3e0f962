// How a warpgroup of the Hopper kernel writes its rows.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/ops/attention/flash_sm90_softmax.cuh"

namespace tenor::attn {

/// Four threads' registers transposed: thread t of each four gets register t of all of them.
__device__ __forceinline__ void transpose_four(uint32_t (&x)[4]) {
  const int t = threadIdx.x & 3;
#pragma unroll
  for (int bit = 1; bit <= 2; bit <<= 1) {
    const bool upper = t & bit;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & bit) continue;
      const uint32_t give = upper ? x[i] : x[i | bit];
      const uint32_t got = __shfl_xor_sync(~0u, give, bit);
      if (upper)
        x[i] = got;
      else
        x[i | bit] = got;
    }
  }
}

/// Up to eight neighbouring elements of a row.
template <class T>
__device__ __forceinline__ void store_eight(T* line, int column, const uint32_t (&x)[4], const FlashShape& shape) {
  const int count = static_cast<int>(shape.p.value_dim) - column;
  if (shape.wide_out) {
    if (count > 0) *reinterpret_cast<uint4*>(line + column) = make_uint4(x[0], x[1], x[2], x[3]);
    return;
  }
  const T* from = reinterpret_cast<const T*>(x);
#pragma unroll
  for (int j = 0; j < 8; ++j)
    if (j < count) line[(column + j) * shape.p.out.col] = from[j];
}

template <class T>
__device__ __forceinline__ float sink_at(const DeviceProblem& p, int head) {
  const int64_t at = head * p.sinks_stride;
  return p.sinks_float ? static_cast<const float*>(p.sinks)[at]
                       : static_cast<float>(static_cast<const T*>(p.sinks)[at]);
}

/// Row r of the tile.
template <class Config>
__device__ __forceinline__ typename Config::T* out_row(const FlashShape& shape, const FlashTask& t, int r) {
  const DeviceProblem& p = shape.p;
  return static_cast<typename Config::T*>(p.out.data) + origin(p, p.out, t.sequence, t.q) +
         t.head_of(shape, r) * p.out.head + t.query_of(shape, r) * p.out.row;
}

/// Row r of the tile in a part's result, counted in rows.
__device__ __forceinline__ int64_t partial_row(const FlashShape& shape, const FlashTask& t, int r) {
  const DeviceProblem& p = shape.p;
  const int64_t heads = p.kv_heads * p.group, batches = p.sequences;
  return ((t.part * batches + t.batch) * heads + t.head_of(shape, r)) * p.queries + t.query_of(shape, r);
}

/// A thread's share of one row of a part's result, in float32.
template <int kCount>
__device__ __forceinline__ void store_partial(const float (&o)[kCount], int r, float inverse, float* line,
                                              int columns) {
#pragma unroll
  for (int i = 2 * r; i < kCount; i += 4)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int column = i / 4 * 8 + threadIdx.x % 4 * 2 + j;
      if (column < columns) line[column] = o[i + j] * inverse;
    }
}

/// Divides by the sums, rounds once and stores out and lse. `place` is the thread's first row of the tile.
template <class Config>
__device__ __forceinline__ void flash_store(const float (&o)[Config::kDim / 2], const FlashRows& rows,
                                            FlashShared<Config>& shared, const FlashShape& shape, const FlashTask& t,
                                            int place) {
  using T = typename Config::T;
  const DeviceProblem& p = shape.p;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = rows.sum[r];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const bool inside = t.holds<Config>(shape, place + 8 * r), none = sum == 0;
    const int head = t.head_of(shape, place + 8 * r);
    const float top = Config::kGeneral ? rows.top[r] : rows.top[r] * shape.scale_log2 * kLn2;
    const float lse = none ? -INFINITY : top + logf(sum);
    const float whole =
        p.sinks && !none && shape.splits == 1
            ? sum + ptx::exp2_approximate((sink_at<T>(p, min(head, static_cast<int>(p.kv_heads * p.group) - 1)) - top) * kLog2E)
            : sum;
    const float inverse = none ? 0.0f : 1.0f / whole;
    if (threadIdx.x % 4 == 0) shared.lse[place + 8 * r] = lse;
    if (shape.splits > 1) {
      const int64_t at = inside ? partial_row(shape, t, place + 8 * r) : 0;
      if (inside) store_partial(o, r, inverse, shape.partial + at * p.value_dim, static_cast<int>(p.value_dim));
      if (inside && threadIdx.x % 4 == 0) shape.partial_lse[at] = lse;
      continue;
    }
    if (threadIdx.x % 4 == 0) {
      if (p.lse.data && inside)
        static_cast<float*>(p.lse.data)[origin(p, p.lse, t.sequence, t.q) + head * p.lse.head +
                                        t.query_of(shape, place + 8 * r) * p.lse.row] = lse;
    }
    T* line = out_row<Config>(shape, t, place + 8 * r);
#pragma unroll
    for (int c = 0; c < Config::kDim; c += 32) {
      uint32_t x[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = (c / 8 + j) * 4 + 2 * r;
        x[j] = ptx::pack_pair<T>(o[at] * inverse, o[at + 1] * inverse);
      }
      transpose_four(x);
      if (inside) store_eight(line, c + threadIdx.x % 4 * 8, x, shape);
    }
  }
}

/// The final score of a visible key for row r of the tile, as the products would give it; -inf for a hidden one.
template <class Config>
__device__ float flash_score(const FlashShape& shape, const FlashTask& t, int r, int key) {
  using T = typename Config::T;
  const DeviceProblem& p = shape.p;
  const int i = t.query_of(shape, r), head = t.head_of(shape, r);
  if (key < i + t.before || key > i + t.after || key >= t.keys) return -INFINITY;
  const T* q = static_cast<const T*>(p.q.data) + origin(p, p.q, t.sequence, t.q) + head * p.q.head + i * p.q.row;
  const T* k = static_cast<const T*>(p.k.data) + origin(p, p.k, t.sequence, t.k) + t.kv_head * p.k.head + key * p.k.row;
  float x = 0;
#pragma unroll 1
  for (int d = 0; d < p.dim; ++d) x = fmaf(static_cast<float>(q[d * p.q.col]), static_cast<float>(k[d * p.k.col]), x);
  x *= static_cast<float>(p.scale);
  if (p.softcap > 0) {
    const float cap = static_cast<float>(p.softcap);
    x = soft_cap(x, cap, 2.0f * kLog2E / cap);
  }
  if (p.bias.data)
    x += bias_at<T>(p, t.sequence * p.bias.batch + head * p.bias.head + i * p.bias.row + key * p.bias.col);
  const int64_t mask = t.sequence * p.mask.batch + head * p.mask.head + i * p.mask.row + key * p.mask.col;
  if (p.mask.data && !static_cast<const bool*>(p.mask.data)[mask]) x = -INFINITY;
  return x;
}

/// Puts back what flash_check took from visible keys: weight * value, NaN or infinite, joins the results just stored.
/// Rare, so it reads everything again, a column a thread.
template <class Config>
__device__ __forceinline__ void flash_poison(const FlashShared<Config>& shared, const FlashShape& shape,
                                             const FlashTask& t, int group) {
  using T = typename Config::T;
  const DeviceProblem& p = shape.p;
  asm volatile("bar.sync %0, 128;" ::"r"(5 + group) : "memory");  // the group's rows have been stored
  const T* v = static_cast<const T*>(p.v.data) + origin(p, p.v, t.sequence, t.k) + t.kv_head * p.v.head;
#pragma unroll 1
  for (int c = threadIdx.x % 128; c < p.value_dim; c += 128)
#pragma unroll 1
    for (int key = t.begin * Config::kKeys; key < min(t.end * Config::kKeys, t.keys); ++key) {
      const float x = static_cast<float>(v[key * p.v.row + c * p.v.col]);
      if (isfinite(x)) continue;
#pragma unroll 1
      for (int r = group * 64; r < group * 64 + 64 && t.holds<Config>(shape, r); ++r) {
        const float score = flash_score<Config>(shape, t, r, key);
        if (score == -INFINITY) continue;
        const float part = ptx::exp2_approximate((score - shared.lse[r]) * kLog2E) * x;
        if (shape.splits > 1) {
          shape.partial[partial_row(shape, t, r) * p.value_dim + c] += part;
        } else {
          T& out = out_row<Config>(shape, t, r)[c * p.out.col];
          out = static_cast<T>(static_cast<float>(out) + part);
        }
      }
    }
  asm volatile("bar.sync %0, 128;" ::"r"(5 + group) : "memory");  // lse has been read
}

}  // namespace tenor::attn
