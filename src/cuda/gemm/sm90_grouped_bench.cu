// Grouped products of mixtures of experts: events, L2 flushed before each launch, medians. Tokens are dealt to experts
// at random. usage: sm90_grouped_bench
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "src/cuda/gemm/sm90_bench.cuh"
#include "src/cuda/gemm/sm90_grouped.h"

namespace {

using tenor::cuda::gemm::GroupedProblem;

/// Each token goes to `top` experts, all different.
std::vector<int64_t> offsets_of(int experts, int tokens, int top, std::mt19937& rng) {
  std::vector<int64_t> offsets(experts + 1, 0);
  std::vector<int> ids(experts);
  std::iota(ids.begin(), ids.end(), 0);
  for (int t = 0; t < tokens; ++t) {
    for (int i = 0; i < top; ++i) std::swap(ids[i], ids[i + rng() % (experts - i)]), ++offsets[ids[i] + 1];
  }
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  return offsets;
}

void run(int experts, int top, int n, int k, const std::vector<int>& tokens, void* flush, size_t flush_bytes) {
  std::mt19937 rng(1);
  const int most = *std::max_element(tokens.begin(), tokens.end()) * top;
  __nv_bfloat16 *a, *b, *c;
  int64_t* offsets;
  cudaMalloc(&a, size_t(most) * k * 2), cudaMalloc(&b, size_t(experts) * n * k * 2),
      cudaMalloc(&c, size_t(most) * n * 2);
  cudaMalloc(&offsets, (experts + 1) * 8);
  fill<<<1024, 256>>>(a, size_t(most) * k, 1), fill<<<1024, 256>>>(b, size_t(experts) * n * k, 2);
  for (int t : tokens) {
    const auto host = offsets_of(experts, t, top, rng);
    cudaMemcpy(offsets, host.data(), host.size() * 8, cudaMemcpyHostToDevice);
    const GroupedProblem p{a, b, c, offsets, true, t * top, n, k, experts, k, k, int64_t{n} * k, n, true};
    std::vector<float> times;
    for (int i = -2; i < 11; ++i) {
      const float ms = time_once([&] { CHECK_CUDA(sm90_grouped(p, nullptr)); }, flush, flush_bytes);
      if (i >= 0) times.push_back(ms);
    }
    const float ms = median(times);
    int active = 0;
    for (int e = 0; e < experts; ++e) active += host[e + 1] > host[e];
    std::printf("E%d top %d N%d K%d, %d tokens: %.4f ms, %.2f TB/s of weights, %.1f TFLOP/s (%s)\n", experts, top, n, k,
                t, ms, double(active) * n * k * 2 / ms / 1e9, 2.0 * t * top * n * k / ms / 1e9,
                cudaGetErrorString(cudaGetLastError()));
  }
  for (void* x : {static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(c), static_cast<void*>(offsets)})
    cudaFree(x);
}

}  // namespace

int main() {
  const size_t flush_bytes = 256 << 20;
  void* flush;
  cudaMalloc(&flush, flush_bytes);
  run(128, 8, 1536, 2048, {1, 16, 256, 4096, 16384}, flush, flush_bytes);
  run(128, 8, 2048, 768, {1, 16, 256, 4096, 16384}, flush, flush_bytes);
  run(8, 2, 28672, 4096, {1, 16, 256, 4096}, flush, flush_bytes);
  run(256, 8, 4096, 7168, {1, 16, 128, 4096}, flush, flush_bytes);
}
