// Prefill: long runs of rows, each of one sequence, go through attention's tensor-core kernel, over their keys and
// values gathered from their pages: one launch for neighbouring runs, as packed sequences.
#include <span>

#include "src/core/modes.h"
#include "src/cuda/capture.h"
#include "src/cuda/launch.h"
#include "src/ops/attention/attention_cuda.h"
#include "src/ops/paged/paged_launch.h"

namespace tenor::cuda {
namespace {

using attn::Plane;
using ::tenor::paged::Call;
using ::tenor::paged::RowRun;

constexpr int kThreads = 256;
constexpr size_t kMostRuns = 32;                    // of a launch
constexpr int64_t kMostBytes = int64_t{256} << 20;  // of keys and values gathered for more runs than one
/// attention may cut the keys of so few rows into parts, which packed sequences never are: other bits.
constexpr int64_t kRowsAlone = 192;

/// One cache and where its rows go, both in 16-byte pieces.
struct Gathered {
  const uint4* from;
  int64_t page, row, head;  // strides
  uint4* to;                // [keys, heads, pieces]
  int pieces;
};
/// Where runs begin among all rows and all gathered keys, one more than there are runs.
struct RunStarts {
  int rows[kMostRuns + 1], keys[kMostRuns + 1];
};
struct Gather {
  Gathered caches[2];
  const int* tables;
  int64_t table_stride;
  int sequences[kMostRuns];
  RunStarts starts;
  int runs, heads, page_size;
  RunStarts* packed;  ///< where attention reads them; null for a single run
};

/// blockIdx.y: which cache; blockIdx.z: which run.
__global__ void __launch_bounds__(kThreads) gather_kernel(const __grid_constant__ Gather g) {
  const Gathered& x = g.caches[blockIdx.y];
  const int first = g.starts.keys[blockIdx.z], keys = g.starts.keys[blockIdx.z + 1] - first;
  const int* table = g.tables + g.sequences[blockIdx.z] * g.table_stride;
  const int64_t line = int64_t{g.heads} * x.pieces, total = line * keys;
  uint4* to = x.to + first * line;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < total; i += int64_t{gridDim.x} * kThreads) {
    const int key = static_cast<int>(i / line), rest = static_cast<int>(i - key * line), head = rest / x.pieces;
    const int64_t page = table[key / g.page_size];
    to[i] = x.from[page * x.page + key % g.page_size * x.row + head * x.head + rest - head * x.pieces];
  }
  if (g.packed && blockIdx.x + blockIdx.y + blockIdx.z == 0 && threadIdx.x <= g.runs)
    g.packed->rows[threadIdx.x] = g.starts.rows[threadIdx.x], g.packed->keys[threadIdx.x] = g.starts.keys[threadIdx.x];
}

/// Keys of all runs, [keys, heads, dim].
Tensor room_for(const Tensor& cache, int64_t keys) {
  return Tensor::empty({keys, cache.shape(2), cache.shape(3)}, cache.dtype(), cache.device());
}

void gather(const Call& c, std::span<const RowRun> runs, const RunStarts& starts, const Tensor& k, const Tensor& v,
            const Tensor& packed) {
  const auto one = [](const Tensor& x, const Tensor& to) {
    return Gathered{static_cast<const uint4*>(x.raw()),
                    x.stride(0) / 8,
                    x.stride(1) / 8,
                    x.stride(2) / 8,
                    static_cast<uint4*>(to.raw()),
                    static_cast<int>(x.shape(3) / 8)};
  };
  const auto& plan = *c.plan;
  Gather g{{one(c.k, k), one(c.v, v)}, plan.tables.data<int>(), plan.size.pages_per_sequence};
  g.starts = starts;
  g.runs = static_cast<int>(runs.size()), g.heads = static_cast<int>(c.kv_heads);
  g.page_size = static_cast<int>(plan.size.page_size);
  g.packed = packed.defined() ? static_cast<RunStarts*>(packed.raw()) : nullptr;
  int most = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    g.sequences[i] = static_cast<int>(runs[i].sequence);
    most = std::max(most, starts.keys[i + 1] - starts.keys[i]);
  }
  const int64_t pieces = most * c.kv_heads * std::max(k.shape(2), v.shape(2)) / 8;
  launch(c.op, gather_kernel,
         Grid{dim3(blocks_for(pieces, 4 * kThreads, c.device), 2, static_cast<unsigned>(runs.size())), dim3(kThreads)},
         c.device, g);
}

