// One element of a contraction: read, multiplied and added, rounded.
#pragma once

#include "src/cuda/convert.cuh"

namespace tenor::contract {

/// acc + a * b: fused for floats, wrapping for integers, "or" of "and" for bool.
template <class T>
__device__ __forceinline__ T multiply_add(T a, T b, T acc) {
  if constexpr (std::is_same_v<T, float>) {
    return fmaf(a, b, acc);
  } else if constexpr (std::is_same_v<T, double>) {
    return fma(a, b, acc);
  } else if constexpr (std::is_same_v<T, bool>) {
    return acc || (a && b);
  } else {
    using Wide = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;  // unsigned wraps, and nothing promotes to int
    return static_cast<T>(static_cast<Wide>(acc) + static_cast<Wide>(a) * static_cast<Wide>(b));
  }
}

/// Element i of an array: of T, or where T is float, of any of the dtypes that float kernels read.
template <class T>
__device__ __forceinline__ T element(const void* data, DType dtype, int64_t i) {
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::kBFloat16) return cuda::convert<float>(static_cast<const BFloat16*>(data)[i]);
    if (dtype == DType::kFloat16) return cuda::convert<float>(static_cast<const Float16*>(data)[i]);
  }
  return static_cast<const T*>(data)[i];
}
template <class T>
__device__ __forceinline__ void set_element(void* data, DType dtype, int64_t i, T value) {
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::kBFloat16) return void(static_cast<BFloat16*>(data)[i] = cuda::convert<BFloat16>(value));
    if (dtype == DType::kFloat16) return void(static_cast<Float16*>(data)[i] = cuda::convert<Float16>(value));
  }
  static_cast<T*>(data)[i] = value;
}

}  // namespace tenor::contract
