// Entry points of the gated delta rule on CUDA, and what its strategies decline. Problems are checked; the contents of
// arrays are read by kernels alone.
#pragma once

#include "src/core/device_traits.h"
#include "src/ops/gated_delta/gated_delta_problem.h"

namespace tenor::delta {

/// Step by step.
void run_recurrent_cuda(const Problem& problem);

/// Bytes of shared memory that "general" keeps its triangular matrix in.
inline int64_t triangle_bytes(int64_t chunk) { return 4 * (chunk * chunk + chunk); }
inline constexpr int64_t kSharedOfABlock = 227 << 10;  ///< Hopper's; less on others, which the launch finds out

/// Steps that "tensorcore" computes together, whatever chunk_size is.
inline constexpr int64_t kTensorcoreSteps = 64;

/// Why a chunk_size has no place on CUDA, whichever strategy takes it.
inline std::string chunk_why_not(const Problem& p) {
  if (core::runs_on(p.device) != DeviceType::kCuda || triangle_bytes(p.chunk) <= kSharedOfABlock) return {};
  return "the triangular workspace of " + std::to_string(triangle_bytes(p.chunk)) +
         " bytes exceeds a block's shared memory of " + std::to_string(kSharedOfABlock);
}

/// "tensorcore": 64 steps at once on the tensor cores, the state in registers. Of a traced problem the described device
/// is asked.
inline std::string tensorcore_why_not(const Problem& p) {
  if (core::runs_on(p.device) != DeviceType::kCuda) return "needs a CUDA device";
  if (core::device_traits(p.device).capability != 90) return "needs a GPU of compute capability 9.0";
  const bool is_wide = p.query.dtype() == bfloat16;
  if (!is_wide && p.query.dtype() != float32 && p.query.dtype() != float16)
    return "takes bfloat16, float16 and float32";
  if (p.key_dim != 128 && p.key_dim != 64) return "takes keys of 64 or 128";
  if (p.value_dim % (is_wide ? 64 : 16) != 0 || p.value_dim == 0)
    return is_wide ? "takes values of a multiple of 64" : "takes values of a multiple of 16";
  if (p.steps > INT32_MAX - kTensorcoreSteps) return "has more than 2^31 steps";
  return chunk_why_not(p);
}
void run_tensorcore_cuda(const Problem& problem);
/// Whether x lies as "tensorcore" moves it: rows dense, everything a multiple of sixteen bytes apart.
inline bool has_aligned_rows(const Tensor& x) {
  bool fits = (x.stride(3) == 1 || x.shape(3) == 1) && reinterpret_cast<uintptr_t>(x.raw()) % 16 == 0;
  for (int d = 0; d < 3; ++d) fits = fits && (x.shape(d) == 1 || (x.stride(d) > 0 && x.stride(d) % 8 == 0));
  return fits;
}

/// "general": any dtype, strides and sizes.
void run_general_cuda(const Problem& problem);

}  // namespace tenor::delta
