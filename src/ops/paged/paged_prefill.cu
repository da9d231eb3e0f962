// Prefill: a long run of rows of one sequence goes through attention's tensor-core kernel, over its keys and values
// gathered from their pages.
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

/// One cache and where its rows go, both in 16-byte pieces.
struct Gathered {
  const uint4* from;
  int64_t page, row, head;  // strides
  uint4* to;                // [keys, heads, pieces]
  int pieces;
};
struct Gather {
  Gathered caches[2];
  const int* table;
  int keys, heads, page_size;
};

/// blockIdx.y: which cache.
__global__ void __launch_bounds__(kThreads) gather_kernel(const __grid_constant__ Gather g) {
  const Gathered& x = g.caches[blockIdx.y];
  const int64_t line = int64_t{g.heads} * x.pieces, total = line * g.keys;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < total; i += int64_t{gridDim.x} * kThreads) {
    const int key = static_cast<int>(i / line), rest = static_cast<int>(i - key * line), head = rest / x.pieces;
    const int64_t page = g.table[key / g.page_size];
    x.to[i] = x.from[page * x.page + key % g.page_size * x.row + head * x.head + rest - head * x.pieces];
  }
}

/// Keys [0, keys) of a sequence, [keys, heads, dim].
Tensor room_for(const Tensor& cache, int64_t keys) {
  return Tensor::empty({keys, cache.shape(2), cache.shape(3)}, cache.dtype(), cache.device());
}

void gather(const Call& c, int64_t sequence, int64_t keys, const Tensor& k, const Tensor& v) {
  const auto one = [](const Tensor& x, const Tensor& to) {
    return Gathered{static_cast<const uint4*>(x.raw()),
                    x.stride(0) / 8,
                    x.stride(1) / 8,
                    x.stride(2) / 8,
                    static_cast<uint4*>(to.raw()),
                    static_cast<int>(x.shape(3) / 8)};
  };
  const auto& plan = *c.plan;
  const Gather g{{one(c.k, k), one(c.v, v)},
                 plan.tables.data<int>() + sequence * plan.size.pages_per_sequence,
                 static_cast<int>(keys),
                 static_cast<int>(c.kv_heads),
                 static_cast<int>(plan.size.page_size)};
  const int64_t pieces = keys * c.kv_heads * std::max(k.shape(2), v.shape(2)) / 8;
  launch(c.op, gather_kernel, Grid{dim3(blocks_for(pieces, 4 * kThreads, c.device), 2), dim3(kThreads)}, c.device, g);
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

}  // namespace

bool paged_prefills(const Call& c) {
  if (c.plan->runs.empty() || c.splits > 0 || c.workspace.defined() || core::batch_invariant()) return false;
  if (c.dim % 8 != 0 || c.value_dim % 8 != 0) return false;
  return capture_of(current_stream(c.device).handle) == 0;  // a graph must fit other schedules too
}

bool paged_prefill_takes(const Call& c, const RowRun& run) {
  // attention's diagonal ends at the last key
  return keys_of(c, run) == run.position + run.rows || (!c.causal && c.window.left < 0 && c.window.right < 0);
}

void paged_prefill(const Call& c, const RowRun& run) {
  const int64_t keys = keys_of(c, run);
  const Tensor k = room_for(c.k, keys), v = room_for(c.v, keys);
  gather(c, run.sequence, keys, k, v);
  attn::Problem p{};
  p.q = rows_of(c.q, run.first), p.out = rows_of(c.out, run.first), p.lse = rows_of(c.lse, run.first);
  p.k = rows_of(k, 0), p.v = rows_of(v, 0);
  p.sinks = c.sinks;
  p.heads = c.heads, p.kv_heads = c.kv_heads, p.dim = c.dim, p.value_dim = c.value_dim;
  p.scale = c.scale, p.softcap = c.softcap;
  p.causal = c.causal ? Causal::kBottomRight : Causal::kOff;
  p.left = c.window.left, p.right = c.window.right;
  p.device = c.device, p.batch = 1, p.queries = run.rows, p.keys = keys;
  attn::run_flash_tensorcore(p);
}

}  // namespace tenor::cuda
