// The Hopper GEMM beside cuBLASLt in one run: events, L2 flushed before each launch, medians of interleaved runs.
// usage: sm90_gemm_bench [plans]; one line a shape, or one a shape and plan.
#include <cublasLt.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "src/cuda/gemm/sm90_bench.cuh"
#include "src/cuda/gemm/sm90_gemm.h"

namespace {

using tenor::cuda::gemm::GemmPlan;
using tenor::cuda::gemm::GemmProblem;

/// cuBLASLt's first choice for row-major C = A * B^T.
std::function<void()> cublas(cublasLtHandle_t handle, const GemmProblem& p, void* workspace, size_t bytes) {
  cublasLtMatmulDesc_t op;
  cublasLtMatrixLayout_t a, b, c;
  const cublasOperation_t transposed = CUBLAS_OP_T;
  CHECK_CUDA(cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  CHECK_CUDA(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
  // Column-major: C^T[n,m] = B[k,n]^T A[k,m].
  CHECK_CUDA(cublasLtMatrixLayoutCreate(&a, CUDA_R_16BF, p.k, p.n, p.stride_b));
  CHECK_CUDA(cublasLtMatrixLayoutCreate(&b, CUDA_R_16BF, p.k, p.m, p.stride_a));
  CHECK_CUDA(cublasLtMatrixLayoutCreate(&c, CUDA_R_16BF, p.n, p.m, p.stride_c));
  cublasLtMatmulPreference_t preference;
  CHECK_CUDA(cublasLtMatmulPreferenceCreate(&preference));
  CHECK_CUDA(
      cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
  cublasLtMatmulHeuristicResult_t choice;
  int found = 0;
  CHECK_CUDA(cublasLtMatmulAlgoGetHeuristic(handle, op, a, b, c, c, preference, 1, &choice, &found));
  return [=] {
    const float one = 1, zero = 0;
    CHECK_CUDA(cublasLtMatmul(handle, op, &one, p.b, a, p.a, b, &zero, p.c, c, p.c, c, &choice.algo, workspace, bytes,
                              nullptr));
  };
}

/// A plan in words.
std::string text_of(const GemmPlan& plan) {
  if (plan.rows) return "rows";
  const tenor::cuda::gemm::TileShape* tiles;
  tenor::cuda::gemm::sm90_gemm_tiles(false, &tiles);
  const auto& t = tiles[plan.tile];
  return std::to_string(t.columns) + " columns, cluster " + std::to_string(t.cluster_m) + "x" +
         std::to_string(t.cluster_n) + (plan.turned ? ", turned" : "") + (plan.split ? ", split" : "");
}

/// Every plan's time, the chosen one marked.
void time_plans(const GemmProblem& p, void* flush, size_t flush_bytes) {
  const tenor::cuda::gemm::TileShape* tiles;
  const int count = tenor::cuda::gemm::sm90_gemm_tiles(p.b_outer, &tiles);
  const GemmPlan chosen = tenor::cuda::gemm::sm90_gemm_choice(p);
  for (int i = 0; i < 4 * count; ++i) {
    const GemmPlan plan{i / 4, i % 2 != 0, i % 4 / 2 != 0};
    std::vector<float> times;
    for (int i = -2; i < 7; ++i) {
      const float t =
          time_once([&] { CHECK_CUDA(tenor::cuda::gemm::sm90_gemm(p, plan, nullptr)); }, flush, flush_bytes);
      if (i >= 0) times.push_back(t);
    }
    std::printf("%dx%dx%d %s: %.1f us, %.1f TFLOP/s%s\n", p.m, p.n, p.k, text_of(plan).c_str(), median(times) * 1e3,
                2.0 * p.m * p.n * p.k / median(times) / 1e9, text_of(plan) == text_of(chosen) ? " (chosen)" : "");
  }
}

}  // namespace

int main(int argc, char**) {
  const int shapes[][3] = {{4096, 4096, 4096}, {8192, 8192, 8192}, {2048, 2048, 2048},  {4000, 4096, 4096},
                           {1000, 8192, 4096}, {333, 4096, 14336}, {4096, 14336, 4096}, {128, 14336, 4096},
                           {5000, 5000, 5000}, {64, 14336, 4096},  {256, 4096, 4096},   {3000, 3000, 3000},
                           {700, 14336, 4096}, {333, 14336, 4096}, {777, 5120, 5120},   {1500, 4096, 4096},
                           {1111, 2224, 3336}, {2500, 3072, 8192}, {450, 6144, 4096},   {128, 4096, 14336},
                           {200, 8192, 8192},  {1, 14336, 4096},   {16, 14336, 4096},   {16, 151936, 5120}};
  cublasLtHandle_t handle;
  CHECK_CUDA(cublasLtCreate(&handle));
  const size_t workspace_bytes = 64 << 20, flush_bytes = 256 << 20;
  void *workspace, *flush;
  CHECK_CUDA(cudaMalloc(&workspace, workspace_bytes));
  CHECK_CUDA(cudaMalloc(&flush, flush_bytes));
  for (const auto& [m, n, k] : shapes) {
    __nv_bfloat16 *a, *b, *c, *d;
    const size_t sa = size_t(m) * k, sb = size_t(n) * k, sc = size_t(m) * n;
    CHECK_CUDA(cudaMalloc(&a, sa * 2));
    CHECK_CUDA(cudaMalloc(&b, sb * 2));
    CHECK_CUDA(cudaMalloc(&c, sc * 2));
    CHECK_CUDA(cudaMalloc(&d, sc * 2));
    fill<<<1024, 256>>>(a, sa, 1);
    fill<<<1024, 256>>>(b, sb, 2);
    GemmProblem ours{a, b, c, m, n, k, k, k, n, true}, peer = ours;
    ours.workspace = workspace, peer.c = d;
    if (argc > 1) {
      time_plans(ours, flush, flush_bytes);
      for (void* x : {a, b, c, d}) cudaFree(x);
      continue;
    }
    const auto theirs = cublas(handle, peer, workspace, workspace_bytes);
    const auto mine = [&] { CHECK_CUDA(tenor::cuda::gemm::sm90_gemm(ours, nullptr)); };
    std::vector<float> x, y;
    const int rounds = size_t(m) * n * k > size_t{1} << 40 ? 8 : 20;
    for (int i = -3; i < rounds; ++i) {
      const float t = time_once(mine, flush, flush_bytes), u = time_once(theirs, flush, flush_bytes);
      if (i >= 0) x.push_back(t), y.push_back(u);
    }
    const double flops = 2.0 * m * n * k;
    std::printf(
        "{\"op\": \"gemm\", \"case\": \"%dx%dx%d\", \"dtype\": \"bfloat16\", \"ms\": %.4f, \"value\": %.1f, \"unit\": "
        "\"TFLOP/s\", \"strategy\": \"%s\", "
        "\"peer\": \"cublasLt\", \"peer_value\": %.1f, \"ratio\": %.3f}\n",
        m, n, k, median(x), flops / median(x) / 1e9, text_of(sm90_gemm_choice(ours)).c_str(), flops / median(y) / 1e9,
        median(y) / median(x));
    for (void* p : {a, b, c, d}) cudaFree(p);
  }
}
