// The kernels of the pointwise engine. `same_kernel` serves calls whose operands all have one storage type, with
// accesses of 16 bytes: nearly all that run long. `mixed_kernel` serves every other: storage types are chosen at run
// time, alike for every thread, so that one kernel a formula, compute type and vector width (4 or 1) takes every
// mixture.
#pragma once

#include <cstring>

#include "src/core/type_name.h"
#include "src/cuda/convert.cuh"
#include "src/cuda/launch.h"
#include "src/cuda/pointwise.h"
#include "src/cuda/vector.cuh"

namespace tenor::cuda {

template <class... T>
struct Types {};

/// The storage types that a kernel computing in T reads and writes by itself; others are converted by a copy before or
/// after.
template <class T>
struct Stored {
  using List = Types<T, bool>;
};
template <>
struct Stored<bool> {
  using List = Types<bool>;
};
template <>
struct Stored<float> {
  using List = Types<float, BFloat16, Float16>;
};
template <>
struct Stored<double> {
  using List = Types<double, float>;
};
template <>
struct Stored<int64_t> {
  using List = Types<int64_t, int32_t, int16_t, int8_t, bool, uint8_t, uint16_t, uint32_t, uint64_t>;
};
template <>
struct Stored<uint64_t> {
  using List = Types<uint64_t, bool, uint8_t, uint16_t, uint32_t>;
};

/// fn<S>() for the storage type of that dtype; false where the list has none.
template <class... S, class F>
__host__ __device__ __forceinline__ bool visit_stored(Types<S...>, DType dtype, F&& fn) {
  return ((dtype == core::kDTypeOf<S> ? (fn.template operator()<S>(), true) : false) || ...);
}
template <class... S>
bool holds(Types<S...>, DType dtype) {
  return ((dtype == core::kDTypeOf<S>) || ...);
}
template <class T>
bool is_stored(DType dtype) {
  return holds(typename Stored<T>::List{}, dtype);
}

/// The bytes of up to V elements, before they are converted: loads of all operands are under way before any is waited
/// for.
template <class T, int V>
struct Raw {
  static constexpr int kWords = (V * static_cast<int>(sizeof(T)) + 3) / 4;
  alignas(16) uint32_t word[kWords < 4 ? 4 : kWords];
};

template <int Bytes>
__device__ __forceinline__ void load_bytes(const void* p, uint32_t* to) {
  constexpr int kStep = Bytes < kVectorBytes ? Bytes : kVectorBytes;
#pragma unroll
  for (int i = 0; i < Bytes / kStep; ++i)
    *reinterpret_cast<Word<kStep>*>(to + i * kStep / 4) = reinterpret_cast<const Word<kStep>*>(p)[i];
}
template <int Bytes>
__device__ __forceinline__ void store_bytes(void* p, const uint32_t* from) {
  constexpr int kStep = Bytes < kVectorBytes ? Bytes : kVectorBytes;
#pragma unroll
  for (int i = 0; i < Bytes / kStep; ++i)
    reinterpret_cast<Word<kStep>*>(p)[i] = *reinterpret_cast<const Word<kStep>*>(from + i * kStep / 4);
}

/// V elements of any stored size from element `at` on.
template <class T, int V>
__device__ __forceinline__ void load_raw(const void* data, int item, int64_t at, Raw<T, V>& raw) {
  const auto* p = static_cast<const char*>(data);
  switch (item) {
    case 1:
      load_bytes<V>(p + at, raw.word);
      break;
    case 2:
      if constexpr (sizeof(T) >= 2) load_bytes<2 * V>(p + 2 * at, raw.word);
      break;
    case 4:
      if constexpr (sizeof(T) >= 4) load_bytes<4 * V>(p + 4 * at, raw.word);
      break;
    default:
      if constexpr (sizeof(T) == 8) load_bytes<8 * V>(p + 8 * at, raw.word);
      break;
  }
}

template <class T, int V>
__device__ __forceinline__ void decode(const Raw<T, V>& raw, DType dtype, T (&x)[V]) {
  visit_stored(typename Stored<T>::List{}, dtype, [&]<class S>() {
    S stored[V];
    memcpy(stored, raw.word, sizeof(stored));
#pragma unroll
    for (int v = 0; v < V; ++v) x[v] = convert<T>(stored[v]);
  });
}

/// Operand i of unit `at`, not yet converted.
template <class T, int V>
__device__ __forceinline__ void load_operand(const PointwiseArgs& a, int i, int64_t at, Raw<T, V>& raw) {
  if (a.access[i] == Access::kVector)
    load_raw(a.in[i], a.item[i], at, raw);
  else if (a.access[i] == Access::kSplat)
    load_raw(a.in[i], a.item[i], at, reinterpret_cast<Raw<T, 1>&>(raw));
}
template <class T, int V>
__device__ __forceinline__ void decode_operand(const PointwiseArgs& a, int i, const Raw<T, V>& raw, T (&x)[V]) {
  if (a.access[i] == Access::kVector) return decode(raw, a.dtype[i], x);
  T one[1];
  if (a.access[i] == Access::kConstant)
    memcpy(one, &a.constant[i], sizeof(T));
  else
    decode(reinterpret_cast<const Raw<T, 1>&>(raw), a.dtype[i], one);
#pragma unroll
  for (int v = 0; v < V; ++v) x[v] = one[0];
}

template <class R, int V>
__device__ __forceinline__ void store_result(void* out, DType dtype, int64_t at, const R (&y)[V]) {
  visit_stored(typename Stored<R>::List{}, dtype, [&]<class S>() {
    alignas(16) uint32_t word[(V * sizeof(S) + 15) / 16 * 4];
    S stored[V];
#pragma unroll
    for (int v = 0; v < V; ++v) stored[v] = convert<S>(y[v]);
    memcpy(word, stored, sizeof(stored));
    store_bytes<V * sizeof(S)>(static_cast<S*>(out) + at, word);
  });
}

template <int N, int V, class T, class F>
__device__ __forceinline__ auto apply(const F& f, const T (&x)[N][V], int v) {
  if constexpr (N == 1)
    return f(x[0][v]);
  else if constexpr (N == 2)
    return f(x[0][v], x[1][v]);
  else
    return f(x[0][v], x[1][v], x[2][v]);
}

/// One unit whose operands have been loaded.
template <class R, int N, int V, class T, class F>
__device__ __forceinline__ void finish_unit(const PointwiseArgs& a, const F& f, const Raw<T, V> (&raw)[N], int64_t at) {
  T x[N][V];
#pragma unroll
  for (int i = 0; i < N; ++i) decode_operand(a, i, raw[i], x[i]);
  R y[V];
#pragma unroll
  for (int v = 0; v < V; ++v) y[v] = static_cast<R>(apply<N, V>(f, x, v));
  store_result(a.out, a.out_dtype, at, y);
}

inline constexpr int kPointwiseThreads = 256;

/// This thread's place among those before a walk's first unit and behind its last, counted from the first unit.
__device__ __forceinline__ int64_t scalar_place(const PointwiseArgs& a, int width) {
  const int64_t i = threadIdx.x;
  return i < a.head ? i - a.head : a.units * width + (i - a.head);
}

/// Units a thread of the mixed kernel: one vector keeps enough bytes under way at full occupancy.
template <int V>
inline constexpr int kMixedUnits = V == 1 ? 4 : 1;

template <class T, class R, int N, int V, class F>
__global__ void __launch_bounds__(kPointwiseThreads) mixed_kernel(const __grid_constant__ PointwiseArgs a, const F f) {
  constexpr int U = kMixedUnits<V>;
  const int64_t first = blockIdx.x * int64_t{kPointwiseThreads * U} + threadIdx.x;
  Raw<T, V> raw[U][N];
  int64_t to[U];
#pragma unroll
  for (int k = 0; k < U; ++k) {
    const int64_t unit = first + k * kPointwiseThreads;
    if (unit >= a.units) break;
    int64_t at[kPointwiseInputs + 1];
    offsets(a.layout, unit, at);
    to[k] = at[kPointwiseInputs];
#pragma unroll
    for (int i = 0; i < N; ++i) load_operand(a, i, at[i], raw[k][i]);
  }
#pragma unroll
  for (int k = 0; k < U; ++k) {
    if (first + k * kPointwiseThreads >= a.units) break;
    finish_unit<R, N, V>(a, f, raw[k], to[k]);
  }
  if constexpr (V > 1) {
    if (blockIdx.x != 0 || threadIdx.x >= a.head + a.tail) return;
    const int64_t at = scalar_place(a, V);
    Raw<T, 1> one[N];
    T x[N][1];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (a.access[i] == Access::kConstant) {
        memcpy(x[i], &a.constant[i], sizeof(T));
      } else {
        load_raw(a.in[i], a.item[i], a.access[i] == Access::kVector ? at : 0, one[i]);
        decode(one[i], a.dtype[i], x[i]);
      }
    }
    const R y[1] = {static_cast<R>(apply<N, 1>(f, x, 0))};
    store_result(a.out, a.out_dtype, at, y);
  }
}

