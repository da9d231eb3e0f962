// What is written of a sorted row that a warp or a block holds.
#pragma once

#include "src/ops/sort/sort_cuda.h"

namespace tenor::cuda {

/// An element's bits from its key, without a look at the element where the key tells them all: -0 and NaN share theirs.
template <class K>
__device__ __forceinline__ K element_of(const K* element, K key, core::KeyCode code) {
  const K zero = core::encode(K(0), code);
  if (code.kind == core::KeyKind::kFloat && (key == zero || key == core::nan_key<K>(code))) return *element;
  return core::decode(key, code);
}

/// Whether sorted element i is what is wanted, where one is. NaN stand at the end. `sorted` tells key(i) and index(i).
template <class K, class Sorted>
__device__ bool is_picked(const Sorted& sorted, int n, int i, const Wanted& wanted, core::KeyCode code) {
  const K nan = core::nan_key<K>(code);
  if (!wanted.nan_wins || sorted.key(n - 1) != nan) return i == wanted.first;
  return sorted.key(i) == nan && (i == 0 || sorted.key(i - 1) != nan);
}

/// By all threads along x. Either result may be null.
template <class K, class Sorted>
__device__ void write_wanted(const K* x, const Sorted& sorted, int n, const Wanted& wanted, core::KeyCode code,
                             K* values, int64_t* indices) {
  const bool one = wanted.count == 1;
  for (int i = one ? threadIdx.x : wanted.first + threadIdx.x; i < (one ? n : wanted.first + wanted.count);
       i += blockDim.x) {
    if (one && !is_picked<K>(sorted, n, i, wanted, code)) continue;
    const uint32_t index = sorted.index(i);
    const int at = one ? 0 : i - wanted.first;
    if (values) values[at] = element_of(x + index, sorted.key(i), code);
    if (indices) indices[at] = index;
  }
}

}  // namespace tenor::cuda
