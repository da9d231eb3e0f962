// Index entries in kernels: any integer dtype, checked where they are used.
#pragma once

#include "src/core/visit.h"
#include "src/cuda/content_error.cuh"
#include "src/cuda/layout.h"
#include "src/ops/index/index_cuda.h"

namespace tenor::index {

/// An index array of any integer dtype. The dtype is the same for all threads, so choosing by it costs no divergence.
struct Entries {
  const void* data;
  DType dtype;
  int64_t size;    ///< places
  bool from_zero;  ///< entries are 0..size-1
  bool resolved;   ///< entries come from resolve_places(): offsets, or -1 for one whose flag is up
  int op;          ///< of the flag
  cuda::ContentError* flag;
};

/// Host: the entries of an argument, with its stream's flag.
Entries entries_of(Argument at, const Tensor& index, int64_t size, bool from_zero = false);
Entries entries_of(const DeviceMove& move);
/// Host: looks at the entries of a move that moves nothing, and raises the flag for bad ones.
void look_at_entries(const DeviceMove& move);

/// 0..size-1, or -1 after raising the flag.
__device__ __forceinline__ int64_t checked_place(const Entries& e, int64_t value, int64_t at,
                                                 bool is_unsigned64 = false) {
  if (e.resolved) return value;
  const int64_t place = value < 0 && !e.from_zero && !is_unsigned64 ? value + e.size : value;
  if (place >= 0 && place < e.size) return place;
  cuda::raise_content_error(e.flag, e.op, at, value);
  return -1;
}

/// Entry `at` as it stands.
__device__ __forceinline__ int64_t raw_entry(const Entries& e, int64_t at) {
  switch (e.dtype) {
    case DType::kInt64:
    case DType::kUInt64:
      return static_cast<const int64_t*>(e.data)[at];
    case DType::kInt32:
      return static_cast<const int32_t*>(e.data)[at];
    case DType::kUInt32:
      return static_cast<const uint32_t*>(e.data)[at];
    case DType::kInt16:
      return static_cast<const int16_t*>(e.data)[at];
    case DType::kUInt16:
      return static_cast<const uint16_t*>(e.data)[at];
    case DType::kInt8:
      return static_cast<const int8_t*>(e.data)[at];
    default:
      return static_cast<const uint8_t*>(e.data)[at];
  }
}

/// The place that entry `at` names, or -1.
__device__ __forceinline__ int64_t place_of(const Entries& e, int64_t at) {
  return checked_place(e, raw_entry(e, at), at, e.dtype == DType::kUInt64);
}

/// N entries as they stand, at the positions at(k); a negative position gives 0. All are under way before the first is
/// looked at: place_of() of one after another would wait for each, since what it raises may not be passed.
template <int N, class At>
__device__ __forceinline__ void raw_entries(const Entries& e, At&& at, int64_t (&values)[N]) {
  if (e.dtype == DType::kInt64) {
#pragma unroll
    for (int k = 0; k < N; ++k) values[k] = at(k) < 0 ? 0 : static_cast<const int64_t*>(e.data)[at(k)];
  } else if (e.dtype == DType::kInt32) {
    int32_t narrow[N];
#pragma unroll
    for (int k = 0; k < N; ++k) narrow[k] = at(k) < 0 ? 0 : static_cast<const int32_t*>(e.data)[at(k)];
#pragma unroll
    for (int k = 0; k < N; ++k) values[k] = narrow[k];
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) values[k] = at(k) < 0 ? 0 : raw_entry(e, at(k));
  }
}
/// The place that an entry read before names, or -1.
__device__ __forceinline__ int64_t place_of_raw(const Entries& e, int64_t value, int64_t at) {
  return checked_place(e, value, at, e.dtype == DType::kUInt64);
}

/// The places of N neighbouring entries from `at` on, which is a multiple of N in an array aligned to 16 bytes.
template <int N>
__device__ __forceinline__ void places_of(const Entries& e, int64_t at, int64_t (&places)[N]) {
  if (e.dtype == DType::kInt64) {
#pragma unroll
    for (int k = 0; k < N; k += 2) {
      const longlong2 two = *reinterpret_cast<const longlong2*>(static_cast<const int64_t*>(e.data) + at + k);
      places[k] = two.x;
      places[k + 1] = two.y;
    }
  } else if (e.dtype == DType::kInt32 && N % 4 == 0) {
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      const int4 four = *reinterpret_cast<const int4*>(static_cast<const int32_t*>(e.data) + at + k);
      places[k] = four.x;
      places[k + 1] = four.y;
      places[k + 2] = four.z;
      places[k + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) places[k] = raw_entry(e, at + k);
  }
#pragma unroll
  for (int k = 0; k < N; ++k) places[k] = place_of_raw(e, places[k], at + k);
}

inline constexpr int64_t kLeastRowBytes = 48;  // shorter rows of any alignment are moved by elements

/// Takes the innermost dim off a layout of dense side, index and table when it is a row of both sides: its length, else
/// 0.
inline int64_t take_row(cuda::Layout<3>& layout) {
  const int last = layout.ndim - 1;
  if (last < 0 || layout.stride[0][last] != 1 || layout.stride[1][last] != 0 || layout.stride[2][last] != 1) return 0;
  layout.ndim = last;
  layout.count /= layout.size[last];
  return layout.size[last];
}

}  // namespace tenor::index
