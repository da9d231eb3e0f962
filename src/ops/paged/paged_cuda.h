// Entry points of the CUDA kernels of this family. Arguments are checked, the contents of device arrays are not.
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include "src/core/device_traits.h"
#include "src/ops/paged/paged_plan.h"

namespace tenor::paged {

/// What the Hopper kernel of latent attention has room for.
inline constexpr int64_t kMostLatentRank = 512, kMostLatentTail = 64;

/// Whether TMA can fetch boxes of a cache.
inline bool boxes_fit(const Tensor& x) {
  bool fits = x.stride(3) == 1 && reinterpret_cast<uintptr_t>(x.raw()) % 16 == 0;
  for (int d = 0; d < 3; ++d) fits = fits && (x.shape(d) == 1 || (x.stride(d) > 0 && x.stride(d) % 8 == 0));
  return fits;
}

inline bool queries_fit(const Tensor& x, int64_t elements) {
  return x.stride(2) == 1 && x.stride(0) % elements == 0 && x.stride(1) % elements == 0 &&
         reinterpret_cast<uintptr_t>(x.raw()) % (2 * elements) == 0;
}

/// What the kernel of latent attention asks for beside tensorcore_why_not; empty: nothing.
inline std::string latent_why_not(const Call& c) {
  const int64_t tail = c.k_tail.shape(3);
  if (c.value_dim > kMostLatentRank || tail > kMostLatentTail)
    return "takes ranks up to 512 and position parts up to 64";
  if (c.value_dim % 8 != 0 || tail % 8 != 0) return "takes ranks and position parts that are multiples of 8";
  if (c.k.numel() == 0) return "there is no page";
  if (!boxes_fit(c.k) || !boxes_fit(c.k_tail)) return "takes caches at multiples of 16 bytes with contiguous rows";
  return queries_fit(c.q, 8) && queries_fit(c.q_tail, 8) ? "" : "takes queries at multiples of 16 bytes";
}

/// What the kernel of decode and ragged prefill asks for beside it.
inline std::string decode_why_not(const Call& c) {
  if (std::max(c.dim, c.value_dim) > 256) return "takes head sizes up to 256";
  if (c.k.numel() == 0 || c.v.numel() == 0) return "there is no page";
  if (!boxes_fit(c.k) || !boxes_fit(c.v)) return "takes caches at multiples of 16 bytes with contiguous heads";
  return c.dim % 2 == 0 && queries_fit(c.q, 2) ? "" : "takes queries at multiples of 4 bytes";
}

/// "flash_tensorcore": why it declines, or nothing; of a traced call the described device is asked.
inline std::string tensorcore_why_not(const Call& c) {
  if (c.q.dtype() != bfloat16 && c.q.dtype() != float16) return "takes float16 or bfloat16";
  if (core::device_traits(c.device).capability != 90) return "needs a GPU of compute capability 9.0";
  if (c.plan->size.page_size % 8 != 0) return "takes page sizes that are multiples of 8";
  return c.q_tail.defined() ? latent_why_not(c) : decode_why_not(c);
}

}  // namespace tenor::paged

namespace tenor::cuda {

/// Writes a plan's words on the current stream, from pinned memory, without waiting.
void paged_write(::tenor::paged::DevicePlan::State& plan, const std::vector<int32_t>& words);
/// Fills the plan from device arrays. A bad entry makes its row padding or its sequence empty, and raises the stream's
/// flag.
void paged_refill(const ::tenor::paged::DevicePlan::State& plan, const Tensor& tables, const Tensor& lengths,
                  const Tensor& sequence_ids, const Tensor& positions);

/// Bytes of partial states that paged_run needs where no number of splits is asked for.
int64_t paged_workspace_bytes(const ::tenor::paged::DevicePlan::State& plan, int64_t heads, int64_t value_dim);
/// The tensor cores' kernels of what tensorcore_why_not lets through; the plain one of everything.
void paged_run_tensorcore(const ::tenor::paged::Call& call);
void paged_run_unit(const ::tenor::paged::Call& call);
/// Whether the plan's long runs of rows may go through attention's kernel; how many do so together from the one at
/// place `first` on, 0 where that one does not; and their way there.
bool paged_prefills(const ::tenor::paged::Call& call);
size_t paged_prefill_count(const ::tenor::paged::Call& call, size_t first);
void paged_prefill(const ::tenor::paged::Call& call, std::span<const ::tenor::paged::RowRun> runs);

/// Row i of k and v to the slot of (sequence_ids[i], positions[i]). A row beyond its length, or of a slot that an
/// earlier row takes, is dropped and raises the stream's flag.
void paged_append(const ::tenor::paged::DevicePlan::State& plan, const Tensor& k, const Tensor& v,
                  const Tensor& key_cache, const Tensor& value_cache);

}  // namespace tenor::cuda
