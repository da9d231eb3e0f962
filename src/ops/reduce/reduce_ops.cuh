// What a reduction is to its CUDA kernels. A core says how accumulators meet and what they end as; an operator adds how
// an element of T is taken in. Cores know nothing of T, so that the last stage is compiled once an accumulator type.
#pragma once

#include <cstring>
#include <limits>

#include "src/cuda/convert.cuh"
#include "src/ops/reduce/reduce_cuda.h"

namespace tenor::reduce {

using cuda::convert;
using cuda::Pack;
using cuda::widen;

struct NoShift {};

/// v, finished, to out[at] in out's dtype. `output` is the output's number.
template <class R>
__device__ __noinline__ void store_value(const Result& result, int64_t at, int64_t output, R v) {
  const Finish& f = result.finish;
  if constexpr (std::is_floating_point_v<R>) {
    switch (f.kind) {
      case FinishKind::kMean:
        v /= static_cast<R>(f.count);
        break;
      case FinishKind::kRoot:
        v = sqrt(v);
        break;
      case FinishKind::kPower:
        v = pow(v, static_cast<R>(f.parameter));
        break;
      case FinishKind::kLog:
        v = log(v) + static_cast<const R*>(f.shifts)[output];
        break;
      case FinishKind::kShift:
        v = isinf(v) ? R(0) : v;
        at = output;
        break;
      case FinishKind::kVar:
      case FinishKind::kStd: {
        const R freedom = static_cast<R>(f.parameter);
        v = freedom > 0 ? v / freedom : std::numeric_limits<R>::quiet_NaN();
        if (f.kind == FinishKind::kStd) v = sqrt(v);
        break;
      }
      default:
        break;
    }
    core::visit_float(f.out, [&]<class To>() { static_cast<To*>(result.out)[at] = convert<To>(v); });
  } else {
    if (f.kind == FinishKind::kAny) v = v != 0;
    if (f.kind == FinishKind::kAll) v = static_cast<double>(v) == f.count;
    core::visit(f.out, [&]<class To>() {
      if constexpr (!std::is_same_v<To, Float8E4M3> && !std::is_same_v<To, Float8E5M2>)
        static_cast<To*>(result.out)[at] = core::cast<To>(v);
    });
  }
}

/// Sums of floats and, modulo 2^64 as uint64_t, of integers.
template <class C>
struct SumCore {
  using Acc = C;
  static constexpr bool kOrdered =
      std::is_floating_point_v<C>;  ///< follows the reduction order; else any order gives the same
  __device__ Acc identity() const { return 0; }
  __device__ Acc merge(Acc a, Acc b) const { return a + b; }
  __device__ void store(const Result& result, int64_t at, int64_t output, Acc a) const {
    if constexpr (kOrdered)
      store_value<C>(result, at, output, a);
    else
      store_value<int64_t>(result, at, output, static_cast<int64_t>(a));
  }
};

template <class T, class C>
struct Sum {
  using Core = SumCore<C>;
  Core core;
  __device__ NoShift shift(int64_t, const T*, bool) const { return {}; }
  __device__ void fold(C& acc, T x, int64_t, NoShift) const {
    if constexpr (Core::kOrdered)
      acc += widen(x);
    else
      acc += static_cast<uint64_t>(static_cast<int64_t>(x));
  }
  /// Neighbours, each to its own accumulator: two bfloat16 are widened by two instructions, one by one by three.
  template <int V>
  __device__ void fold_each(C (&acc)[V], const Pack<T, V>& x) const requires(Core::kOrdered) {
    C wide[V];
    cuda::widen_pack(x, wide);
#pragma unroll
    for (int v = 0; v < V; ++v) acc[v] += wide[v];
  }
  /// Bytes, four to an instruction.
  __device__ void fold_packed(C& acc, const T (&x)[16]) const requires(sizeof(T) == 1) {
    const uint4 words = *reinterpret_cast<const uint4*>(x);
    if constexpr (std::is_signed_v<T>) {
      int sum = __dp4a(static_cast<int>(words.x), 0x01010101, __dp4a(static_cast<int>(words.y), 0x01010101, 0));
      sum = __dp4a(static_cast<int>(words.z), 0x01010101, __dp4a(static_cast<int>(words.w), 0x01010101, sum));
      acc += static_cast<uint64_t>(static_cast<int64_t>(sum));
    } else {
      acc += __dp4a(words.x, 0x01010101u,
                    __dp4a(words.y, 0x01010101u, __dp4a(words.z, 0x01010101u, __dp4a(words.w, 0x01010101u, 0u))));
    }
  }
};

__device__ __noinline__ inline float power_of(float x, float p) { return powf(fabsf(x), p); }
__device__ __noinline__ inline double power_of(double x, double p) { return pow(fabs(x), p); }

/// Sums of x^2, |x|, |x|^p or exp(x - shift).
template <class T, class C>
struct MappedSum {
  using Core = SumCore<C>;
  Core core;
  Map map;
  C power;
  const C* shifts;  ///< one an output, for kExp
  __device__ C shift(int64_t output, const T*, bool) const { return map == Map::kExp ? shifts[output] : C(0); }
  __device__ void fold(C& acc, T value, int64_t, C shift) const {
    const C x = widen(value);
    switch (map) {
      case Map::kSquare:
        acc += x * x;
        break;
      case Map::kAbs:
        acc += fabs(x);
        break;
      case Map::kExp:
        acc += exp(x - shift);
        break;
      default:
        acc += power_of(x, power);
    }
  }
};

template <class C>
struct ProdCore : SumCore<C> {
  __device__ C identity() const { return 1; }
  __device__ C merge(C a, C b) const { return a * b; }
};
template <class C>
struct Prod {
  using Core = ProdCore<C>;
  using T = std::conditional_t<std::is_floating_point_v<C>, C, int64_t>;
  Core core;
  __device__ NoShift shift(int64_t, const T*, bool) const { return {}; }
  __device__ void fold(C& acc, T x, int64_t, NoShift) const { acc *= static_cast<C>(x); }
};

/// How many x, seen as unsigned integers, are not zero under the mask (which hides a float's sign).
template <class T>
struct Count {
  using Core = SumCore<uint64_t>;
  Core core;
  T mask;
  __device__ NoShift shift(int64_t, const T*, bool) const { return {}; }
  __device__ void fold(uint64_t& acc, T x, int64_t, NoShift) const { acc += (x & mask) != 0; }
  __device__ void fold_packed(uint64_t& acc, const T (&x)[16]) const requires(sizeof(T) == 1) {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(x);
    int count = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) count += __popc((((words[k] & 0x7f7f7f7f) + 0x7f7f7f7f) | words[k]) & 0x80808080);
    acc += count;
  }
};

