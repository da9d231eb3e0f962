// Paged attention on CUDA: which kernel, and its launches over the rows.
#include <numeric>

#include "src/core/modes.h"
#include "src/cuda/launch.h"
#include "src/cuda/tensor_map.h"
#include "src/ops/paged/paged_cuda.h"
#include "src/ops/paged/paged_launch.h"

namespace tenor::cuda {
namespace {

using paged::General;
using ::tenor::paged::Call;
using ::tenor::paged::DevicePlan;
using ::tenor::paged::HostPlan;

constexpr int64_t kPartBytes = int64_t{256} << 20;  // of partial states at once, where the caller brings none
constexpr int64_t kMostRowsAtOnce = paged::kMostRows;
constexpr int64_t kUnknownBlocks = 64;  // of keys: what a row of latent attention is taken to have at most

int64_t part_bytes_of_row(int64_t heads, int64_t value_dim, int splits) {
  return heads * splits * (value_dim + 2) * int64_t{4};
}

/// Rows of a launch, from capacities alone.
int64_t rows_at_once(const DevicePlan::State& plan, int64_t row_bytes) {
  return std::clamp<int64_t>(kPartBytes / std::max<int64_t>(row_bytes, 1), 1,
                             std::min(kMostRowsAtOnce, std::max<int64_t>(plan.size.queries, 1)));
}

bool is_sixteen_bits(DType dtype) { return dtype == bfloat16 || dtype == float16; }

struct Rows {
  int64_t begin, end;
};
enum class Kernel { kDecode, kLatent, kUnit };

General problem_of(const Call& c, Kernel kernel, const Tensor& sinks, int splits, float* parts, int64_t part_rows) {
  General p{};
  p.most_splits = splits;
  const auto& plan = *c.plan;
  const auto strides = [](const Tensor& x, auto& at) {
    for (int d = 0; d < x.ndim(); ++d) at[d] = x.stride(d);
    return x.numel() ? x.raw() : nullptr;
  };
  p.q = c.q.raw(), p.q_row = c.q.stride(0), p.q_head = c.q.stride(1), p.q_col = c.q.stride(2);
  p.k = strides(c.k, p.k_at), p.v = strides(c.v, p.v_at);
  if (c.q_tail.defined())
    p.q_tail = strides(c.q_tail, p.q_tail_at), p.k_tail = strides(c.k_tail, p.k_tail_at),
    p.tail_dim = static_cast<int>(c.k_tail.shape(3));
  p.out = c.out.raw(), p.out_row = c.out.stride(0), p.out_head = c.out.stride(1), p.out_col = c.out.stride(2);
  if (c.lse.defined()) p.lse = c.lse.data<float>(), p.lse_row = c.lse.stride(0), p.lse_head = c.lse.stride(1);
  p.sink = sinks.defined() ? sinks.raw() : nullptr;
  p.tables = plan.tables.data<int>(), p.lengths = plan.lengths.data<int>();
  p.ids = plan.sequence_ids.data<int>(), p.positions = plan.positions.data<int>();
  p.turns = plan.turns.data<int>();
  p.table_stride = plan.size.pages_per_sequence;
  p.heads = static_cast<int>(c.heads), p.kv_heads = static_cast<int>(c.kv_heads), p.group = p.heads / p.kv_heads;
  p.latent = kernel == Kernel::kLatent;
  p.chunks = static_cast<int>(p.latent ? (c.heads + paged::kLatentLaunchHeads - 1) / paged::kLatentLaunchHeads
                                       : (p.group + 15) / 16);
  p.sequences = static_cast<int>(plan.size.sequences);
  p.rows_of_tile = c.splits > 0 ? 1 : std::max(1, 16 / p.group);
  p.done_splits = kernel == Kernel::kUnit ? -1 : 1;
  p.out_pairs = c.out.stride(2) == 1 && c.value_dim % 2 == 0 && c.out.stride(0) % 2 == 0 && c.out.stride(1) % 2 == 0 &&
                is_sixteen_bits(c.out.dtype()) && reinterpret_cast<uintptr_t>(c.out.raw()) % 4 == 0;
  p.dim = static_cast<int>(c.dim), p.value_dim = static_cast<int>(c.value_dim);
  p.pages = static_cast<int>(plan.size.pages), p.page_size = static_cast<int>(plan.size.page_size);
  p.causal = c.causal;
  const auto side = [](int64_t n) { return static_cast<int>(std::min<int64_t>(n, INT32_MAX)); };
  p.left = side(c.window.left), p.right = side(c.window.right);
  p.asked = static_cast<int>(c.splits);
  p.score_scale = c.scale, p.score_cap = c.softcap;
  // Sums first, at a multiple of 16 bytes, unless that would leave the states at an odd word.
  const int64_t states = part_rows * c.heads * splits;
  p.part_out = parts && p.value_dim % 2 != 0 ? parts + 2 * states : parts;
  p.part_state = reinterpret_cast<float2*>(parts && p.value_dim % 2 == 0 ? parts + p.value_dim * states : parts);
  return p;
}

/// The part of a problem from row `first` on.
General rows_from(General p, DType dtype, int64_t first, int64_t rows) {
  const auto size = static_cast<int64_t>(item_size(dtype));
  const auto step = [&](const void* x, int64_t stride) {
    return x ? static_cast<const char*>(x) + first * stride * size : nullptr;
  };
  p.q = step(p.q, p.q_row), p.q_tail = step(p.q_tail, p.q_tail_at[0]);
  p.out = const_cast<char*>(step(p.out, p.out_row));
  if (p.lse) p.lse += first * p.lse_row;
  p.ids += first, p.positions += first, p.rows = static_cast<int>(rows);
  return p;
}

CUtensorMap map_of(const char* op, const MapTensor& x, int lines) {
  CUtensorMap map;
  if (!make_line_map(&map, x, {.lines = {lines, 1}, .fetch = 128}))
    throw CudaError(std::string(op) + ": the driver refused a tensor map");
  return map;
}
CUtensorMap map_of_cache(const char* op, const Tensor& x, int box) {
  return map_of(op,
                {x.raw(),
                 x.dtype() == bfloat16,
                 {x.shape(3), x.shape(1), x.shape(2), x.shape(0)},
                 {x.stride(1), x.stride(2), x.stride(0)}},
                box);
}
/// Of rows [first, first + rows) of x [rows, heads, columns], boxes of a row's heads.
CUtensorMap map_of_query(const char* op, const Tensor& x, int64_t first, int64_t rows) {
  const auto* data =
      static_cast<const char*>(x.raw()) + first * x.stride(0) * static_cast<int64_t>(item_size(x.dtype()));
  return map_of(
      op, {data, x.dtype() == bfloat16, {x.shape(2), x.shape(1), rows, 1}, {x.stride(1), x.stride(0), x.stride(0)}},
      static_cast<int>(paged::kLatentLaunchHeads));
}

void run_decode(const Call& c, General& p, int64_t each, Rows rows) {
  p.scale = static_cast<float>(c.scale), p.scale_log2 = static_cast<float>(c.scale * 1.4426950408889634),
  p.softcap = static_cast<float>(c.softcap);
  p.sinks = static_cast<const float*>(p.sink);
  p.box = std::gcd(p.page_size, paged::decode_keys(std::max(p.dim, p.value_dim)));
  paged::DecodeLaunch launch{map_of_cache(c.op, c.k, p.box), map_of_cache(c.op, c.v, p.box), {}, c.q.device()};
  for (int64_t first = rows.begin; first < rows.end; first += each) {
    launch.problem = rows_from(p, c.q.dtype(), first, std::min(each, rows.end - first));
    c.q.dtype() == bfloat16 ? paged::launch_decode_bfloat16(c.op, launch) : paged::launch_decode_float16(c.op, launch);
  }
}

void run_latent(const Call& c, General& p, int64_t each, Rows rows) {
  p.scale = static_cast<float>(c.scale), p.scale_log2 = static_cast<float>(c.scale * 1.4426950408889634);
  p.box = std::gcd(p.page_size, 64);
  paged::LatentLaunch launch{
      {{}, {}, map_of_cache(c.op, c.k, p.box), map_of_cache(c.op, c.k_tail, p.box)}, {}, c.q.device()};
  for (int64_t first = rows.begin; first < rows.end; first += each) {
    const int64_t count = std::min(each, rows.end - first);
    launch.maps.query = map_of_query(c.op, c.q, first, count);
    launch.maps.query_tail = map_of_query(c.op, c.q_tail, first, count);
    launch.problem = rows_from(p, c.q.dtype(), first, count);
    paged::launch_latent(c.op, launch, c.q.dtype());
  }
}

void run_unit(const Call& c, General& p, int64_t each, Rows rows) {
  p.scale = 1, p.scale_log2 = 1.4426950408889634f;  // scores come scaled
  p.sinks = static_cast<const float*>(p.sink);
  for (int64_t first = rows.begin; first < rows.end; first += each) {
    const General part = rows_from(p, c.q.dtype(), first, std::min(each, rows.end - first));
    paged::launch_general(c.op, part, c.q.dtype(), c.q.device());
    if (p.most_splits > 1) paged::launch_merge(c.op, part, c.q.dtype(), c.q.device());
  }
}

/// Rows and keys that latent attention has to do, as far as the host knows, in blocks of keys.
struct LatentLoad {
  int64_t rows, total, longest;
};
LatentLoad latent_load(const Call& c) {
  const auto blocks = [](int64_t keys) { return (keys + paged::kLatentStep - 1) / paged::kLatentStep; };
  const auto& plan = *c.plan;
  LatentLoad load{0, 0, 0};
  if (const HostPlan* host = plan.host.get()) {
    for (int64_t i = 0; i < host->queries(); ++i) {
      const int64_t s = host->sequence_ids()[i];
      if (s < 0) continue;
      const int64_t length = host->lengths()[s],
                    own = blocks(c.causal ? std::min(length, host->positions()[i] + 1) : length);
      load = {load.rows + 1, load.total + own, std::max(load.longest, own)};
    }
  } else {
    load = {plan.size.queries, 0, std::min(blocks(plan.longest), kUnknownBlocks)};
    load.total = load.rows * load.longest;
  }
  return load;
}
/// The length of splits with which a launch of latent attention is done soonest: rounds of the blocks that run at once,
/// and adding up.
int latent_length(const Call& c) {
  // In blocks of keys: an item's begin and end, the second kernel; parts that are written and read in a block's time.
  constexpr int64_t kItemCost = 2, kMergeCost = 3, kPartsCost = 26;
  const LatentLoad load = latent_load(c);
  if (load.longest == 0) return paged::kLatentStep;
  const int64_t places = multiprocessors(c.q.device()),
                chunks = (c.heads + paged::kLatentLaunchHeads - 1) / paged::kLatentLaunchHeads,
                most = std::min({load.longest, int64_t{paged::kMostLatentSplits},
                                 std::max<int64_t>(1, 32 * places / (load.rows * chunks))});
  const bool even = load.total == load.rows * load.longest;
  int64_t best = load.longest, least = INT64_MAX;
  for (int64_t splits = 1; splits <= most; ++splits) {
    const int64_t length = (load.longest + splits - 1) / splits,
                  items = chunks * (even ? load.rows * ((load.longest + length - 1) / length)
                                         : (load.total + load.rows * (length - 1) / 2 + length - 1) / length),
                  rounds = (items + places - 1) / places,
                  cost = kPartsCost * (rounds * (length + kItemCost) + (splits > 1 ? kMergeCost : 0)) +
                         (splits > 1 ? items : 0);
    if (cost < least) least = cost, best = length;
  }
  return static_cast<int>(std::min(best * paged::kLatentStep, int64_t{INT32_MAX}));
}

void run(const Call& c, Kernel kernel, Rows rows) {
  const auto& plan = *c.plan;
  if (rows.begin == rows.end || c.heads == 0 || c.value_dim == 0) return;
  const DeviceGuard guard(c.q.device());
  const bool free = kernel == Kernel::kLatent && c.splits == 0 && !c.workspace.defined() && !core::batch_invariant();
  const int length = free ? latent_length(c) : 0;
  // Partial states are float32, so float64 goes without unless they are asked for.
  const int splits =
      length > 0 ? static_cast<int>(std::min<int64_t>(paged::kMostLatentSplits, (plan.longest + length - 1) / length))
      : c.q.dtype() == float64 && c.splits == 0
          ? 1
          : paged::most_splits(plan.longest, static_cast<int>(c.splits), kernel == Kernel::kLatent);
  const int64_t row = part_bytes_of_row(c.heads, c.value_dim, splits);
  int64_t each = c.splits > 0 ? std::min(plan.size.queries, kMostRowsAtOnce) : rows_at_once(plan, row);
  if (kernel == Kernel::kLatent) each = std::min(each, paged::kLatentLaunchRows);
  Tensor parts = c.workspace;
  if (!parts.defined() && splits > 1)
    parts = Tensor::empty({row * std::min(each, plan.size.queries)}, uint8, c.q.device());
  Tensor sinks = c.sinks;
  if (sinks.defined()) sinks = sinks.to(c.q.dtype() == float64 && splits == 1 ? float64 : float32).contiguous();
  float* memory = parts.defined() && parts.numel() > 0 ? parts.data<float>() : nullptr;
  General p = problem_of(c, kernel, sinks, splits, memory, std::min(each, plan.size.queries));
  p.length = length;
  const bool own = kernel == Kernel::kDecode && c.splits == 0;
  p.joins = own && paged::decode_joins(std::max(p.dim, p.value_dim));
  if (own) p.long_splits = paged::long_splits(p.kv_heads * p.chunks, multiprocessors(c.q.device()));
  if (kernel == Kernel::kLatent) return run_latent(c, p, each, rows);
  kernel == Kernel::kDecode ? run_decode(c, p, each, rows) : run_unit(c, p, each, rows);
}

}  // namespace

int64_t paged_workspace_bytes(const DevicePlan::State& plan, int64_t heads, int64_t value_dim) {
  int64_t most = 0;
  for (const bool latent : {false, true}) {
    const int splits = paged::most_splits(plan.longest, 0, latent);
    const int64_t row = part_bytes_of_row(heads, value_dim, splits);
    if (splits > 1) most = std::max(most, row * std::min(plan.size.queries, rows_at_once(plan, row)));
  }
  return most;
}

void paged_run_tensorcore(const Call& c) {
  const Kernel kernel = c.q_tail.defined() ? Kernel::kLatent : Kernel::kDecode;
  int64_t done = 0;
  if (kernel == Kernel::kDecode && c.heads > 0 && paged_prefills(c)) {
    const DeviceGuard guard(c.device);
    const std::span runs(c.plan->runs);
    for (size_t i = 0; i < runs.size();) {
      const size_t count = paged_prefill_count(c, i);
      if (count > 0) {
        run(c, kernel, {done, runs[i].first});
        paged_prefill(c, runs.subspan(i, count));
        done = runs[i + count - 1].first + runs[i + count - 1].rows;
      }
      i += std::max<size_t>(count, 1);
    }
  }
  run(c, kernel, {done, c.plan->size.queries});
}
void paged_run_unit(const Call& c) { run(c, Kernel::kUnit, {0, c.plan->size.queries}); }

}  // namespace tenor::cuda
