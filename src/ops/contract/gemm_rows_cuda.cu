// The "rows" candidate on CUDA: at most 16 rows against a matrix that is read once, at the memory's speed.
//
// A block takes a strip of the matrix's columns; its eight warps split k, and where strips are few, so do the blocks of
// a cluster. Partial sums meet in shared memory in a fixed order.
#include <algorithm>

#include "src/cuda/capability.h"
#include "src/cuda/launch.h"
#include "src/ops/contract/gemm_rows_cuda.cuh"

namespace tenor::contract {
namespace {

/// Whether the matrix's unit-stride runs, `length` long, `step` apart, start and end at multiples of 16 bytes.
bool matrix_aligned(const DeviceGemm& p, int64_t length, int64_t step, int64_t steps) {
  const int64_t unit = 16 / static_cast<int64_t>(item_size(p.b.dtype));
  bool aligned =
      reinterpret_cast<uintptr_t>(p.b.data) % 16 == 0 && length % unit == 0 && (steps == 1 || step % unit == 0);
  for (int d = 0; d < p.batch.ndim; ++d) aligned = aligned && p.batch.stride[1][d] % unit == 0;
  return aligned;
}

}  // namespace

void few_rows_cuda(const DeviceGemm& p) {
  const cuda::DeviceGuard guard(p.device);
  const bool dots = p.b.row == 1;
  const bool aligned = dots ? matrix_aligned(p, p.k, p.b.col, p.n) : matrix_aligned(p, p.n, p.b.row, p.k);
  const RowsChoice choice =
      p.a.dtype == DType::kFloat32 ? choose_rows_float(p, dots, aligned) : choose_rows_tensor(p, dots, aligned);
  const int64_t strips = (p.n + choice.cols - 1) / choice.cols, batches = std::min<int64_t>(p.batch.count, 65535);
  // Blocks of a cluster share a strip where there are too few strips to give every multiprocessor one and k is long
  // enough. No more: clusters do not pack as well as blocks, and one that waits for a second wave doubles the time.
  const int most = cuda::cluster_of(kMaxBlocks, p.device);
  int clusters = 1;
  while (clusters < most && strips * batches * clusters * 2 <= cuda::multiprocessors(p.device) &&
         p.k >= int64_t{512} * clusters)
    clusters *= 2;
  const cuda::Grid grid{dim3(static_cast<unsigned>(strips * clusters), static_cast<unsigned>(batches)), kThreads,
                        static_cast<size_t>(choice.shared), clusters};
  cuda::launch("matmul", choice.kernel, grid, p.device, p, clusters);
}

}  // namespace tenor::contract