// ---- extremes: the largest of x, or of -x (integers: ~x) for the smallest; a NaN stays ----

/// What T is compared in.
template <class T>
using Comparable =
    std::conditional_t<std::is_integral_v<T>,
                       std::conditional_t<sizeof(T) == 8, T, std::conditional_t<std::is_signed_v<T>, int, unsigned>>,
                       core::Compute<T>>;

template <class K>
__device__ __forceinline__ K larger(K a, K b) {
  if constexpr (std::is_same_v<K, float>) {
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
  } else if constexpr (std::is_same_v<K, double>) {
    return !(a >= b) && a == a ? b : a;
  } else {
    return a > b ? a : b;
  }
}
template <class K>
__device__ __forceinline__ K mirrored(K x, bool smallest) {
  if constexpr (std::is_floating_point_v<K>)
    return smallest ? -x : x;
  else
    return smallest ? static_cast<K>(~x) : x;
}
template <class K>
__device__ __forceinline__ K least() {
  if constexpr (std::is_floating_point_v<K>)
    return -std::numeric_limits<K>::infinity();
  else
    return std::numeric_limits<K>::lowest();
}

/// Pairs of 16-bit floats, one an instruction.
template <class T>
inline constexpr bool kPairs = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;
template <class T>
__device__ __forceinline__ uint32_t larger_pair(uint32_t a, uint32_t b) {
  uint32_t y;
  if constexpr (std::is_same_v<T, BFloat16>)
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  else
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}
/// The largest of N pairs, half by half, once a mask is taken of their bits and the signs are flipped.
template <class T, int N>
__device__ __forceinline__ Pack<T, 2> largest_pair(const uint32_t (&pairs)[N], uint32_t mask, uint32_t flip) {
  uint32_t most = (pairs[0] & mask) ^ flip;
#pragma unroll
  for (int k = 1; k < N; ++k) most = larger_pair<T>(most, (pairs[k] & mask) ^ flip);
  return reinterpret_cast<const Pack<T, 2>&>(most);
}
/// Likewise the largest of eight.
template <class T>
__device__ __forceinline__ float largest_of(const T (&x)[8], uint32_t mask, uint32_t flip) {
  const uint4 words = reinterpret_cast<const uint4&>(x);
  const uint32_t pairs[] = {words.x, words.y, words.z, words.w};
  const Pack<T, 2> most = largest_pair<T>(pairs, mask, flip);
  return larger(widen(most.at[0]), widen(most.at[1]));
}
inline constexpr uint32_t kSigns = 0x80008000u;  ///< of a pair

