// What the measurements of this folder share.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#define CHECK_CUDA(call)                                                                   \
  do {                                                                                     \
    const auto status = (call);                                                            \
    if (static_cast<int>(status) != 0) {                                                   \
      std::fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, int(status)); \
      std::exit(1);                                                                        \
    }                                                                                      \
  } while (0)

/// Uniform in [-1, 1).
static __global__ void fill(__nv_bfloat16* x, size_t count, unsigned seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    unsigned h = (static_cast<unsigned>(i) * 2654435761u) ^ seed;
    h ^= h >> 16, h *= 0x7feb352du, h ^= h >> 15, h *= 0x846ca68bu, h ^= h >> 16;
    x[i] = __float2bfloat16(static_cast<float>(h) * (2.0f / 4294967296.0f) - 1.0f);
  }
}

/// Milliseconds of what fn launches, after L2 has been written over.
inline float time_once(const std::function<void()>& fn, void* flush, size_t flush_bytes) {
  cudaEvent_t start, stop;
  cudaEventCreate(&start), cudaEventCreate(&stop);
  cudaMemsetAsync(flush, 0, flush_bytes);
  cudaEventRecord(start);
  fn();
  cudaEventRecord(stop);
  cudaEventSynchronize(stop);
  float ms = 0;
  cudaEventElapsedTime(&ms, start, stop);
  cudaEventDestroy(start), cudaEventDestroy(stop);
  return ms;
}

inline float median(std::vector<float> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}