/// The storage type of operand i where the first is of S0 and the others of S.
template <int I, class S0, class S>
using OperandType = std::conditional_t<I == 0, S0, S>;

/// An operand of a unit as it lies in memory: a vector, or one element for all its places. They share no register: put
/// into a vector's place, an element of 16 bits would be one half of a word of either, and each load be waited for to
/// put the halves together before the next one starts.
template <class S, int V>
struct Fetched {
  Pack<S, V> vector;
  S single;
};
/// Operand I of a unit in the compute type.
template <int I, class S, class T, int V>
__device__ __forceinline__ void widen_operand(const PointwiseArgs& a, const Fetched<S, V>& from, T (&x)[V]) {
  if (a.access[I] == Access::kVector) return widen_pack(from.vector, x);
  T one;
  if (a.access[I] == Access::kConstant)
    memcpy(&one, &a.constant[I], sizeof(T));
  else
    one = convert<T>(from.single);
#pragma unroll
  for (int v = 0; v < V; ++v) x[v] = one;
}
/// V elements from `at` on, as accesses of 16 bytes at most.
template <int V, class S>
__device__ __forceinline__ void load_elements(const void* data, int64_t at, Pack<S, V>& pack) {
  load_bytes<V* static_cast<int>(sizeof(S))>(static_cast<const S*>(data) + at, reinterpret_cast<uint32_t*>(&pack));
}
/// Operand I, if that is how it is fetched.
template <int I, Access A, class S, int V>
__device__ __forceinline__ void fetch(const PointwiseArgs& a, int64_t at, Fetched<S, V>& to) {
  if (a.access[I] != A) return;
  if constexpr (A == Access::kVector)
    load_elements<V>(a.in[I], at, to.vector);
  else
    to.single = static_cast<const S*>(a.in[I])[at];
}