template <class K>
struct ExtremeCore {
  using Acc = K;
  static constexpr bool kOrdered = false;
  bool smallest;
  __device__ Acc identity() const { return least<K>(); }
  __device__ Acc merge(Acc a, Acc b) const { return larger(a, b); }
  __device__ void store(const Result& result, int64_t at, int64_t output, Acc a) const {
    store_value<K>(result, at, output, mirrored(a, smallest));
  }
};
template <class T>
struct Extreme {
  using K = Comparable<T>;
  using Core = ExtremeCore<K>;
  Core core;
  bool magnitude;
  __device__ NoShift shift(int64_t, const T*, bool) const { return {}; }
  __device__ void fold(K& acc, T value, int64_t, NoShift) const {
    K x = static_cast<K>(widen(value));
    if constexpr (std::is_floating_point_v<K>) x = magnitude ? fabs(x) : x;
    acc = larger(acc, mirrored(x, core.smallest));
  }
  __device__ void fold_packed(K& acc, const T (&x)[16]) const requires(sizeof(T) == 1) {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(x);
    const uint32_t flip = core.smallest ? ~0u : 0u;
    const auto most = [](uint32_t a, uint32_t b) { return std::is_signed_v<T> ? __vmaxs4(a, b) : __vmaxu4(a, b); };
    const uint32_t four = most(most(words[0] ^ flip, words[1] ^ flip), most(words[2] ^ flip, words[3] ^ flip));
    T each[4];
    memcpy(each, &four, 4);
#pragma unroll
    for (T v : each) acc = larger(acc, mirrored(static_cast<K>(static_cast<T>(core.smallest ? ~v : v)), core.smallest));
  }
  __device__ uint32_t mask() const { return magnitude ? ~kSigns : ~0u; }
  __device__ uint32_t flip() const { return core.smallest ? kSigns : 0u; }
  __device__ void fold_packed(K& acc, const T (&x)[8]) const requires(kPairs<T>) {
    acc = larger(acc, largest_of(x, mask(), flip()));
  }
  /// N elements of each of two neighbouring columns.
  template <int N>
  __device__ void fold_pairs(K& left, K& right, const uint32_t (&pairs)[N]) const requires(kPairs<T>) {
    const Pack<T, 2> most = largest_pair<T>(pairs, mask(), flip());
    left = larger(left, static_cast<K>(widen(most.at[0])));
    right = larger(right, static_cast<K>(widen(most.at[1])));
  }
};

// ---- extremes with their places ----

template <class K>
struct Place {
  K value;
  int64_t index;
};

/// Whether b beats a at any index: it is greater, or the first NaN.
template <class K>
__device__ __forceinline__ bool beats(K b, K a) {
  return !(b <= a) && a == a;
}

