// flash_tensorcore's arithmetic between the two products: scores to weights, in the registers where the tensor cores
// leave and take them. A thread holds two rows, eight apart; the four threads of a row lie side by side.
#pragma once

#include "src/cuda/ptx/float.cuh"
#include "src/cuda/ptx/mma.cuh"
#include "src/ops/attention/flash_task.cuh"

namespace tenor::attn {

inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

/// A thread's two rows: the largest score, its own share of the sum, and what the last tile shrank earlier sums by.
struct FlashRows {
  float top[2], sum[2], shrink[2];
};

/// Scores to weights. `kScaled`: scores are final and may be any float; else they lack the scale, which is folded into
/// the exponent.
template <bool kScaled, int kCount>
__device__ __forceinline__ void flash_softmax(float (&s)[kCount], FlashRows& rows, float scale_log2) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float top = rows.top[r];
#pragma unroll
    for (int i = 0; i < kCount; i += 4) top = fmaxf(top, fmaxf(s[i + 2 * r], s[i + 2 * r + 1]));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    const float known = top == -INFINITY ? 0.0f : top;
    float base = __fmul_rn(known, scale_log2), before = __fmul_rn(rows.top[r], scale_log2);
    if (kScaled && fabsf(base) == INFINITY) {  // near the largest float: differences come first
      before = __fmul_rn(__fadd_rn(rows.top[r], -known), scale_log2), base = 0;
#pragma unroll
      for (int i = 0; i < kCount; i += 4) s[i + 2 * r] -= known, s[i + 2 * r + 1] -= known;
    }
    rows.shrink[r] = ptx::exp2_approximate(__fadd_rn(before, -base));  // exactly 1 for an unchanged maximum
    rows.top[r] = top;
    float sum = __fmul_rn(rows.sum[r], rows.shrink[r]);
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& x = s[i + 2 * r + j];
        x = ptx::exp2_approximate(fmaf(x, scale_log2, -base));
        sum += x;
      }
    }
    rows.sum[r] = sum;
  }
}

/// What sums over two sets of keys weigh once they are one: relative to the larger of their tops, as
/// flash_softmax<true> has them relative to their own. Exactly 1 and 0 where one set is empty.
__device__ __forceinline__ void flash_weigh_two(float top_a, float top_b, float scale_log2, float& a, float& b) {
  const float top = fmaxf(top_a, top_b), known = top == -INFINITY ? 0.0f : top, base = __fmul_rn(known, scale_log2);
  const auto weight = [&](float x) {
    const float own = __fmul_rn(x, scale_log2);
    const bool far = fabsf(base) == INFINITY || own == INFINITY;
    return ptx::exp2_approximate(far ? __fmul_rn(__fadd_rn(x, -known), scale_log2) : __fadd_rn(own, -base));
  };
  a = weight(top_a), b = weight(top_b);
}

template <class T, int kCount>
__device__ __forceinline__ void flash_pack(uint32_t (&p)[kCount / 2], const float (&s)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) p[i] = ptx::pack_pair<T>(s[2 * i], s[2 * i + 1]);
}

/// Hides what the diagonal and the window hide from two queries in tile n, and keys past the end.
template <class Config>
__device__ __forceinline__ void flash_hide(float (&s)[Config::kKeys / 2], const FlashShape& shape, const FlashTask& t,
                                           int place, int n) {
  const int first = n * Config::kKeys + threadIdx.x % 4 * 2;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = t.query_of(shape, place + 8 * r);
    const int low = i + t.before - first, high = min(i + t.after + 1, t.keys) - first;
#pragma unroll
    for (int i = 0; i < Config::kKeys / 2; i += 4)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        if (i * 2 + j < low || i * 2 + j >= high) s[i + 2 * r + j] = -INFINITY;
  }
}

/// c * tanh(scale x / c) through an exponential: within 2e-7 c.
__device__ __forceinline__ float soft_cap(float x, const FlashShape& shape) {
  return shape.softcap - __fdividef(2.0f * shape.softcap, 1.0f + ptx::exp2_approximate(x * shape.cap_log2));
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

/// Where a row of bias or mask begins, in elements.
__device__ __forceinline__ int64_t plane_row(const FlashShape& shape, const FlashTask& t, const Plane& x, int place) {
  const int64_t i = min(t.query_of(shape, place), t.queries - 1), head = t.head_of(shape, place);
  return t.sequence * x.batch + head * x.head + i * x.row;
}
/// Keeps what is loaded after this place from being loaded before it, and x from being computed after it: else all is
/// loaded first, into registers that nobody has.
__device__ __forceinline__ void part_loads(float& x) { asm volatile("" : "+f"(x)::"memory"); }

/// A tile of bias in shared memory, as TMA lays it: blocks of 64 columns, swizzled.
template <class Config>
using FlashBiasTile =
    typename Config::T[Config::kBiasTiles ? Config::kKeys / 64 : 1][Config::kBiasTiles ? Config::kRows * 64 : 64];

/// Scores times `scale`, plus bias of the warp's sixteen rows from `first` on.
template <class Config>
__device__ __forceinline__ void flash_add_tile(float (&s)[Config::kKeys / 2], const FlashBiasTile<Config>& tile,
                                               int first, float scale) {
  using T = typename Config::T;
  constexpr int kLoads = Config::kKeys / 16, kAhead = 3;
  const int lane = threadIdx.x % 32, row = first + lane % 16;
  uint32_t two[kLoads][4];  // this thread's row and eight below, then the same of the next eight keys
  const auto load = [&](int i) {
    ptx::ldmatrix_x4(two[i], ptx::shared_address(tile[i / 4] + row * 64 + ((i % 4 * 2 + lane / 16) ^ (row & 7)) * 8));
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(i);
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    if (i + kAhead < kLoads) load(i + kAhead);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const uint32_t from = two[i][j / 2];
      s[8 * i + j] = fmaf(s[8 * i + j], scale, j % 2 ? high_half<T>(from) : low_half<T>(from));
      part_loads(s[8 * i + j]);
    }
  }
}

