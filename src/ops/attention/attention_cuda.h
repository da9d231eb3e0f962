// Entry points of attention on CUDA. Problems are checked; their operands lie on one device.
#pragma once

#include "src/ops/attention/attention_problem.h"

namespace tenor::attn {

/// "flash_tensorcore": one pass over the keys on the tensor cores. Says why it declines, or nothing.
std::string flash_tensorcore_why_not(const Problem& problem);
void run_flash_tensorcore(const Problem& problem);

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
