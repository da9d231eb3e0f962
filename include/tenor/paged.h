// Attention over a paged cache: keys and values of many sequences in pages of one pool, read where they lie.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tenor/attention.h"
#include "tenor/tensor.h"

namespace tenor::paged {

/// What one step computes, checked: which pages each sequence has, how many keys they hold, and which query rows ask.
class HostPlan {
 public:
  /// `pages` physical pages of `page_size` keys are in the pool. tables[s] names sequence s's pages in order and
  /// lengths[s] counts its keys, those that this step appends included; entries past ceil(length / page_size) are never
  /// looked at. Query row i stands at `positions[i]` (absolute, from 0) of sequence `sequence_ids[i]`; -1 is a padding
  /// row.
  /// @throws IndexError for a page, sequence id or negative position out of range; ValueError for counts that disagree,
  /// a negative length, a table too short, page_size < 1, pages < 0.
  HostPlan(int64_t page_size, int64_t pages, std::vector<std::vector<int64_t>> tables, std::vector<int64_t> lengths,
           std::vector<int64_t> sequence_ids, std::vector<int64_t> positions);

  int64_t page_size() const { return page_size_; }
  int64_t pages() const { return pages_; }
  int64_t queries() const { return static_cast<int64_t>(positions_.size()); }
  int64_t sequences() const { return static_cast<int64_t>(lengths_.size()); }
  /// Pages of the sequence that uses most.
  int64_t pages_per_sequence() const;
  const std::vector<std::vector<int64_t>>& tables() const { return *tables_; }
  const std::vector<int64_t>& lengths() const { return lengths_; }
  const std::vector<int64_t>& sequence_ids() const { return sequence_ids_; }
  const std::vector<int64_t>& positions() const { return positions_; }

 private:
  int64_t page_size_, pages_;
  std::shared_ptr<const std::vector<std::vector<int64_t>>> tables_;  // copies share them
  std::vector<int64_t> lengths_, sequence_ids_, positions_;
};

/// Memory for the partial states of `splits` parts of each row's keys, float32; passing it to attention or mla asks for
/// exactly that many. Belongs to one stream at a time.
class SplitWorkspace {
 public:
  /// On like's device; for results [queries, heads, value_dim].
  /// @throws ValueError unless splits is 2 to 32, and for more than 64 MiB: 4 splits queries heads (value_dim + 2)
  /// bytes.
  SplitWorkspace(const Tensor& like, int64_t queries, int64_t heads, int64_t value_dim, int64_t splits);

  int64_t queries() const { return queries_; }
  int64_t heads() const { return heads_; }
  int64_t value_dim() const { return value_dim_; }
  int64_t splits() const { return splits_; }
  const Tensor& memory() const { return memory_; }

 private:
  int64_t queries_, heads_, value_dim_, splits_;
  Tensor memory_;
};

struct AttentionOptions {
  std::optional<double> scale = {};    ///< finite, > 0; none is D^-1/2
  bool causal = true;                  ///< a query at position p sees the keys 0..p
  Window window = {};                  ///< about the query's position
  std::optional<double> softcap = {};  ///< finite, > 0: scores become c * tanh(s / c)
  Tensor sinks = {};                   ///< [Hq], float32 or q's dtype: exp(sink) joins a row's denominator only
  std::optional<SplitWorkspace> split_workspace = {};
  Tensor workspace = {};  ///< uint8 [at least workspace_size()]: nothing is then allocated
  bool return_lse = false;
  Tensor out = {};                ///< [queries, Hq, Dv], q's dtype
  Tensor out_lse = {};            ///< [queries, Hq], float32; with return_lse only
  std::string strategy = "auto";  ///< "flash_tensorcore", "flash_unit"
};

struct MlaOptions {
  std::optional<SplitWorkspace> split_workspace = {};
  Tensor workspace = {};
  bool return_lse = false;
  Tensor out = {};                ///< [queries, H, R]
  Tensor out_lse = {};            ///< [queries, H]
  std::string strategy = "auto";  ///< as AttentionOptions
};

/// Sizes that a reserved plan can hold.
struct Capacity {
  int64_t page_size, pages;
  int64_t queries, sequences, pages_per_sequence;
};

struct Caches {
  Tensor key, value;
};

/// A schedule on the device of the queries. Copies share it. Belongs to one stream at a time.
class DevicePlan {
 public:
  /// The schedule on like's device.
  static DevicePlan upload(const HostPlan& host, const Tensor& like);
  /// Memory at fixed addresses for schedules up to that size, all padding at first: for CUDA graphs, which replay what
  /// update_ wrote last. @throws ValueError for a negative capacity or page_size < 1
  static DevicePlan reserve(const Tensor& like, const Capacity& capacity);

