// Entry points of the CUDA kernels of this family. Arguments are checked, the contents of device arrays are not.
#pragma once

#include "src/ops/paged/paged_plan.h"

namespace tenor::cuda {

/// Writes a plan's words on the current stream, from pinned memory, without waiting.
void paged_write(paged::DevicePlan::State& plan, const std::vector<int32_t>& words);
/// Fills the plan from device arrays. A bad entry makes its row padding or its sequence empty, and raises the stream's
/// flag.
void paged_refill(const paged::DevicePlan::State& plan, const Tensor& tables, const Tensor& lengths,
                  const Tensor& sequence_ids, const Tensor& positions);

/// Which kernels take the call, and why the tensor cores' do not, as a step states them.
std::string paged_strategy(const paged::Call& call);
/// Bytes of partial states that paged_run needs where no number of splits is asked for.
int64_t paged_workspace_bytes(const paged::DevicePlan::State& plan, int64_t heads, int64_t value_dim);
void paged_run(const char* op, const paged::Call& call);

/// Row i of k and v to the slot of (sequence_ids[i], positions[i]). A row beyond its length, or of a slot that an
/// earlier row takes, is dropped and raises the stream's flag.
void paged_append(const paged::DevicePlan::State& plan, const Tensor& k, const Tensor& v, const Tensor& key_cache,
                  const Tensor& value_cache);

}  // namespace tenor::cuda
