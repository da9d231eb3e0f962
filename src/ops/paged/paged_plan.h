// What a DevicePlan holds.
#pragma once

#include <memory>

#include "src/ops/attention/attention_problem.h"
#include "tenor/paged.h"

namespace tenor::core {
class Recipe;
}

namespace tenor::paged {

/// Rows [first, first + rows) of one sequence at rising positions.
struct RowRun {
  int64_t first, rows, sequence, position;
};
/// Rows that are worth a prefill kernel.
inline constexpr int64_t kPrefillRows = 128;

struct DevicePlan::State {
  Device device;
  Capacity size;
  Tensor memory;  // int32, one allocation for the four below
  Tensor tables, lengths, sequence_ids,
      positions;  // [sequences, pages_per_sequence], [sequences], [queries], [queries]
  Tensor turns;   // int32 [4]: how blocks of a CUDA kernel share the work, 0 between launches, and which
                  // splits are added up already, for the kernel that adds up the others
  std::shared_ptr<const HostPlan> host;  // the schedule, where the host knows it
  std::vector<RowRun> runs;              // of the host's schedule, those of kPrefillRows rows or more
  int64_t longest = 0;                   // keys that a sequence can have
};

/// The largest length, position, page count: device arrays are int32.
inline constexpr int64_t kMostKeys = INT32_MAX;

/// `host` as the int32 words of a plan's memory, unused ones filled up.
std::vector<int32_t> words_of(const HostPlan& host, const Capacity& size);

/// A schedule's runs of at least `least` rows.
std::vector<RowRun> runs_of(const HostPlan& host, int64_t least);

/// The operands of attention and mla, checked.
struct Call {
  const char* op;
  Device device;  // of the operands, or what traced ones stand for
  const DevicePlan::State* plan;
  Tensor q, k, v, q_tail, k_tail;  // tails: latent attention's position parts; undefined otherwise
  Tensor sinks, out, lse;          // lse undefined when it is not asked for
  int64_t heads, kv_heads, dim, value_dim;
  double scale, softcap;  // softcap 0: none
  bool causal;
  Window window;
  int64_t splits;    // asked for by a SplitWorkspace; 0: as the plan chooses
  Tensor workspace;  // bytes for partial states; undefined: taken as needed
};

/// The attention family's flash strategies on the CPU.
void run_cpu(const Call& call, attn::CpuUnit unit);

/// Whether two Tensors or more hold x's storage, where the caller itself has `handles` of them.
inline bool is_shared(const Tensor& x, long handles) { return x.storage().use_count() > handles; }
/// How a step of append_ runs again, where somebody listens; else null.
std::shared_ptr<const core::Recipe> append_recipe(const DevicePlan& plan);
/// append and append_: each cache copied first or not.
Caches append_to(const DevicePlan::State& plan, const char* op, const Tensor& k, const Tensor& v,
                 const Tensor& key_cache, const Tensor& value_cache, bool copy_key, bool copy_value,
                 const std::shared_ptr<const core::Recipe>& again = {});
Tensor copy_pages_of(const char* op, const Tensor& cache, const std::vector<int64_t>& src,
                     const std::vector<int64_t>& dst, bool copy);

}  // namespace tenor::paged
