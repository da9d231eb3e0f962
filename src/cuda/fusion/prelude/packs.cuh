// What fused kernels are written in: packs of neighbouring elements, each in the dtype that its step rounds to. A value
// that is the same for all places of a pack is a pack of one.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/cuda/lasting.cuh"
#include "src/cuda/layout.h"
#include "src/ops/elementwise/formulas/activation.cuh"
#include "src/ops/elementwise/formulas/arithmetic.cuh"
#include "src/ops/elementwise/formulas/compare.cuh"
#include "src/ops/elementwise/formulas/division.cuh"
#include "src/ops/elementwise/formulas/logic.cuh"
#include "src/ops/elementwise/formulas/math.cuh"

namespace tenor::fused {

using cuda::convert;
using cuda::Pack;
using elementwise::Formula;
using elementwise::Op;

/// What a kernel is told. The first kKept dims are walked outside of rows, the others within.
template <int kArrays, int kDims, int kScalars>
struct Parameters {
  void* data[kArrays];  ///< of each load and store: its first element
  int64_t stride[kArrays][kDims];
  int64_t size[kDims];
  uint64_t scalar[kScalars];  ///< an element of the scalar's dtype, or a double
  int64_t count;              ///< units of a loop; rows
  int64_t tail;               ///< of a loop: elements behind its units
  int64_t length;             ///< of a row
  int64_t each;               ///< blocks of a row that a warp takes
  cuda::Divider divider[kDims];
};

/// Quotient and rest of a place by the size of dim d.
template <class P>
__device__ __forceinline__ int divide(const P& p, int d, int at) {
  return static_cast<int>(cuda::divide(static_cast<uint32_t>(at), p.divider[d]));
}
template <class P>
__device__ __forceinline__ int64_t divide(const P& p, int d, int64_t at) {
  return at / p.size[d];
}

template <class T>
__device__ __forceinline__ T scalar_of(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T>
__device__ __forceinline__ Pack<T, 1> scalar(uint64_t bits) {
  return {scalar_of<T>(bits)};
}

// ---- memory ----

/// V neighbours from p on, which is aligned for accesses of 16 bytes or of all of them.
template <class T, int V>
__device__ __forceinline__ Pack<T, V> load(const T* p) {
  constexpr int kBytes = V * static_cast<int>(sizeof(T)), kStep = kBytes < 16 ? kBytes : 16;
  using W = cuda::Word<kStep>;
  Pack<T, V> x;
#pragma unroll
  for (int i = 0; i < kBytes / kStep; ++i) reinterpret_cast<W*>(&x)[i] = reinterpret_cast<const W*>(p)[i];
  return x;
}
/// Likewise, of what is read once while as much is written: where 16 bytes, they leave L2 last.
template <class T, int V>
__device__ __forceinline__ Pack<T, V> load_lasting(const T* p) {
  constexpr int kBytes = V * static_cast<int>(sizeof(T));
  if constexpr (kBytes % cuda::kVectorBytes != 0) {
    return load<T, V>(p);
  } else {
    Pack<T, V> x;
#pragma unroll
    for (int i = 0; i < kBytes / cuda::kVectorBytes; ++i)
      reinterpret_cast<uint4*>(&x)[i] = cuda::load_lasting(reinterpret_cast<const uint4*>(p) + i);
    return x;
  }
}
/// V elements that lie `stride` apart.
template <class T, int V, class I>
__device__ __forceinline__ Pack<T, V> load_apart(const T* p, I stride) {
  Pack<T, V> x;
#pragma unroll
  for (int v = 0; v < V; ++v) x.at[v] = p[v * stride];
  return x;
}
template <class T, int V>
__device__ __forceinline__ void store(T* p, const Pack<T, V>& x) {
  constexpr int kBytes = V * static_cast<int>(sizeof(T)), kStep = kBytes < 16 ? kBytes : 16;
  using W = cuda::Word<kStep>;
#pragma unroll
  for (int i = 0; i < kBytes / kStep; ++i) reinterpret_cast<W*>(p)[i] = reinterpret_cast<const W*>(&x)[i];
}
template <class T, int V, class I>
__device__ __forceinline__ void store_apart(T* p, I stride, const Pack<T, V>& x) {
#pragma unroll
  for (int v = 0; v < V; ++v) p[v * stride] = x.at[v];
}
/// The pack that has x in all places.
template <int V, class T, int N>
__device__ __forceinline__ Pack<T, V> spread(const Pack<T, N>& x) {
  if constexpr (V == N) {
    return x;
  } else {
    Pack<T, V> y;
#pragma unroll
    for (int v = 0; v < V; ++v) y.at[v] = x.at[0];
    return y;
  }
}

// ---- steps ----

/// x as its step computes with it, in all places of V.
template <class T, int V, class S, int N>
__device__ __forceinline__ void widen_into(const Pack<S, N>& x, T (&to)[V]) {
  if constexpr (N == V) {
    cuda::widen_pack(x, to);
  } else {
    const T one = convert<T>(x.at[0]);
#pragma unroll
    for (int v = 0; v < V; ++v) to[v] = one;
  }
}

/// Whether a formula has a shorter form for results that are stored as R.
template <class F, class R>
inline constexpr bool kIsBrief = sizeof(R) == 2 && requires(const F& f) {
  f.brief(0.f);
};

template <class T>
struct ComputeOf;
template <Op kOp, class T>
struct ComputeOf<Formula<kOp, T>> {
  using Type = T;
};

template <class F, class R, class... T>
__device__ __forceinline__ auto apply(const F& f, T... x) {
  if constexpr (sizeof...(T) == 1 && kIsBrief<F, R> && std::is_same_v<typename ComputeOf<F>::Type, float>)
    return f.brief(x...);
  else
    return f(x...);
}

/// Sums, differences, products and relu of 16-bit floats by pairs. Their bits are those of computing in float and
/// rounding once: 24 bits of a significand are at least 2 p + 2 for the p = 8 or 11 of the operands, so that rounding
/// twice is rounding once (Figueroa, SIGNUM Newsletter 30, 1995), and float has every exponent of their results.
template <class F, class R>
struct Pairs {
  static constexpr bool kAre = false;
};
#define TENOR_PAIRS(OP, INSTRUCTION, ...)                                       \
  template <>                                                                   \
  struct Pairs<Formula<OP, float>, BFloat16> {                                  \
    static constexpr bool kAre = __CUDA_ARCH__ >= 900;                          \
    static __device__ __forceinline__ uint32_t of(uint32_t a, uint32_t b = 0) { \
      uint32_t y;                                                               \
      asm(INSTRUCTION ".bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));        \
      return y;                                                                 \
    }                                                                           \
  };                                                                            \
  template <>                                                                   \
  struct Pairs<Formula<OP, float>, Float16> {                                   \
    static constexpr bool kAre = __CUDA_ARCH__ >= 800;                          \
    static __device__ __forceinline__ uint32_t of(uint32_t a, uint32_t b = 0) { \
      uint32_t y;                                                               \
      asm(INSTRUCTION ".f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));         \
      return y;                                                                 \
    }                                                                           \
  }
TENOR_PAIRS(Op::kAdd, "add.rn");
TENOR_PAIRS(Op::kSub, "sub.rn");
TENOR_PAIRS(Op::kMul, "mul.rn");
TENOR_PAIRS(Op::kRelu, "max.NaN");
#undef TENOR_PAIRS

template <int V, class T, int N>
__device__ __forceinline__ void words_of(const Pack<T, N>& x, uint32_t (&words)[V / 2]) {
  if constexpr (N == V) {
    memcpy(words, &x, sizeof(words));
  } else {
    const uint32_t one = x.at[0].bits;
#pragma unroll
    for (uint32_t& word : words) word = one << 16 | one;
  }
}
template <class R, int V, class F, class... X>
__device__ __forceinline__ Pack<R, V> map_pairs(const X&... x) {
  uint32_t in[sizeof...(X)][V / 2], out[V / 2];
  int i = 0;
  (words_of<V>(x, in[i++]), ...);
#pragma unroll
  for (int w = 0; w < V / 2; ++w) {
    if constexpr (sizeof...(X) == 1)
      out[w] = Pairs<F, R>::of(in[0][w]);
    else
      out[w] = Pairs<F, R>::of(in[0][w], in[1][w]);
  }
  Pack<R, V> y;
  memcpy(&y, out, sizeof(y));
  return y;
}

template <class R, class X>
inline constexpr bool kHolds = false;
template <class R, int N>
inline constexpr bool kHolds<R, Pack<R, N>> = true;
template <int V, class... X>
inline constexpr bool kAreQuotients = false;
template <int V>
inline constexpr bool kAreQuotients<V, Pack<BFloat16, V>, Pack<BFloat16, 1>> = true;

/// The quotients of 8 bfloat16, as their formula gives them. Apart from the kernels, whose registers it would cost.
static __device__ __noinline__ uint4 exact_quotients(uint4 words, float divisor) {
  Pack<BFloat16, 8> a;
  memcpy(&a, &words, sizeof(a));
  float x[8];
  cuda::widen_pack(a, x);
#pragma unroll 1
  for (float& v : x) v = Formula<Op::kDiv, float>()(v, divisor);
  a = cuda::convert_pack<BFloat16>(x);
  memcpy(&words, &a, sizeof(a));
  return words;
}
/// bfloat16 by one bfloat16 for all. A quotient of two significands of 8 bits is no midpoint of two others and 2^-17
/// away from any, so a product with the reciprocal, which errs by 2^-22 at most, rounds alike, where it is not
/// subnormal.
template <int V>
__device__ __forceinline__ Pack<BFloat16, V> quotients(const Pack<BFloat16, V>& a, const Pack<BFloat16, 1>& b) {
  const float divisor = convert<float>(b.at[0]), reciprocal = cuda::reciprocal_approx(divisor);
  float q[V], least = 1.0f;
  cuda::widen_pack(a, q);
#pragma unroll
  for (float& x : q) {
    x *= reciprocal;
    least = fminf(least, fabsf(x));
  }
  Pack<BFloat16, V> y = cuda::convert_pack<BFloat16>(q);
  if (!(least >= 0x1p-126f && fabsf(divisor) >= 0x1p-60f && fabsf(divisor) <= 0x1p60f)) {
    uint4 words{};
    memcpy(&words, &a, sizeof(a));
    words = exact_quotients(words, divisor);
    memcpy(&y, &words, sizeof(y));
  }
  return y;
}

template <int V, class... X>
inline constexpr bool kAreFloatQuotients = false;
template <int V>
inline constexpr bool kAreFloatQuotients<V, Pack<float, V>, Pack<float, 1>> = V >= 4;

/// The lesser, or NaN where one is.
__device__ __forceinline__ float lesser(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
/// A divisor of many floats: its reciprocal as a sum of two floats, and the least quotient that it leads to.
struct Divisor {
  float value, high, low, enough;
  __device__ __forceinline__ explicit Divisor(float by)
      : value(by), high(1.0f / by), low(fmaf(-by, high, 1.0f) * high) {
    const float size = fabsf(by);
    const bool usual = size >= 0x1p-60f && size <= 0x1p60f;
    enough = usual ? 0x1p-100f * fmaxf(1.0f, fabsf(high)) : std::numeric_limits<float>::infinity();
  }
};
/// float by one float, rounded as IEEE 754 says: q = a / by. a * (high + low) is rounded to a neighbour of the
/// quotient. What is left then is exact, and its product with the rounded reciprocal leads to the rounded quotient
/// (Markstein, IBM J. Res. Dev. 34, 1990) where nothing on the way is subnormal or overflows, in which case it shows:
/// as a small or a NaN quotient. The others, zeros aside, are divided.
template <int kCount>
__device__ __forceinline__ void divide_by(const Divisor& by, const float* a, float* q) {
  float least = 1.0f;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float near = fmaf(a[i], by.high, a[i] * by.low), rest = fmaf(-by.value, near, a[i]);
    q[i] = fmaf(rest, by.high, near);
    least = lesser(least, fabsf(q[i]));
  }
  if (least >= by.enough) return;
  least = 1.0f;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const bool zero = a[i] == 0;
    least = lesser(least, zero ? 1.0f : fabsf(q[i]));
    if (zero) q[i] = a[i] * by.high;
  }
  if (least >= by.enough) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) q[i] = a[i] / by.value;
}
// Of a pack, as many at a time: fewer take fewer registers, and more instructions. A kernel's text may say other.
#ifndef TENOR_QUOTIENTS_AT_ONCE
#define TENOR_QUOTIENTS_AT_ONCE 8
#endif
template <int V>
__device__ __forceinline__ Pack<float, V> quotients(const Pack<float, V>& a, const Pack<float, 1>& b) {
  constexpr int kAtOnce = V < TENOR_QUOTIENTS_AT_ONCE ? V : TENOR_QUOTIENTS_AT_ONCE;
  const Divisor by(b.at[0]);
  Pack<float, V> q;
#pragma unroll
  for (int i = 0; i < V; i += kAtOnce) divide_by<kAtOnce>(by, a.at + i, q.at + i);
  return q;
}