/// The operands of one unit.
template <class S0, class S, int N, int V>
struct Unit {
  Fetched<S0, V> first;
  Fetched<S, V> rest[N > 1 ? N - 1 : 1];
};
template <Access A, class S0, class S, int N, int V>
__device__ __forceinline__ void fetch_unit(const PointwiseArgs& a, const int64_t (&at)[kPointwiseInputs + 1],
                                           Unit<S0, S, N, V>& u) {
  fetch<0, A>(a, at[0], u.first);
  if constexpr (N > 1) fetch<1, A>(a, at[1], u.rest[0]);
  if constexpr (N > 2) fetch<2, A>(a, at[2], u.rest[1]);
}
/// The offsets of a unit. kFlat: the walk has one dim.
template <bool kFlat, int V>
__device__ __forceinline__ void unit_offsets(const PointwiseArgs& a, int64_t unit,
                                             int64_t (&at)[kPointwiseInputs + 1]) {
  if constexpr (kFlat) {
#pragma unroll
    for (int t = 0; t <= kPointwiseInputs; ++t)
      at[t] = t == kPointwiseInputs || a.access[t] == Access::kVector ? unit * V : 0;
  } else {
    plane_offsets(a.layout, unit, at);
  }
}
template <class T, class SR, class R, class S0, class S, int N, int V, class F>
__device__ __forceinline__ void finish(const PointwiseArgs& a, const F& f, const Unit<S0, S, N, V>& u, int64_t to) {
  T x[N][V];
  widen_operand<0>(a, u.first, x[0]);
  if constexpr (N > 1) widen_operand<1>(a, u.rest[0], x[1]);
  if constexpr (N > 2) widen_operand<2>(a, u.rest[1], x[2]);
  R values[V];
#pragma unroll
  for (int v = 0; v < V; ++v) values[v] = static_cast<R>(apply<N, V>(f, x, v));
  const Pack<SR, V> y = convert_pack<SR>(values);
  store_bytes<V* static_cast<int>(sizeof(SR))>(static_cast<SR*>(a.out) + to, reinterpret_cast<const uint32_t*>(&y));
}

/// One element outside the units; every operand moves by single elements there.
template <class T, class SR, class R, class S0, class S, int N, class F>
__device__ __forceinline__ void finish_scalar(const PointwiseArgs& a, const F& f, int64_t at) {
  T x[N][1];
  const auto value = [&]<int I>() {
    T y;
    if (a.access[I] == Access::kConstant)
      memcpy(&y, &a.constant[I], sizeof(T));
    else
      y = convert<T>(static_cast<const OperandType<I, S0, S>*>(a.in[I])[a.access[I] == Access::kVector ? at : 0]);
    return y;
  };
  x[0][0] = value.template operator()<0>();
  if constexpr (N > 1) x[1][0] = value.template operator()<1>();
  if constexpr (N > 2) x[2][0] = value.template operator()<2>();
  static_cast<SR*>(a.out)[at] = convert<SR>(static_cast<R>(apply<N, 1>(f, x, 0)));
}

