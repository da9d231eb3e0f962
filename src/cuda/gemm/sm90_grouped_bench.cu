// Grouped products of mixtures of experts: events, L2 flushed before each launch, medians. Tokens are dealt to experts
// at random. usage: sm90_grouped_bench [EXPERTS [TOKENS...]]
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "src/cuda/gemm/sm90_bench.cuh"
#include "src/cuda/gemm/sm90_grouped.h"

namespace {

using tenor::cuda::gemm::GroupedPlan;
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

/// swiglu: two matrices an expert, each of n columns.
void run(bool swiglu, int experts, int top, int n, int k, const std::vector<int>& tokens, void* flush,
         size_t flush_bytes) {
  std::mt19937 rng(1);
  const int matrices = swiglu ? 2 : 1, most = *std::max_element(tokens.begin(), tokens.end()) * top;
  __nv_bfloat16 *a, *b, *c;
  int64_t* offsets;
  cudaMalloc(&a, size_t(most) * k * 2), cudaMalloc(&b, size_t(experts) * n * k * matrices * 2),
      cudaMalloc(&c, size_t(most) * n * 2);
  cudaMalloc(&offsets, (experts + 1) * 8);
  fill<<<1024, 256>>>(a, size_t(most) * k, 1), fill<<<1024, 256>>>(b, size_t(experts) * n * k * matrices, 2);
  for (int t : tokens) {
    const auto host = offsets_of(experts, t, top, rng);
    cudaMemcpy(offsets, host.data(), host.size() * 8, cudaMemcpyHostToDevice);
    GroupedProblem p{a, b, c, offsets, true, t * top, n, k, experts, k, k, int64_t{n} * k, n, true};
    if (swiglu) p.up = b + size_t(experts) * n * k;
    int active = 0;
    for (int e = 0; e < experts; ++e) active += host[e + 1] > host[e];
    constexpr std::pair<GroupedPlan, const char*> kPlans[] = {{GroupedPlan::kRows, "rows"},
                                                              {GroupedPlan::kTiles, "tiles"},
                                                              {GroupedPlan::kWideTiles, "wide tiles"},
                                                              {GroupedPlan::kTallTiles, "tall tiles"}};
    for (const auto& [plan, name] : kPlans) {
      if (plan == GroupedPlan::kRows ? t * top > 96 * experts : t * top < 16 * experts) continue;
      std::vector<float> times;
      for (int i = -1; i < 9; ++i) {
        const float ms = time_once([&] { CHECK_CUDA(sm90_grouped(p, nullptr, plan)); }, flush, flush_bytes);
        if (i >= 0) times.push_back(ms);
      }
      const float ms = median(times);
      std::printf("%sE%d top %d N%d K%d, %d tokens, %s: %.4f ms, %.2f TB/s of weights, %.1f TFLOP/s (%s)\n",
                  swiglu ? "SwiGLU " : "", experts, top, n, k, t, name, ms,
                  double(active) * matrices * n * k * 2 / ms / 1e9, 2.0 * matrices * t * top * n * k / ms / 1e9,
                  cudaGetErrorString(cudaGetLastError()));
    }
  }
  for (void* x : {static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(c), static_cast<void*>(offsets)})
    cudaFree(x);
}

}  // namespace

int main(int count, char** names) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what is done is seen, whatever ends the run
  const size_t flush_bytes = 256 << 20;
  void* flush;
  cudaMalloc(&flush, flush_bytes);
  // Experts and tokens of the layers to run; 0: all.
  const int experts = count > 1 ? std::atoi(names[1]) : 0;
  std::vector<int> only;
  for (int i = 2; i < count; ++i) only.push_back(std::atoi(names[i]));
  const auto layer = [&](int e, int top, int hidden, int inner, std::vector<int> tokens) {
    if (experts != 0 && experts != e) return;
    if (!only.empty()) tokens = only;
    run(true, e, top, inner, hidden, tokens, flush, flush_bytes);
    run(false, e, top, hidden, inner, tokens, flush, flush_bytes);
  };
  layer(128, 8, 2048, 768, {1, 16, 256, 4096, 16384});
  layer(8, 2, 4096, 14336, {1, 16, 256, 4096});
  layer(256, 8, 7168, 2048, {1, 16, 128, 4096});
}