  /// Refills the plan on the current stream without waiting; rows and sequences beyond those given become padding.
  /// @throws ValueError over capacity, or for another page_size or pages
  void update_(const HostPlan& host);
  /// tables [sequences, M], lengths [sequences], sequence_ids and positions [queries], integers, on the CPU or the
  /// plan's device. Those on the CPU are checked as HostPlan checks; on a CUDA device a bad entry makes its row padding
  /// or its sequence empty and raises the stream's flag.
  void update_(const Tensor& tables, const Tensor& lengths, const Tensor& sequence_ids, const Tensor& positions);

  Device device() const;
  Capacity capacity() const;
  Tensor lengths() const;       ///< int32 [sequences] on the device
  Tensor sequence_ids() const;  ///< int32 [queries]
  Tensor positions() const;     ///< int32 [queries]

  /// Attention of each query row over the cached keys of its sequence: ragged prefill and decode in one call.
  /// q [queries, Hq, D]; k [pages, page_size, Hkv, D] and v [pages, page_size, Hkv, Dv] of q's dtype, any strides;
  /// Hq % Hkv == 0; D, Dv in 1..1024. Formula and numbers as tenor::attention. Nothing behind a sequence's length, NaN
  /// or not, reaches a result; a row with nothing to see, a padding row for one, gives 0 and lse -inf. A row's bits
  /// depend on its own query and keys alone; but outside of batch_invariant() 128 rows or more of a sequence take
  /// attention's prefill kernel on CUDA where the host knows the schedule. Cost: 2 (D + Dv) FLOPs a visible pair; the
  /// keys and values seen are read once a group of rows.
  /// @throws ShapeError, DTypeError, DeviceError, ValueError; UnsupportedError for a strategy that cannot do it
  AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v,
                            const AttentionOptions& options = {}) const;

  /// Latent attention (MLA) with absorbed weights: score = scale (q . latent + qp . kp), result = softmax(score)
  /// latent. q [queries, H, R], qp [queries, H, P], latent [pages, page_size, 1, R], kp [pages, page_size, 1, P]; R
  /// in 1..1024, P in 1..256. The scale is the model's own, of its query-key size before absorption. Returns the
  /// compressed context [queries, H, R]. On CUDA the tensor cores' kernel cuts keys by what the call has to do; under
  /// batch_invariant(), or with a workspace, at fixed places, so that a row's bits depend on its own query and keys
  /// alone. Source: DeepSeek-V2, arXiv 2405.04434, section 2.1.
  AttentionResult mla(const Tensor& q, const Tensor& qp, const Tensor& latent, const Tensor& kp, double scale,
                      bool causal, const MlaOptions& options = {}) const;

  /// Bytes of workspace with which `op` ("attention" or "mla") allocates nothing but its result.
  int64_t workspace_size(std::string_view op, int64_t heads, int64_t value_dim) const;

  /// Writes row i of k [queries, Hkv, D] and v [queries, Hkv, Dv] at (sequence_ids[i], positions[i]); padding rows are
  /// skipped. A cache whose storage another Tensor shares is copied first, else it is written in place; returns the
  /// caches to keep.
  /// @throws IndexError for a position at or beyond its length, ValueError for two rows of one slot; then nothing is
  /// written.
  Caches append(const Tensor& k, const Tensor& v, const Tensor& key_cache, const Tensor& value_cache) const;
  /// Always in place: for caches that are views of one pool.
  void append_(const Tensor& k, const Tensor& v, const Tensor& key_cache, const Tensor& value_cache) const;

  struct State;
  const State& state() const { return *state_; }

 private:
  explicit DevicePlan(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// cache[dst[i]] = cache[src[i]] along the first dim, every source read before the first write. src and dst are equally
/// long lists of pages, dst without repeats: the copy that a scheduler makes before it writes to a page that sequences
/// share. A cache whose storage another Tensor shares is copied first. Returns the cache to keep.
/// @throws IndexError for a page outside the cache, ValueError for lists of different lengths or a repeated dst
Tensor copy_pages(const Tensor& cache, const std::vector<int64_t>& src, const std::vector<int64_t>& dst);
/// Always in place.
void copy_pages_(const Tensor& cache, const std::vector<int64_t>& src, const std::vector<int64_t>& dst);

}  // namespace tenor::paged