template <class K>
struct ArgCore {
  using Acc = Place<K>;
  static constexpr bool kOrdered = false;
  bool smallest;
  __device__ Acc identity() const { return {least<K>(), INT64_MAX}; }
  /// The first NaN, else the first of the largest.
  __device__ Acc merge(Acc a, Acc b) const {
    const bool level = a.value == b.value || (a.value != a.value && b.value != b.value);
    return beats(b.value, a.value) || (level && b.index < a.index) ? b : a;
  }
  __device__ void store(const Result& result, int64_t at, int64_t output, Acc a) const {
    if (result.out) store_value<K>(result, at, output, mirrored(a.value, smallest));
    if (result.indices) result.indices[at] = a.index;
  }
};
template <class T>
struct Arg {
  using K = Comparable<T>;
  using Core = ArgCore<K>;
  Core core;
  __device__ NoShift shift(int64_t, const T*, bool) const { return {}; }
  __device__ K key(T x) const { return mirrored(static_cast<K>(widen(x)), core.smallest); }
  __device__ void fold(Place<K>& acc, T x, int64_t i, NoShift) const { acc = core.merge(acc, {key(x), i}); }
  __device__ uint32_t flip() const { return core.smallest ? kSigns : 0u; }
  /// The largest of a group whose first element has index i. Whether it is the extreme so far: the identity is level
  /// with the lowest value there is, so whoever comes first takes its place.
  __device__ bool take(Place<K>& acc, K most, int64_t i) const {
    const bool taken = beats(most, acc.value) || acc.index == INT64_MAX;
    if (taken) acc = {most, i};
    return taken;
  }
  /// N elements of each of two neighbouring columns, from index i on.
  template <int N>
  __device__ void fold_pairs(Place<K>& left, Place<K>& right, const uint32_t (&pairs)[N], int64_t i) const
      requires(kPairs<T>) {
    const Pack<T, 2> most = largest_pair<T>(pairs, ~0u, flip());
    take(left, widen(most.at[0]), i);
    take(right, widen(most.at[1]), i);
  }
  /// Of n neighbours, of V at most; n is positive.
  template <int V>
  __device__ K largest(const T (&x)[V], int n) const {
    if constexpr (V == 8 && kPairs<T>)
      if (n >= V) return largest_of(x, ~0u, flip());
    K most = key(x[0]);
#pragma unroll
    for (int j = 1; j < V; ++j)
      if (j < n) most = larger(most, key(x[j]));
    return most;
  }
  /// Whether neither beats the other.
  __device__ bool is_level(K a, K b) const { return a == b || (a != a && b != b); }
};

// ---- mean and sum of squared deviations, as pairs of groups meet (Chan, Golub and LeVeque, 1983), about the first
// element ----

template <class C>
struct Moment {
  C count, mean, squares;
};
template <class C>
struct MomentsCore {
  using Acc = Moment<C>;
  static constexpr bool kOrdered = true;
  __device__ Acc identity() const { return {0, 0, 0}; }
  __device__ Acc merge(Acc a, Acc b) const {
    if (b.count == 0) return a;
    const C count = a.count + b.count, share = a.count == b.count ? C(0.5) : b.count / count, apart = b.mean - a.mean;
    return {count, a.mean + apart * share, a.squares + b.squares + apart * apart * (a.count * share)};
  }
  /// Likewise of groups of `count` elements both: where that is known, neither a division nor a question remains.
  __device__ Acc merge_level(Acc a, Acc b, C count) const {
    const C apart = b.mean - a.mean;
    return {count + count, a.mean + apart * C(0.5), a.squares + b.squares + apart * apart * (count * C(0.5))};
  }
  __device__ void store(const Result& result, int64_t at, int64_t output, Acc a) const {
    store_value<C>(result, at, output, a.squares);
  }
};
template <class T, class C>
struct Moments {
  using Core = MomentsCore<C>;
  Core core;
  __device__ C shift(int64_t, const T* first, bool any) const { return any ? widen(*first) : C(0); }
  __device__ void fold(Moment<C>& acc, T x, int64_t, C shift) const {
    constexpr C kShares[] = {C(1), C(1) / 2, C(1) / 3, C(1) / 4};  // a leaf has four elements at most
    const C share = acc.count == 0   ? kShares[0]
                    : acc.count == 1 ? kShares[1]
                    : acc.count == 2 ? kShares[2]
                                     : kShares[3];
    const C value = widen(x) - shift, apart = value - acc.mean;
    acc.mean += apart * share;
    acc.squares += apart * (value - acc.mean);
    acc.count += 1;
  }
  /// Four elements at once, in two passes.
  __device__ void fold_leaf(Moment<C>& acc, T a, T b, T c, T d, C shift) const {
    const C x[] = {widen(a) - shift, widen(b) - shift, widen(c) - shift, widen(d) - shift};
    const C mean = ((x[0] + x[1]) + (x[2] + x[3])) * C(0.25);
    const C apart[] = {x[0] - mean, x[1] - mean, x[2] - mean, x[3] - mean};
    acc = {C(4), mean, (apart[0] * apart[0] + apart[1] * apart[1]) + (apart[2] * apart[2] + apart[3] * apart[3])};
  }
};

}  // namespace tenor::reduce
