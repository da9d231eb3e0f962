// Entry points of attention on CUDA. Problems are checked; their operands lie on one device.
#pragma once

#include "src/core/device_traits.h"
#include "src/ops/attention/attention_problem.h"

namespace tenor::attn {

/// Rows of a sequence that "flash_tensorcore" takes: positions and bounds are added as 32-bit integers.
inline constexpr int64_t kFlashLongest = 1 << 28;

/// "flash_tensorcore": one pass over the keys on the tensor cores. Says why it declines, or nothing; of a traced
/// problem the described device is asked.
inline std::string flash_tensorcore_why_not(const Problem& p) {
  if (p.q.dtype == float64) return "takes float16, bfloat16 or float32";
  if (core::device_traits(p.device).capability < 80) return "needs a GPU of compute capability 8.0";
  if (std::max(p.dim, p.value_dim) > 256) return "takes head sizes up to 256";
  if (p.q.dtype == float32 && std::max(p.dim, p.value_dim) > 128) return "takes head sizes up to 128 of float32";
  if (p.value_dim == 0) return "has no values to multiply";
  if (std::max(p.queries, p.keys) > kFlashLongest) return "has sequences of more than 2^28 rows";
  if (p.heads * (p.queries + p.batch * 64) * std::max<int64_t>(p.batch, 1) > int64_t{1} << 36)
    return "has more than 2^30 tiles";
  return {};
}
void run_flash_tensorcore(const Problem& problem);
/// While one lives, this thread's flash_tensorcore is the kernel of every device since Ampere, on Hopper too: for
/// tests.
class PortableFlash {
 public:
  PortableFlash();
  ~PortableFlash();
  PortableFlash(const PortableFlash&) = delete;
  PortableFlash& operator=(const PortableFlash&) = delete;
};

/// Bytes of local memory a thread of each of Hopper's kernels: what the compiler found no register for. For tests.
std::vector<int> flash_spilled_bytes_bfloat16();
std::vector<int> flash_spilled_bytes_float16();

/// "flash_unit": one pass over the keys without matrix units; takes every problem of up to 2^31 rows.
inline std::string flash_unit_why_not(const Problem& problem) {
  return std::max(problem.queries, problem.keys) < (int64_t{1} << 31) - 4096 ? ""
                                                                             : "has sequences of 2^31 rows or more";
}
void run_flash_unit(const Problem& problem);

/// merge_states' arguments, of the shapes that its contract states.
void merge_states_cuda(const Tensor& out_a, const Tensor& lse_a, const Tensor& out_b, const Tensor& lse_b,
                       const Tensor& out, const Tensor& lse);

}  // namespace tenor::attn