/// A step: f of V elements of each operand, computed in C and rounded to R.
template <class R, class C, int V, class F, class... X>
__device__ __forceinline__ Pack<R, V> map(const F& f, const X&... x) {
  if constexpr (V % 2 == 0 && Pairs<F, R>::kAre && (kHolds<R, X> && ...)) return map_pairs<R, V, F>(x...);
  if constexpr (V > 1 && std::is_same_v<F, Formula<Op::kDiv, float>> && std::is_same_v<R, BFloat16> &&
                kAreQuotients<V, X...>)
    return quotients<V>(x...);
  if constexpr (std::is_same_v<F, Formula<Op::kDiv, float>> && std::is_same_v<R, float> && kAreFloatQuotients<V, X...>)
    return quotients<V>(x...);
  using T = typename ComputeOf<F>::Type;
  constexpr int kOperands = sizeof...(X);
  T in[kOperands][V];
  int i = 0;
  (widen_into<T, V>(x, in[i++]), ...);
  C out[V];
#pragma unroll
  for (int v = 0; v < V; ++v) {
    if constexpr (kOperands == 1)
      out[v] = static_cast<C>(apply<F, R>(f, in[0][v]));
    else if constexpr (kOperands == 2)
      out[v] = static_cast<C>(apply<F, R>(f, in[0][v], in[1][v]));
    else
      out[v] = static_cast<C>(apply<F, R>(f, in[0][v], in[1][v], in[2][v]));
  }
  return cuda::convert_pack<R>(out);
}

/// where(): the values are moved as they are.
template <class R, int V, int N, int A, int B>
__device__ __forceinline__ Pack<R, V> select(const Pack<bool, N>& which, const Pack<R, A>& a, const Pack<R, B>& b) {
  Pack<R, V> y;
#pragma unroll
  for (int v = 0; v < V; ++v) y.at[v] = which.at[N == 1 ? 0 : v] ? a.at[A == 1 ? 0 : v] : b.at[B == 1 ? 0 : v];
  return y;
}

/// x in another dtype.
template <class R, class S, int N>
__device__ __forceinline__ Pack<R, N> converted(const Pack<S, N>& x) {
  return cuda::convert_pack<R>(x.at);
}

}  // namespace tenor::fused
