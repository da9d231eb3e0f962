#include "src/core/visit.h"
#include "src/cuda/convert.cuh"
#include "src/cuda/launch.h"
#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/ops/attention/flash_join.h"

namespace tenor::attn {
namespace {

constexpr int kThreads = 128;

/// A row of the result and where it comes from.
struct JoinRow {
  int64_t batch, head, query;
  __device__ JoinRow(const DeviceProblem& p, int64_t r)
      : batch(r / p.queries / (p.kv_heads * p.group)),
        head(r / p.queries % (p.kv_heads * p.group)),
        query(r % p.queries) {}
  __device__ int64_t at(const Plane& x) const { return batch * x.batch + head * x.head + query * x.row; }
};

/// What a row's parts weigh, relative to the largest; a lane holds two of them.
struct JoinWeights {
  float known, sum, weight[2];
  uint32_t seen[2];  ///< parts with a visible key: of the others not even a NaN counts
  __device__ __forceinline__ JoinWeights(const float* lse, int parts, int64_t rows) : sum(0) {
    const int lane = threadIdx.x % 32;
    float own[2], top = -INFINITY;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      own[i] = i * 32 + lane < parts ? __ldcg(lse + (i * 32 + lane) * rows) : -INFINITY;
      top = fmaxf(top, own[i]), seen[i] = __ballot_sync(~0u, own[i] != -INFINITY);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    known = top == -INFINITY ? 0.0f : top;
#pragma unroll
    for (int i = 0; i < 2; ++i) sum += weight[i] = expf(own[i] - known);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  }
  __device__ __forceinline__ float of(int part) const {
    return __shfl_sync(~0u, part < 32 ? weight[0] : weight[1], part % 32);
  }
  __device__ __forceinline__ bool has(int part) const { return (part < 32 ? seen[0] : seen[1]) >> (part % 32) & 1; }
};

/// A row's result from its parts, where it is stored; each thread its columns, some parts on their way together.
template <class T>
__device__ __forceinline__ void join_row(const DeviceProblem& p, const float* partial, const float* partial_lse,
                                         int parts, int64_t rows, bool stores) {
  static_assert(kMostParts <= 64);
  constexpr int kTogether = 8;
  const int64_t r = blockIdx.x;
  const JoinRow row(p, r);
  const JoinWeights weights(partial_lse + r, parts, rows);
  const bool none = weights.sum == 0;
  float whole = weights.sum;
  if (p.sinks && !none) {
    const int64_t at = row.head * p.sinks_stride;
    const float sink =
        p.sinks_float ? static_cast<const float*>(p.sinks)[at] : cuda::widen(static_cast<const T*>(p.sinks)[at]);
    whole += expf(sink - weights.known);
  }
  for (int64_t first = 0; first < p.value_dim; first += kThreads) {  // all lanes, whose shuffles all take part in
    const int64_t c = first + threadIdx.x;
    float x = 0;
    for (int i = 0; i < parts; i += kTogether) {
      float part[kTogether];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const bool counts = i + j < parts && weights.has(i + j) && c < p.value_dim;
        part[j] = counts ? __ldcg(partial + ((i + j) * rows + r) * p.value_dim + c) : 0.0f;
      }
#pragma unroll
      for (int j = 0; j < kTogether; ++j) x += weights.of(i + j) * part[j];
    }
    if (stores && c < p.value_dim)
      static_cast<T*>(p.out.data)[row.at(p.out) + c * p.out.col] = cuda::convert<T>(none ? 0.0f : x / whole);
  }
  if (stores && p.lse.data && threadIdx.x == 0)
    static_cast<float*>(p.lse.data)[row.at(p.lse)] = none ? -INFINITY : weights.known + logf(weights.sum);
}

/// A block joins a row. Its first round, while the kernel in front ends, stores nothing: it brings the instructions,
/// for which all would wait afterwards.
template <class T>
__global__ void __launch_bounds__(kThreads) join_rows(const __grid_constant__ DeviceProblem p, const float* partial,
                                                      const float* partial_lse, int parts, int64_t rows) {
#pragma unroll 1
  for (int round = 0; round < 2; ++round) {
    if (round > 0) cuda::ptx::wait_for_previous();
    join_row<T>(p, partial, partial_lse, round > 0 ? parts : 1, rows, round > 0);
  }
}

}  // namespace

void join_parts(const Problem& problem, const DeviceProblem& p, const Tensor& partial, const Tensor& partial_lse) {
  const int parts = static_cast<int>(partial.shape(0));
  const int64_t rows = partial_lse.numel() / parts;
  core::visit_float(problem.q.dtype, [&]<class T>() {
    if constexpr (sizeof(T) <= 4)
      cuda::launch("attention", join_rows<T>,
                   cuda::Grid{.blocks = dim3(static_cast<unsigned>(rows)), .threads = dim3(kThreads), .early = true},
                   problem.device, p, partial.data<float>(), partial_lse.data<float>(), parts, rows);
  });
}

}  // namespace tenor::attn
