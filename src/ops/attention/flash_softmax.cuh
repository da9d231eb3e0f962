// flash_tensorcore's arithmetic between the two products: scores to weights, in the registers where the tensor cores
// leave and take them. A thread holds two rows, eight apart; the four threads of a row lie side by side.
#pragma once

#include "src/cuda/ptx/float.cuh"
#include "src/ops/attention/flash_task.cuh"

namespace tenor::attn {

inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

/// A thread's two rows: the largest score, its own share of the sum, and what the last tile shrank earlier sums by.
struct FlashRows {
  float top[2], sum[2], shrink[2];
};

/// Scores to weights. `kGeneral`: scores are final; else they lack the scale, which is folded into the exponent.
template <bool kGeneral, int kCount>
__device__ __forceinline__ void flash_softmax(float (&s)[kCount], FlashRows& rows, float scale_log2) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float top = rows.top[r];
#pragma unroll
    for (int i = 0; i < kCount; i += 4) top = fmaxf(top, fmaxf(s[i + 2 * r], s[i + 2 * r + 1]));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    // An unchanged maximum shrinks by exactly 1. General scores reach the lowest float: differences come first.
    const float known = top == -INFINITY ? 0.0f : top, base = __fmul_rn(known, scale_log2);
    rows.shrink[r] = ptx::exp2_approximate(kGeneral ? __fmul_rn(__fadd_rn(rows.top[r], -known), kLog2E)
                                                    : __fadd_rn(__fmul_rn(rows.top[r], scale_log2), -base));
    rows.top[r] = top;
    float sum = __fmul_rn(rows.sum[r], rows.shrink[r]);
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& x = s[i + 2 * r + j];
        x = ptx::exp2_approximate(kGeneral ? __fmul_rn(__fadd_rn(x, -known), kLog2E) : fmaf(x, scale_log2, -base));
        sum += x;
      }
    }
    rows.sum[r] = sum;
  }
}

template <class T, int kCount>
__device__ __forceinline__ void flash_pack(uint32_t (&p)[kCount / 2], const float (&s)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) p[i] = ptx::pack_pair<T>(s[2 * i], s[2 * i + 1]);
}

/// Hides what the diagonal and the window hide from two queries in tile n, and keys past the end.
template <class Config>
__device__ __forceinline__ void flash_hide(float (&s)[Config::kKeys / 2], const FlashTask& t, int2 query, int n) {
  const int first = n * Config::kKeys + threadIdx.x % 4 * 2;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = r ? query.y : query.x;
    const int low = i + t.before - first, high = min(i + t.after + 1, t.keys) - first;
#pragma unroll
    for (int i = 0; i < Config::kKeys / 2; i += 4)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        if (i * 2 + j < low || i * 2 + j >= high) s[i + 2 * r + j] = -INFINITY;
  }
}

/// c * tanh(x / c) through an exponential: within 2e-7 c.
__device__ __forceinline__ float soft_cap(float x, float cap, float two_over_cap_log2) {
  return cap - __fdividef(2.0f * cap, 1.0f + ptx::exp2_approximate(x * two_over_cap_log2));
}

template <class T>
__device__ __forceinline__ float low_half(uint32_t two) {
  if constexpr (std::is_same_v<T, __half>) return __half2float(__ushort_as_half(static_cast<unsigned short>(two)));
  return __uint_as_float(two << 16);
}
template <class T>
__device__ __forceinline__ float high_half(uint32_t two) {
  if constexpr (std::is_same_v<T, __half>)
    return __half2float(__ushort_as_half(static_cast<unsigned short>(two >> 16)));
  return __uint_as_float(two & 0xFFFF0000u);
}

template <class T>
__device__ __forceinline__ float bias_at(const DeviceProblem& p, int64_t at) {
  return p.bias_float ? static_cast<const float*>(p.bias.data)[at]
                      : static_cast<float>(static_cast<const T*>(p.bias.data)[at]);
}

/// Where a thread's rows of bias and mask begin, with its first column.
struct FlashPlanes {
  int64_t bias[2], mask[2];

  __device__ __forceinline__ void find(const FlashShape& shape, const FlashTask& t, int place) {
    const DeviceProblem& p = shape.p;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t i = min(t.query_of(shape, place + 8 * r), t.queries - 1), head = t.head_of(shape, place + 8 * r);
      bias[r] = t.sequence * p.bias.batch + head * p.bias.head + i * p.bias.row;
      mask[r] = t.sequence * p.mask.batch + head * p.mask.head + i * p.mask.row;
    }
  }
};

