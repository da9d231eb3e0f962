// The kernel of the pointwise engine. Storage dtypes are chosen at run time, alike for every thread, so that one kernel a
// formula and compute type serves every mixture; what is chosen at compile time is the vector width.
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

/// The storage types that a kernel computing in T reads and writes by itself; others are converted by a copy before or after.
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

/// The bytes of up to V elements, before they are converted: loads of all operands are under way before any is waited for.
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
    case 1: load_bytes<V>(p + at, raw.word); break;
    case 2: if constexpr (sizeof(T) >= 2) load_bytes<2 * V>(p + 2 * at, raw.word); break;
    case 4: if constexpr (sizeof(T) >= 4) load_bytes<4 * V>(p + 4 * at, raw.word); break;
    default: if constexpr (sizeof(T) == 8) load_bytes<8 * V>(p + 8 * at, raw.word); break;
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
  if (a.access[i] == Access::kVector) load_raw(a.in[i], a.item[i], at, raw);
  else if (a.access[i] == Access::kSplat) load_raw(a.in[i], a.item[i], at, reinterpret_cast<Raw<T, 1>&>(raw));
}
template <class T, int V>
__device__ __forceinline__ void decode_operand(const PointwiseArgs& a, int i, const Raw<T, V>& raw, T (&x)[V]) {
  if (a.access[i] == Access::kVector) return decode(raw, a.dtype[i], x);
  T one[1];
  if (a.access[i] == Access::kConstant) memcpy(one, &a.constant[i], sizeof(T));
  else decode(reinterpret_cast<const Raw<T, 1>&>(raw), a.dtype[i], one);
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
  if constexpr (N == 1) return f(x[0][v]);
  else if constexpr (N == 2) return f(x[0][v], x[1][v]);
  else return f(x[0][v], x[1][v], x[2][v]);
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

/// Units a thread: one vector keeps enough bytes under way at full occupancy, and more would multiply the code of every kernel.
template <class T, int V>
inline constexpr int kPointwiseUnroll = V == 1 ? 2 : 1;

template <class T, class R, int N, int V, class F>
__global__ void __launch_bounds__(kPointwiseThreads) pointwise_kernel(const __grid_constant__ PointwiseArgs a, const F f) {
  constexpr int U = kPointwiseUnroll<T, V>;
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
    if (blockIdx.x != 0 || threadIdx.x >= a.tail) return;
    const int64_t at = a.units * V + threadIdx.x;
    Raw<T, 1> one[N];
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (a.access[i] != Access::kConstant) load_raw(a.in[i], a.item[i], a.access[i] == Access::kVector ? at : 0, one[i]);
    T x[N][1];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (a.access[i] == Access::kConstant) memcpy(x[i], &a.constant[i], sizeof(T));
      else decode(one[i], a.dtype[i], x[i]);
    }
    const R y[1] = {static_cast<R>(apply<N, 1>(f, x, 0))};
    store_result(a.out, a.out_dtype, at, y);
  }
}

/// Runs f over a call whose operands' dtypes are Stored<T>::List's and whose result's is Stored<R>::List's.
template <class T, class R, int N, class F>
void run_pointwise(const PointwiseCall& call, const F& f) {
  constexpr int kWidest = std::is_same_v<T, float> || sizeof(T) <= 2 ? 8 : 4;
  const DeviceGuard guard(call.out.device());
  int width = 1;
  const PointwiseArgs args = plan_pointwise(call, kWidest, width);
  const auto go = [&]<int V>() {
    const int64_t a_block = kPointwiseThreads * kPointwiseUnroll<T, V>;
    const int64_t blocks = std::max<int64_t>((args.units + a_block - 1) / a_block, 1);
    launch(call.op, pointwise_kernel<T, R, N, V, F>, Grid{dim3(static_cast<unsigned>(blocks)), dim3(kPointwiseThreads)}, call.out.device(), args, f);
  };
  if (kWidest == 8 && width == 8) return go.template operator()<kWidest>();
  if (width == 4) return go.template operator()<4>();
  go.template operator()<1>();
}

}  // namespace tenor::cuda
