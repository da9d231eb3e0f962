// What the tests of this folder share.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tenor::cuda::gemm {

/// A copy on the device; the caller frees it.
template <class T>
T* device_copy(const std::vector<T>& host) {
  T* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, host.size() * sizeof(T)), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(p, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  return p;
}

/// Drawn from the normal distribution.
template <class T>
std::vector<T> random_values(size_t count, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<T> x(count);
  for (T& v : x) v = static_cast<T>(normal(rng));
  return x;
}

/// Whether the device has the kernels' instructions.
inline bool has_hopper() {
  int devices = 0, major = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return false;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  return major == 9;
}

}  // namespace tenor::cuda::gemm
