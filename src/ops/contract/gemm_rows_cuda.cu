// The "rows" candidate on CUDA: at most 16 rows against a matrix that is read once, at the memory's speed.
//
// A block takes a strip of the matrix's columns; its warps split k, and where strips are few, so do the blocks of a
// cluster. Partial sums meet in shared memory in a fixed order.
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

/// Whether so much is read that it would push everything else out of L2, and itself too.
bool read_once(const DeviceGemm& p) {
  constexpr int64_t kHalfOfL2 = 32 << 20;
  int64_t bytes = p.n * p.k * static_cast<int64_t>(item_size(p.b.dtype));
  for (int d = 0; d < p.batch.ndim; ++d) bytes *= p.batch.stride[1][d] == 0 ? 1 : p.batch.size[d];
  return bytes >= kHalfOfL2;
}

/// Blocks' shares of the columns.
int64_t strips_of(const DeviceGemm& p, const RowsChoice& choice, const RowsSplit& split) {
  const int64_t cols = int64_t{choice.cols} * (choice.warps >> split.warp_bits);
  return (p.n + cols - 1) / cols;
}

RowsSplit split_of(const DeviceGemm& p, const RowsChoice& choice) {
  RowsSplit split{.read_once = read_once(p)};
  const auto all_warps = [&] { return 1 << split.warp_bits == choice.warps; };
  while (!all_warps() && (choice.inner == 0 || int64_t{choice.inner} << split.warp_bits < p.k)) ++split.warp_bits;
  // Blocks of a cluster share a strip where there are too few strips to give every multiprocessor one and k is long
  // enough. No more: clusters do not pack as well as blocks, and one that waits for a second wave doubles the time.
  const int most = all_warps() ? cuda::cluster_of(kMaxBlocks, p.device) : 1;
  const int64_t blocks = strips_of(p, choice, split) * p.batch.count;
  while (1 << split.cluster_bits < most && (blocks << split.cluster_bits) * 2 <= cuda::multiprocessors(p.device) &&
         p.k >= int64_t{512} << split.cluster_bits)
    ++split.cluster_bits;
  const int64_t units = (p.k + kRangeUnit - 1) / kRangeUnit, blocks_of = int64_t{1} << split.cluster_bits;
  split.each = (units + blocks_of - 1) / blocks_of * kRangeUnit;
  return split;
}

/// Whether the lean kernel has launched the product: one row, one matrix, columns of 4 KB and more, as many as fill the
/// device with blocks.
bool run_lean(const DeviceGemm& p, bool aligned) {
  constexpr int64_t kLeastPieces = 256;
  const int64_t item = static_cast<int64_t>(item_size(p.b.dtype)), pieces = p.k * item / 16;
  if (p.m != 1 || p.b.row != 1 || !aligned || p.batch.ndim != 0 || pieces < kLeastPieces) return false;
  const LeanChoice choice = choose_lean(p, pieces);
  if (!choice.kernel || p.n < int64_t{4} * choice.cols * cuda::multiprocessors(p.device)) return false;
  const LeanShape lean{p.b.col * item, static_cast<int>(pieces), read_once(p)};
  const cuda::Grid grid{static_cast<unsigned>((p.n + choice.cols - 1) / choice.cols),
                        static_cast<unsigned>(choice.threads)};
  cuda::launch("matmul", choice.kernel, grid, p.device, p, lean);
  return true;
}

}  // namespace

void few_rows_cuda(const DeviceGemm& p) {
  const cuda::DeviceGuard guard(p.device);
  const bool dots = p.b.row == 1, vector = p.m == 1 || p.a.dtype == DType::kFloat32;
  const bool aligned = dots ? matrix_aligned(p, p.k, p.b.col, p.n) : matrix_aligned(p, p.n, p.b.row, p.k);
  if (run_lean(p, aligned)) return;
  const RowsChoice choice = vector ? choose_rows_vector(p, dots, aligned) : choose_rows_tensor(p, dots, aligned);
  const RowsSplit split = split_of(p, choice);
  const int64_t batches = std::min<int64_t>(p.batch.count, 65535);
  const dim3 blocks(static_cast<unsigned>(strips_of(p, choice, split) << split.cluster_bits),
                    static_cast<unsigned>(batches), static_cast<unsigned>((p.batch.count + batches - 1) / batches));
  const cuda::Grid grid{blocks, static_cast<unsigned>(32 * choice.warps), static_cast<size_t>(choice.shared),
                        1 << split.cluster_bits};
  cuda::launch("matmul", choice.kernel, grid, p.device, p, split);
}

}  // namespace tenor::contract
