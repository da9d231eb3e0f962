// "tensorcore" for float32 and float16: the two kernels by TF32 products, and what they need of memory.
#include "src/ops/gated_delta/chunk_tf32_prepare.cuh"
#include "src/ops/gated_delta/chunk_tf32_scan.cuh"
#include "src/ops/gated_delta/gated_delta_launch.h"

namespace tenor::delta {
namespace {

/// The most warps of a block that compute. Eight of float32's spill, and take longer than four after four.
template <class T>
inline constexpr int kMostWarps = kIsFine<T> ? 4 : 8;

/// Warps of a block that compute. More of them share a chunk's copies, fewer leave no multiprocessor idle: what counts
/// is how often the blocks fill the device; eight warps take 1.45 times as long as four, which have a scheduler each.
int choose_warps(int64_t tiles, int64_t heads, int most, int multiprocessors) {
  int best = 1;
  double least = 0;
  for (int warps = 1; warps <= most; warps *= 2) {
    const int64_t blocks = (tiles + warps - 1) / warps * heads;
    const double time = static_cast<double>((blocks + multiprocessors - 1) / multiprocessors) * (warps == 8 ? 1.45 : 1);
    if (least == 0 || time < least) least = time, best = warps;
  }
  return best;
}

template <class T, int kKeyDim, int kWarps>
void launch_scan(const Problem& problem, const DeviceProblem& p, const Tf32Factors* factors, int warps) {
  const int64_t tiles = p.value_dim / kTf32Columns, column_blocks = (tiles + warps - 1) / warps;
  cuda::launch(problem.op, scan_tf32_kernel<T, kKeyDim, kWarps>,
               {dim3(blocks_of(problem.op, column_blocks, p.value_heads, p.sequences.count)),
                dim3(static_cast<unsigned>(32 * (warps + 1))), sizeof(Tf32Shared<T, kKeyDim>), 1, factors != nullptr},
               problem.output.device(), p, factors, static_cast<unsigned>(column_blocks));
}

template <class T, int kKeyDim>
void launch_kernels(const Problem& problem, const DeviceProblem& p, Tf32Factors* factors, int64_t items) {
  const Device device = problem.output.device();
  if (factors)
    cuda::launch(
        problem.op, prepare_tf32_kernel<T, kKeyDim>,
        {dim3(blocks_of(problem.op, 1, 1, items)), dim3(kPrepareThreads), sizeof(Tf32PrepareShared<T, kKeyDim>)},
        device, p, factors);
  const int warps = choose_warps(p.value_dim / kTf32Columns, p.value_heads * p.sequences.count, kMostWarps<T>,
                                 cuda::multiprocessors(device));
  warps > 4 ? launch_scan<T, kKeyDim, kMostWarps<T>>(problem, p, factors, warps)
            : launch_scan<T, kKeyDim, 4>(problem, p, factors, warps);
}

template <class T>
void launch_type(const Problem& problem, const DeviceProblem& p, Tf32Factors* factors, int64_t items) {
  p.key_dim == 128 ? launch_kernels<T, 128>(problem, p, factors, items)
                   : launch_kernels<T, 64>(problem, p, factors, items);
}

}  // namespace

void launch_tf32(const Problem& problem, const DeviceProblem& given) {
  zero_unclaimed_cuda(problem.op, given.sequences, problem.output, given.value_heads);
  if (given.value_heads == 0 || given.sequences.count == 0) return;
  DeviceProblem p = given;
  const Tensor query = aligned_rows(problem.query), key = aligned_rows(problem.key);
  p.query = rows_of(query), p.key = rows_of(key);
  const int64_t items = core::count_product(chunk_slots(p.sequences), p.value_heads);
  Tensor memory;  // none where no sequence has a step
  if (items > 0 && problem.steps > 0)
    memory = Tensor::empty({core::count_product(items, int64_t{sizeof(Tf32Factors)})}, uint8, problem.output.device());
  auto* factors = memory.defined() ? static_cast<Tf32Factors*>(memory.raw()) : nullptr;
  if (problem.query.dtype() == float32)
    launch_type<float>(problem, p, factors, items);
  else
    launch_type<Float16>(problem, p, factors, items);
}

}  // namespace tenor::delta
