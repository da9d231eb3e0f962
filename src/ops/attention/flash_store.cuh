// How the kernels of flash_tensorcore write their rows.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/ops/attention/flash_softmax.cuh"

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

/// Up to eight neighbouring elements of a row, one by one.
template <class T>
__device__ __noinline__ void store_each(T* line, int count, uint4 x, int64_t stride) {
  const T* from = reinterpret_cast<const T*>(&x);
#pragma unroll
  for (int j = 0; j < 8; ++j)
    if (j < count) line[j * stride] = from[j];
}
/// Up to eight neighbouring elements of a row, from `column` on.
template <class T>
__device__ __forceinline__ void store_eight(T* line, int column, uint4 x, const FlashShape& shape) {
  const int count = static_cast<int>(shape.p.value_dim) - column;
  if (!shape.wide_out)
    store_each(line + column * shape.p.out.col, count, x, shape.p.out.col);
  else if (count > 0)
    *reinterpret_cast<uint4*>(line + column) = x;
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

/// What a thread's two rows are divided by. Their lse is stored, and kept in `lse` by row of the tile. `place` is the
/// thread's first row of the tile.
template <class Config>
__device__ __forceinline__ float2 flash_sums(const FlashRows& rows, float (&lse)[Config::kRows],
                                             const FlashShape& shape, const FlashTask& t, int place) {
  const DeviceProblem& p = shape.p;
  float inverse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = rows.sum[r];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const bool none = sum == 0;
    const float top = Config::kScaled ? rows.top[r] : rows.top[r] * shape.scale_log2 * kLn2;
    const float row_lse = none ? -INFINITY : top + logf(sum);
    if (p.sinks && !none && shape.splits == 1) {
      const int head = min(t.head_of(shape, place + 8 * r), static_cast<int>(p.kv_heads * p.group) - 1);
      const float sink = sink_at<typename Config::T>(p, head), base = __fmul_rn(rows.top[r], shape.scale_log2);
      sum += ptx::exp2_approximate(fabsf(base) == INFINITY ? (sink - top) * kLog2E : fmaf(sink, kLog2E, -base));
    }
    inverse[r] = none ? 0.0f : __frcp_rn(sum);
    if (threadIdx.x % 4 != 0) continue;
    lse[place + 8 * r] = row_lse;
    if (!t.holds<Config>(shape, place + 8 * r)) continue;
    if (shape.splits > 1)
      shape.partial_lse[partial_row(shape, t, place + 8 * r)] = row_lse;
    else if (p.lse.data)
      static_cast<float*>(p.lse.data)[origin(p, p.lse, t.sequence, t.q) + t.head_of(shape, place + 8 * r) * p.lse.head +
                                      t.query_of(shape, place + 8 * r) * p.lse.row] = row_lse;
  }
  return make_float2(inverse[0], inverse[1]);
}

/// A thread's share of its rows of a part's result, in float32. Returns whether one is NaN.
template <class Config>
__device__ __forceinline__ bool store_partial(const float (&o)[Config::kDim / 2], float2 inverse,
                                              const FlashShape& shape, const FlashTask& t, int place) {
  const int columns = static_cast<int>(shape.p.value_dim);
  bool odd = false;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (!t.holds<Config>(shape, place + 8 * r)) continue;
    float* line = shape.partial + partial_row(shape, t, place + 8 * r) * columns;
#pragma unroll
    for (int i = 2 * r; i < Config::kDim / 2; i += 4)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int column = i / 4 * 8 + threadIdx.x % 4 * 2 + j;
        const float x = o[i + j] * (r ? inverse.y : inverse.x);
        odd |= isnan(x);
        if (column < columns) line[column] = x;
      }
  }
  return odd;
}

inline constexpr uint32_t kNotSigns = 0x7FFF7FFF;

/// Two neighbours of row r (0, 1), divided and rounded once; `odd` takes up what times_zero() says of them.
template <class Config>
__device__ __forceinline__ uint32_t flash_round(const float (&o)[Config::kDim / 2], float2 inverse, int block, int r,
                                                uint32_t& odd) {
  using T = typename Config::T;
  const float by = r ? inverse.y : inverse.x;
  const uint32_t two = ptx::pack_pair<T>(o[4 * block + 2 * r] * by, o[4 * block + 2 * r + 1] * by);
  odd |= ptx::times_zero<T>(two);
  return two;
}

/// Stores a thread's rows, or its share of a part's, from registers. Returns whether a result may not be finite.
template <class Config>
__device__ __forceinline__ bool flash_store(const float (&o)[Config::kDim / 2], float2 inverse, const FlashShape& shape,
                                            const FlashTask& t, int place) {
  if (shape.splits > 1) return store_partial<Config>(o, inverse, shape, t, place);
  uint32_t odd = 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool inside = t.holds<Config>(shape, place + 8 * r);
    typename Config::T* line = out_row<Config>(shape, t, place + 8 * r);
#pragma unroll
    for (int c = 0; c < Config::kDim; c += 32) {
      uint32_t x[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) x[j] = flash_round<Config>(o, inverse, c / 8 + j, r, odd);
      transpose_four(x);
      if (inside) store_eight(line, c + threadIdx.x % 4 * 8, make_uint4(x[0], x[1], x[2], x[3]), shape);
    }
  }
  return (odd & kNotSigns) != 0;
}

/// Rows without a key, by the 128 threads of 64 rows.
template <class Config>
__device__ __noinline__ void flash_store_nothing(const FlashShape& shape, const FlashTask& t, int group) {
#pragma unroll 1
  for (int i = threadIdx.x % 128; i < 64 * Config::kDim; i += 128) {
    const int r = group * 64 + i / Config::kDim, c = i % Config::kDim;
    if (t.holds<Config>(shape, r) && c < shape.p.value_dim)
      out_row<Config>(shape, t, r)[c * shape.p.out.col] = typename Config::T(0.0f);
  }
}

}  // namespace tenor::attn
