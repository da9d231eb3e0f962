#include "src/core/visit.h"
#include "src/cuda/convert.cuh"
#include "src/cuda/launch.h"
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

/// A block joins a row: every thread the weights, then each its columns.
template <class T>
__global__ void __launch_bounds__(kThreads) join_rows(const __grid_constant__ DeviceProblem p, const float* partial,
                                                      const float* partial_lse, int parts, int64_t rows) {
  const int64_t r = blockIdx.x;
  const JoinRow row(p, r);
  float top = -INFINITY;
  for (int i = 0; i < parts; ++i) top = fmaxf(top, partial_lse[i * rows + r]);
  const float known = top == -INFINITY ? 0.0f : top;
  float sum = 0;
  for (int i = 0; i < parts; ++i) sum += expf(partial_lse[i * rows + r] - known);
  const bool none = sum == 0;
  float whole = sum;
  if (p.sinks && !none) {
    const int64_t at = row.head * p.sinks_stride;
    const float sink =
        p.sinks_float ? static_cast<const float*>(p.sinks)[at] : cuda::widen(static_cast<const T*>(p.sinks)[at]);
    whole += expf(sink - known);
  }
  for (int64_t c = threadIdx.x; c < p.value_dim; c += kThreads) {
    float x = 0;
    for (int i = 0; i < parts; ++i) {
      const float lse = partial_lse[i * rows + r];
      if (lse == -INFINITY) continue;  // no keys: not even a NaN of theirs
      x += expf(lse - known) * partial[(i * rows + r) * p.value_dim + c];
    }
    static_cast<T*>(p.out.data)[row.at(p.out) + c * p.out.col] = cuda::convert<T>(none ? 0.0f : x / whole);
  }
  if (p.lse.data && threadIdx.x == 0)
    static_cast<float*>(p.lse.data)[row.at(p.lse)] = none ? -INFINITY : known + logf(sum);
}

}  // namespace

void join_parts(const Problem& problem, const DeviceProblem& p, const Tensor& partial, const Tensor& partial_lse) {
  const int parts = static_cast<int>(partial.shape(0));
  const int64_t rows = partial_lse.numel() / parts;
  core::visit_float(problem.q.dtype, [&]<class T>() {
    if constexpr (sizeof(T) <= 4)
      cuda::launch("attention", join_rows<T>, cuda::Grid{dim3(static_cast<unsigned>(rows)), dim3(kThreads)},
                   problem.device, p, partial.data<float>(), partial_lse.data<float>(), parts, rows);
  });
}

}  // namespace tenor::attn