/// x[rows, heads, columns] from row `first` on, or lse[rows, heads].
Plane rows_of(const Tensor& x, int64_t first) {
  if (!x.defined()) return {};
  auto* data = static_cast<char*>(const_cast<void*>(static_cast<const void*>(x.raw()))) +
               first * x.stride(0) * static_cast<int64_t>(item_size(x.dtype()));
  return {data, x.dtype(), x.stride(1), x.stride(0), x.ndim() > 2 ? x.stride(2) : 0};
}

/// What the run sees: all before its last row, or all of the sequence.
int64_t keys_of(const Call& c, const RowRun& run) {
  const int64_t length = c.plan->host->lengths()[run.sequence];
  return c.causal ? std::min(length, run.position + run.rows) : length;
}

bool takes(const Call& c, const RowRun& run) {
  // attention's diagonal ends at the last key
  return keys_of(c, run) == run.position + run.rows || (!c.causal && c.window.left < 0 && c.window.right < 0);
}

}  // namespace

bool paged_prefills(const Call& c) {
  if (c.plan->runs.empty() || c.splits > 0 || c.workspace.defined() || core::batch_invariant()) return false;
  if (c.dim % 8 != 0 || c.value_dim % 8 != 0) return false;
  return capture_of(current_stream(c.device).handle) == 0;  // a graph must fit other schedules too
}

size_t paged_prefill_count(const Call& c, size_t first) {
  const auto& runs = c.plan->runs;
  const int64_t bytes_of_key = 2 * c.kv_heads * (c.dim + c.value_dim);
  int64_t bytes = 0;
  size_t i = first;
  for (; i < runs.size() && i - first < kMostRuns && takes(c, runs[i]); ++i) {
    bytes += keys_of(c, runs[i]) * bytes_of_key;
    const bool alone = runs[i].rows <= kRowsAlone || bytes > kMostBytes,
               follows = i == first || runs[i].first == runs[i - 1].first + runs[i - 1].rows;
    if (i > first && (alone || !follows)) break;
    if (alone) return 1;
  }
  return i - first;
}

void paged_prefill(const Call& c, std::span<const RowRun> runs) {
  RunStarts starts{};
  for (size_t i = 0; i < runs.size(); ++i) {
    starts.rows[i + 1] = starts.rows[i] + static_cast<int>(runs[i].rows);
    starts.keys[i + 1] = starts.keys[i] + static_cast<int>(keys_of(c, runs[i]));
  }
  const int64_t count = static_cast<int64_t>(runs.size()), rows = starts.rows[count], keys = starts.keys[count];
  const Tensor k = room_for(c.k, keys), v = room_for(c.v, keys);
  const Tensor packed = count > 1 ? Tensor::empty({2, static_cast<int64_t>(kMostRuns) + 1}, int32, c.device) : Tensor();
  gather(c, runs, starts, k, v, packed);
  attn::Problem p{};
  p.q = rows_of(c.q, runs[0].first), p.out = rows_of(c.out, runs[0].first), p.lse = rows_of(c.lse, runs[0].first);
  p.k = rows_of(k, 0), p.v = rows_of(v, 0);
  p.sinks = c.sinks;
  p.heads = c.heads, p.kv_heads = c.kv_heads, p.dim = c.dim, p.value_dim = c.value_dim;
  p.scale = c.scale, p.softcap = c.softcap;
  p.causal = c.causal ? Causal::kBottomRight : Causal::kOff;
  p.left = c.window.left, p.right = c.window.right;
  p.device = c.device, p.batch = 1, p.queries = rows, p.keys = keys;
  if (count > 1) {
    p.cu_seqlens_q = packed.with_layout({count + 1}, {1}, 0);
    p.cu_seqlens_k = packed.with_layout({count + 1}, {1}, packed.stride(0));
  }
  attn::run_flash_tensorcore(p);
}

}  // namespace tenor::cuda