/// fn(score, key) for each of a thread's scores in row r; keys count from tile n's first and stay inside the sequence.
template <class Config, class F>
__device__ __forceinline__ void each_score(float (&s)[Config::kKeys / 2], const FlashTask& t, int r, int n, F fn) {
#pragma unroll
  for (int e = 0; e < Config::kKeys / 2; e += 16) {
    int first = n * Config::kKeys + threadIdx.x % 4 * 2;
    asm volatile("" : "+r"(first));  // lest the places of all keys are held for the next row
#pragma unroll
    for (int i = e; i < e + 16 && i < Config::kKeys / 2; i += 4)
#pragma unroll
      for (int j = 0; j < 2; ++j) fn(s[i + 2 * r + j], min(first + i * 2 + j, t.keys - 1));
#pragma unroll
    for (int i = e; i < e + 16 && i < Config::kKeys / 2; i += 4) part_loads(s[i + 2 * r]), part_loads(s[i + 2 * r + 1]);
  }
}

/// Scores times `scale`, plus bias from where it lies: of float32, or of strides that TMA cannot walk.
template <class Config>
__device__ __forceinline__ void flash_add_bias(float (&s)[Config::kKeys / 2], const FlashShape& shape,
                                               const FlashTask& t, int place, int n, float scale) {
  const DeviceProblem& p = shape.p;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t at = plane_row(shape, t, p.bias, place + 8 * r);
    if (p.bias_float) {
      const float* row = static_cast<const float*>(p.bias.data) + at;
      each_score<Config>(s, t, r, n, [&](float& x, int key) { x = fmaf(x, scale, row[key * p.bias.col]); });
    } else {
      const auto* row = static_cast<const typename Config::T*>(p.bias.data) + at;
      each_score<Config>(s, t, r, n,
                         [&](float& x, int key) { x = fmaf(x, scale, static_cast<float>(row[key * p.bias.col])); });
    }
  }
}

/// A row of the mask, two neighbours at a time.
template <class Config>
__device__ __forceinline__ void flash_mask_pairs(float (&s)[Config::kKeys / 2], const bool* row, int r, int n) {
  constexpr int kAtOnce = 8;
  const int first = n * Config::kKeys + threadIdx.x % 4 * 2;
#pragma unroll
  for (int e = 0; e < Config::kKeys / 8; e += kAtOnce) {
    uint16_t two[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (e + i < Config::kKeys / 8) two[i] = *reinterpret_cast<const uint16_t*>(row + first + (e + i) * 8);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (e + i >= Config::kKeys / 8) break;
      if (!(two[i] & 0xFF)) s[4 * (e + i) + 2 * r] = -INFINITY;
      if (!(two[i] >> 8)) s[4 * (e + i) + 2 * r + 1] = -INFINITY;
      part_loads(s[4 * (e + i) + 2 * r]), part_loads(s[4 * (e + i) + 2 * r + 1]);
    }
  }
}
template <class Config>
__device__ __forceinline__ void flash_mask(float (&s)[Config::kKeys / 2], const FlashShape& shape, const FlashTask& t,
                                           int place, int n) {
  const DeviceProblem& p = shape.p;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool* row = static_cast<const bool*>(p.mask.data) + plane_row(shape, t, p.mask, place + 8 * r);
    if (shape.mask_pairs && (n + 1) * Config::kKeys <= t.keys)
      flash_mask_pairs<Config>(s, row, r, n);
    else
      each_score<Config>(s, t, r, n, [&](float& x, int key) {
        if (!row[key * p.mask.col]) x = -INFINITY;
      });
  }
}

/// Products to final scores: scale, softcap, bias (from `tile` where shape.bias_tiles), mask and place. `place` is the
/// thread's first row of the tile, `first` its warp's.
template <class Config>
__device__ __forceinline__ void flash_finish_scores(float (&s)[Config::kKeys / 2], const FlashShape& shape,
                                                    const FlashBiasTile<Config>& tile, const FlashTask& t, int place,
                                                    int first, int n) {
  const DeviceProblem& p = shape.p;
  float scale = shape.scale;
  if (shape.softcap > 0) {
#pragma unroll
    for (float& x : s) x = soft_cap(x, shape);
    scale = 1;
  }
  if (Config::kBiasTiles && shape.bias_tiles) {
    flash_add_tile<Config>(s, tile, first, scale);
  } else if (p.bias.data) {
    flash_add_bias<Config>(s, shape, t, place, n, scale);
  } else {
#pragma unroll
    for (float& x : s) x *= scale;
  }
  if (p.mask.data) flash_mask<Config>(s, shape, t, place, n);
  if (t.hides_by_place(n)) flash_hide<Config>(s, shape, t, place, n);
}

}  // namespace tenor::attn
