// What the CUDA launches of this family share.
#pragma once

#include "src/core/output.h"
#include "src/core/step.h"
#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/ops/gated_delta/blocks_cuda.h"
#include "src/ops/gated_delta/gated_delta_cuda.h"
#include "src/ops/gated_delta/gated_delta_device.cuh"
#include "src/ops/gated_delta/general_cuda.cuh"

namespace tenor::delta {

/// The sequences of a call on x's device; `first` says whether there are states to read.
DeviceSequences device_sequences(const char* op, const Tensor& x, int64_t sequences, int64_t steps,
                                 const Tensor& cu_seqlens, const Tensor& state_indices, const Tensor& has_initial,
                                 int64_t places, bool first);
DeviceProblem device_problem(const Problem& problem);
/// An operand or the result, as kernels see it.
Rows rows_of(const Tensor& x);
/// x, or a copy of it whose rows lie as has_aligned_rows says.
Tensor aligned_rows(const Tensor& x);

/// Zeros in out [B, H, T, n] where the steps are of no sequence, or of a skipped one; looks at cu_seqlens as well,
/// which raises the flag for bad ones. Does nothing where there are neither packed sequences nor slots.
void zero_unclaimed_cuda(const char* op, const DeviceSequences& sequences, const Tensor& out, int64_t heads);

/// Launches a kernel of any sizes, whose blocks need `bytes` of memory each: shared memory where it is large enough.
template <class Kernel>
void launch_general(const Problem& problem, const DeviceProblem& p, Kernel* kernel, int64_t bytes) {
  const int64_t column_blocks = (p.value_dim + kGeneralColumns - 1) / kGeneralColumns;
  const unsigned blocks = blocks_of(problem.op, column_blocks, p.value_heads, p.sequences.count);
  if (blocks == 0) return;
  const Device device = problem.output.device();
  constexpr int64_t kStatic = 8 << 10;  // the kernels' own arrays
  const bool fits = bytes + kStatic <= static_cast<int64_t>(cuda::capability(device).shared);
  Tensor outside;
  if (!fits) outside = Tensor::empty({bytes * blocks}, uint8, device);
  cuda::launch(problem.op, kernel, {dim3(blocks), dim3(kGeneralThreads), fits ? static_cast<size_t>(bytes) : 0}, device,
               p, static_cast<unsigned>(column_blocks), fits ? nullptr : static_cast<char*>(outside.raw()), bytes);
}

void launch_general_recurrent(const Problem& problem, const DeviceProblem& p);
void launch_general_chunk(const Problem& problem, const DeviceProblem& p);
/// Step by step for 16-bit and float32 operands of usual sizes, zeros of what is skipped included; false where they are
/// not.
bool launch_recurrent(const Problem& problem, const DeviceProblem& p);
void launch_tensorcore(const Problem& problem, const DeviceProblem& p);
/// The same for float32 and float16, by TF32 products.
void launch_tf32(const Problem& problem, const DeviceProblem& p);

}  // namespace tenor::delta