/// Operand 0 is stored as S0, the others as S, the result as SR; V elements of S are 16 bytes. A unit a thread:
/// measured on an H200 (bfloat16, TB/s), 1, 2 and 4 reach 4.21, 4.07 and 4.04 of a copy, 4.15, 3.98 and 3.97 of a row's
/// bias, 4.36, 4.32 and 4.31 of add, as long as a unit's place takes few instructions. Streaming hints cost 10 percent
/// of all.
template <bool kFlat, class S0, class S, class SR, class T, class R, int N, class F>
__global__ void __launch_bounds__(kPointwiseThreads) same_kernel(const __grid_constant__ PointwiseArgs a, const F f) {
  constexpr int V = kVector<S>;
  const int64_t unit = blockIdx.x * int64_t{kPointwiseThreads} + threadIdx.x;
  if (unit < a.units) {
    int64_t at[kPointwiseInputs + 1];
    unit_offsets<kFlat, V>(a, unit, at);
    Unit<S0, S, N, V> u;
    fetch_unit<Access::kVector>(a, at, u);
    fetch_unit<Access::kSplat>(a, at, u);
    finish<T, SR, R>(a, f, u, at[kPointwiseInputs]);
  }
  if constexpr (kFlat)
    if (blockIdx.x == 0 && threadIdx.x < a.head + a.tail) finish_scalar<T, SR, R, S0, S, N>(a, f, scalar_place(a, V));
}

/// The storage types with a kernel of their own, by compute type.
template <class T>
struct SameStored {
  using List = Types<T>;
};
template <>
struct SameStored<float> {
  using List = Types<float, BFloat16, Float16>;
};
template <>
struct SameStored<int64_t> {
  using List = Types<int64_t, int32_t, int8_t, uint8_t>;
};

/// Blocks for that many units; one at least, for the places outside them.
inline int64_t unit_blocks(int64_t units, int64_t a_block) {
  return std::max<int64_t>((units + a_block - 1) / a_block, 1);
}

template <class F>
void launch_units(const PointwiseCall& call, int64_t blocks, void (*kernel)(PointwiseArgs, F),
                  const PointwiseArgs& args, const F& f) {
  launch(call.op, kernel, Grid{dim3(static_cast<unsigned>(blocks)), dim3(kPointwiseThreads)}, call.out.device(), args,
         f);
}

/// Whether the memory operands from `from` on, and the result unless it is a bool, are all stored as S.
template <class S, class R>
bool all_stored_as(const PointwiseCall& call, int from) {
  bool same = call.out_dtype == (std::is_same_v<R, bool> ? boolean : core::kDTypeOf<S>);
  for (int i = from; i < call.arity; ++i) same = same && (call.in[i].constant || call.in[i].dtype == core::kDTypeOf<S>);
  return same;
}

template <class S0, class S, class T, class R, int N, class F>
bool run_same(const PointwiseCall& call, PointwiseWalk& walk, const F& f) {
  using SR = std::conditional_t<std::is_same_v<R, bool>, bool, S>;
  if (!cut_pointwise(walk, kVector<S>)) return false;
  const int64_t blocks = unit_blocks(walk.args.units, kPointwiseThreads);
  launch_units<F>(
      call, blocks,
      walk.args.layout.ndim == 1 ? same_kernel<true, S0, S, SR, T, R, N, F> : same_kernel<false, S0, S, SR, T, R, N, F>,
      walk.args, f);
  return true;
}
template <class T, class R, int N, class F, class... S>
bool run_any_same(Types<S...>, const PointwiseCall& call, PointwiseWalk& walk, const F& f) {
  return ((all_stored_as<S, R>(call, 0) && run_same<S, S, T, R, N>(call, walk, f)) || ...);
}

template <class T, class R, int N, class F>
void run_mixed(const PointwiseCall& call, PointwiseWalk& walk, const F& f) {
  if (cut_pointwise(walk, 4))
    return launch_units<F>(call, unit_blocks(walk.args.units, kPointwiseThreads * kMixedUnits<4>),
                           mixed_kernel<T, R, N, 4, F>, walk.args, f);
  launch_units<F>(call, unit_blocks(walk.args.units, kPointwiseThreads * kMixedUnits<1>), mixed_kernel<T, R, N, 1, F>,
                  walk.args, f);
}

/// Runs f over a call whose operands' dtypes are Stored<T>::List's and whose result's is Stored<R>::List's.
template <class T, class R, int N, class F>
void run_pointwise(const PointwiseCall& call, const F& f) {
  const DeviceGuard guard(call.out.device());
  PointwiseWalk walk = walk_pointwise(call);
  if (!run_any_same<T, R, N>(typename SameStored<T>::List{}, call, walk, f)) run_mixed<T, R, N>(call, walk, f);
}

/// f(condition, a, b) over bits: the condition is stored as bool, the others and the result as U.
template <class U, class F>
void run_select(const PointwiseCall& call, const F& f) {
  const DeviceGuard guard(call.out.device());
  PointwiseWalk walk = walk_pointwise(call);
  if (!all_stored_as<U, U>(call, 1) || !run_same<bool, U, U, U, 3>(call, walk, f)) run_mixed<U, U, 3>(call, walk, f);
}

}  // namespace tenor::cuda