/// A tile of bias in shared memory, as TMA lays it: blocks of 64 columns, swizzled.
template <class Config>
using FlashBiasTile =
    typename Config::T[Config::kBiasTiles ? Config::kKeys / 64 : 1][Config::kBiasTiles ? Config::kRows * 64 : 64];

template <class Config>
__device__ __forceinline__ void flash_add_tile(float (&s)[Config::kKeys / 2], const FlashBiasTile<Config>& tile,
                                               int place) {
  using T = typename Config::T;
#pragma unroll
  for (int i = 0; i < Config::kKeys / 8; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const T* line = tile[i / 8] + (place + 8 * r) * 64;
      const uint32_t two = *reinterpret_cast<const uint32_t*>(line + ((i % 8) ^ (place & 7)) * 8 + threadIdx.x % 4 * 2);
      s[4 * i + 2 * r] += low_half<T>(two), s[4 * i + 2 * r + 1] += high_half<T>(two);
    }
}

/// fn(score, key) for each of a thread's scores in row r; keys count from tile n's first and stay inside the sequence.
template <class Config, class F>
__device__ __forceinline__ void each_score(float (&s)[Config::kKeys / 2], const FlashTask& t, int r, int n, F fn) {
  const int first = n * Config::kKeys + threadIdx.x % 4 * 2;
#pragma unroll
  for (int e = 0; e < Config::kKeys / 2; e += 4)
#pragma unroll
    for (int j = 0; j < 2; ++j) fn(s[e + 2 * r + j], min(first + e * 2 + j, t.keys - 1));
}

/// Adds bias from where it lies: of float32, or of strides that TMA cannot walk.
template <class Config>
__device__ __forceinline__ void flash_add_bias(float (&s)[Config::kKeys / 2], const FlashShape& shape,
                                               const FlashPlanes& planes, const FlashTask& t, int n) {
  const DeviceProblem& p = shape.p;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (p.bias_float) {
      const float* row = static_cast<const float*>(p.bias.data) + planes.bias[r];
      each_score<Config>(s, t, r, n, [&](float& x, int key) { x += row[key * p.bias.col]; });
    } else {
      const auto* row = static_cast<const typename Config::T*>(p.bias.data) + planes.bias[r];
      each_score<Config>(s, t, r, n, [&](float& x, int key) { x += static_cast<float>(row[key * p.bias.col]); });
    }
  }
}

template <class Config>
__device__ __forceinline__ void flash_mask(float (&s)[Config::kKeys / 2], const FlashShape& shape,
                                           const FlashPlanes& planes, const FlashTask& t, int n) {
  const DeviceProblem& p = shape.p;
  if (shape.mask_pairs && (n + 1) * Config::kKeys <= t.keys) {
    const int first = n * Config::kKeys + threadIdx.x % 4 * 2;
    uint16_t two[Config::kKeys / 4];
#pragma unroll
    for (int i = 0; i < Config::kKeys / 4; ++i)
      two[i] = *reinterpret_cast<const uint16_t*>(static_cast<const char*>(p.mask.data) + planes.mask[i & 1] + first +
                                                  i / 2 * 8);
#pragma unroll
    for (int i = 0; i < Config::kKeys / 4; ++i) {
      if (!(two[i] & 0xFF)) s[2 * i] = -INFINITY;
      if (!(two[i] >> 8)) s[2 * i + 1] = -INFINITY;
    }
    return;
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool* row = static_cast<const bool*>(p.mask.data) + planes.mask[r];
    each_score<Config>(s, t, r, n, [&](float& x, int key) {
      if (!row[key * p.mask.col]) x = -INFINITY;
    });
  }
}

/// Products to final scores: scale, softcap, bias (from `tile` where shape.bias_tiles), mask and place.
template <class Config>
__device__ __forceinline__ void flash_finish_scores(float (&s)[Config::kKeys / 2], const FlashShape& shape,
                                                    const FlashBiasTile<Config>& tile, const FlashPlanes& planes,
                                                    const FlashTask& t, int2 query, int place, int n) {
  const DeviceProblem& p = shape.p;
  const float scale = static_cast<float>(p.scale);
#pragma unroll
  for (float& x : s) x *= scale;
  if (p.softcap > 0) {
    const float cap = static_cast<float>(p.softcap), factor = 2.0f * kLog2E / cap;
#pragma unroll
    for (float& x : s) x = soft_cap(x, cap, factor);
  }
  if (Config::kBiasTiles && shape.bias_tiles)
    flash_add_tile<Config>(s, tile, place);
  else if (p.bias.data)
    flash_add_bias<Config>(s, shape, planes, t, n);
  if (p.mask.data) flash_mask<Config>(s, shape, planes, t, n);
  if (t.hides_by_place(n)) flash_hide<Config>(s, t, query, n);
}

}  // namespace tenor::attn
