#include <algorithm>

#include "src/cuda/gemm/sm90_gemm_launch.cuh"
#include "src/cuda/gemm/sm90_gemm_map.h"
#include "src/cuda/gemm/sm90_rows.h"

namespace tenor::cuda::gemm {

int plan_rows(RowsShape& shape, int rows, int64_t ranges, int blocks, int bytes) {
  const int64_t shares = few_ranges(ranges, blocks) ? blocks / std::max<int64_t>(ranges, 1) : blocks,
                columns = few_ranges(ranges, blocks) ? shape.out.n : ranges * shape.out.n,
                most = (columns + shares - 1) / shares, widest = kRowsPass / shape.matrices,
                passes = (most + widest - 1) / widest;
  shape.pass = static_cast<int>(std::min<int64_t>((most + passes - 1) / passes, shape.out.n));
  // Up to 48 KB a stage, four of them at least: smaller ones cost a handshake each, larger ones leave gaps in the
  // stream.
  const int chunk = (shape.matrices * ((shape.pass + 7) / 8 * 8) + rows) * kTileK * 2;
  const int slack = 128 * kTileK * 2, room = bytes - slack;
  shape.chunks = std::clamp(std::min((48 << 10) / chunk, room / 4 / chunk), 1, (shape.out.k + kTileK - 1) / kTileK);
  shape.stages = std::min(kRowsMaxStages, room / (chunk * shape.chunks));
  return shape.stages * shape.chunks * chunk + slack;
}

cudaError_t sm90_rows(const GemmProblem& p, cudaStream_t stream) {
  const int64_t columns = int64_t{p.n} * p.batch[0] * p.batch[1];
  const int blocks = static_cast<int>(std::min<int64_t>(multiprocessors(), (columns + 7) / 8));
  return visit_rows(p.bfloat16, p.m, [&]<class T, int kRows>() {
    RowsShape shape{};
    shape.out = stores_of(p);
    const int bytes = plan_rows(shape, kRows, int64_t{p.batch[0]} * p.batch[1], blocks, kRowsBytes);
    shape.read_once = columns * p.k * 2 >= kHalfOfL2;
    CUtensorMap a, b;
    if (!make_map(&a, {p.a, p.m, p.k, p.stride_a, p.batch, p.batch_a}, p.bfloat16, kRows, kTileK) ||
        !make_map(&b, {p.b, p.n, p.k, p.stride_b, p.batch, p.batch_b}, p.bfloat16, shape.pass, kTileK, 128))
      return cudaErrorInvalidValue;
    const auto kernel = sm90_rows_kernel<T, kRows>;
    if (cudaError_t e = allow_shared(kernel, kRowsBytes); e != cudaSuccess) return e;
    kernel<<<blocks, kRowsThreads, bytes, stream>>>(a, b, shape);
    return cudaGetLastError();
  });
}

}  // namespace tenor::cuda::gemm
