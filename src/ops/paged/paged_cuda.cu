// Paged attention on CUDA: which kernel, and its launches over the rows.
#include <numeric>

#include "src/cuda/capability.h"
#include "src/cuda/launch.h"
#include "src/cuda/tensor_map.h"
#include "src/ops/paged/paged_cuda.h"
#include "src/ops/paged/paged_launch.h"

namespace tenor::cuda {
namespace {

using paged::General;
using ::tenor::paged::Call;
using ::tenor::paged::DevicePlan;

constexpr int64_t kPartBytes = int64_t{256} << 20;  // of partial states at once, where the caller brings none
constexpr int64_t kMostRowsAtOnce = paged::kMostRows;

int64_t part_bytes_of_row(int64_t heads, int64_t value_dim, int splits) {
  return heads * splits * (value_dim + 2) * int64_t{4};
}

/// Rows of a launch, from capacities alone.
int64_t rows_at_once(const DevicePlan::State& plan, int64_t row_bytes) {
  return std::clamp<int64_t>(kPartBytes / std::max<int64_t>(row_bytes, 1), 1,
                             std::min(kMostRowsAtOnce, std::max<int64_t>(plan.size.queries, 1)));
}

bool is_sixteen_bits(DType dtype) { return dtype == bfloat16 || dtype == float16; }

/// Whether TMA can fetch boxes of a cache.
bool boxes_fit(const Tensor& x) {
  bool fits = x.stride(3) == 1 && reinterpret_cast<uintptr_t>(x.raw()) % 16 == 0;
  for (int d = 0; d < 3; ++d) fits = fits && (x.shape(d) == 1 || (x.stride(d) > 0 && x.stride(d) % 8 == 0));
  return fits;
}

bool queries_fit(const Tensor& x, int64_t elements) {
  return x.stride(2) == 1 && x.stride(0) % elements == 0 && x.stride(1) % elements == 0 &&
         reinterpret_cast<uintptr_t>(x.raw()) % (2 * elements) == 0;
}

/// Why the kernel of latent attention cannot do it; null: it can.
const char* why_not_latent(const Call& c) {
  if (!is_sixteen_bits(c.q.dtype())) return "takes float16 and bfloat16";
  if (!c.q_tail.defined()) return "takes latent attention";
  const int64_t tail = c.k_tail.shape(3);
  if (c.value_dim > paged::kLatentLaunchRank || tail > paged::kLatentLaunchTail)
    return "takes ranks up to 512 and position parts up to 64";
  if (c.value_dim % 8 != 0 || tail % 8 != 0) return "takes ranks and position parts that are multiples of 8";
  if (c.plan->size.page_size % 8 != 0) return "takes page sizes that are multiples of 8";
  if (c.k.numel() == 0) return "there is no page";
  if (!boxes_fit(c.k) || !boxes_fit(c.k_tail)) return "takes caches at multiples of 16 bytes with contiguous rows";
  if (!queries_fit(c.q, 8) || !queries_fit(c.q_tail, 8)) return "takes queries at multiples of 16 bytes";
  return capability(c.q.device()).hopper ? nullptr : "takes Hopper GPUs";
}

/// Why the decode kernel cannot do it; null: it can.
const char* why_not_decode(const Call& c) {
  if (!is_sixteen_bits(c.q.dtype())) return "takes float16 and bfloat16";
  if (c.q_tail.defined()) return "takes one cache of keys";
  if (std::max(c.dim, c.value_dim) > 256) return "takes head sizes up to 256";
  if (c.plan->size.page_size % 8 != 0) return "takes page sizes that are multiples of 8";
  if (c.k.numel() == 0 || c.v.numel() == 0) return "there is no page";
  if (!boxes_fit(c.k) || !boxes_fit(c.v)) return "takes caches at multiples of 16 bytes with contiguous heads";
  if (c.dim % 2 != 0 || !queries_fit(c.q, 2)) return "takes queries at multiples of 4 bytes";
  return capability(c.q.device()).hopper ? nullptr : "takes Hopper GPUs";
}

General problem_of(const Call& c, const Tensor& sinks, int splits, float* parts, int64_t part_rows) {
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
  p.table_stride = plan.size.pages_per_sequence;
  p.heads = static_cast<int>(c.heads), p.kv_heads = static_cast<int>(c.kv_heads), p.group = p.heads / p.kv_heads;
  p.latent = !why_not_latent(c);
  p.chunks = p.latent ? (p.group + static_cast<int>(paged::kLatentLaunchHeads) - 1) /
                            static_cast<int>(paged::kLatentLaunchHeads)
                      : (p.group + 15) / 16;
  p.rows_of_tile = c.splits > 0 ? 1 : std::max(1, 16 / p.group);
  p.dim = static_cast<int>(c.dim), p.value_dim = static_cast<int>(c.value_dim);
  p.pages = static_cast<int>(plan.size.pages), p.page_size = static_cast<int>(plan.size.page_size);
  p.causal = c.causal;
  const auto side = [](int64_t n) { return static_cast<int>(std::min<int64_t>(n, INT32_MAX)); };
  p.left = side(c.window.left), p.right = side(c.window.right);
  p.asked = static_cast<int>(c.splits);
  p.score_scale = c.scale, p.score_cap = c.softcap;
  p.part_state = reinterpret_cast<float2*>(parts);
  p.part_out = parts ? parts + 2 * part_rows * c.heads * splits : nullptr;
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

CUtensorMap map_of(const char* op, const Tensor& cache, int box) {
  CUtensorMap map;
  const MapTensor x{cache.raw(),
                    cache.dtype() == bfloat16,
                    {cache.shape(3), cache.shape(1), cache.shape(2), cache.shape(0)},
                    {cache.stride(1), cache.stride(2), cache.stride(0)}};
  if (!make_line_map(&map, x, {{box, 1}})) throw CudaError(std::string(op) + ": the driver refused a tensor map");
  return map;
}

void run_decode(const char* op, const Call& c, General& p, int64_t each) {
  p.scale = static_cast<float>(c.scale), p.scale_log2 = static_cast<float>(c.scale * 1.4426950408889634),
  p.softcap = static_cast<float>(c.softcap);
  p.sinks = static_cast<const float*>(p.sink);
  p.box = std::gcd(p.page_size, paged::decode_keys(std::max(p.dim, p.value_dim)));
  paged::DecodeLaunch launch{map_of(op, c.k, p.box), map_of(op, c.v, p.box), {}, c.q.device()};
  for (int64_t first = 0; first < c.plan->size.queries; first += each) {
    launch.problem = rows_from(p, c.q.dtype(), first, std::min(each, c.plan->size.queries - first));
    c.q.dtype() == bfloat16 ? paged::launch_decode_bfloat16(op, launch) : paged::launch_decode_float16(op, launch);
  }
}

void run_latent(const char* op, const Call& c, General& p, int64_t each) {
  p.scale = static_cast<float>(c.scale), p.scale_log2 = static_cast<float>(c.scale * 1.4426950408889634);
  p.box = std::gcd(p.page_size, 64);
  paged::LatentLaunch launch{map_of(op, c.k, p.box), map_of(op, c.k_tail, p.box), {},         nullptr,
                             c.q_tail.stride(0),     c.q_tail.stride(1),          p.tail_dim, c.q.device()};
  for (int64_t first = 0; first < c.plan->size.queries; first += each) {
    const General part = rows_from(p, c.q.dtype(), first, std::min(each, c.plan->size.queries - first));
    launch.problem = part, launch.q_tail = part.q_tail;
    paged::launch_latent(op, launch, c.q.dtype());
  }
}

void run_general(const char* op, const Call& c, General& p, int64_t each) {
  p.scale = 1, p.scale_log2 = 1.4426950408889634f;  // scores come scaled
  p.sinks = static_cast<const float*>(p.sink);
  for (int64_t first = 0; first < c.plan->size.queries; first += each) {
    const General part = rows_from(p, c.q.dtype(), first, std::min(each, c.plan->size.queries - first));
    const int64_t pairs = int64_t{part.rows} * part.heads;
    const auto slots =
        static_cast<int>(std::clamp<int64_t>(16 * multiprocessors(c.q.device()) / pairs, 1, p.most_splits));
    paged::launch_general(op, part, c.q.dtype(), slots, c.q.device());
    if (p.most_splits > 1) paged::launch_merge(op, part, c.q.dtype(), c.q.device());
  }
}

}  // namespace

std::string paged_strategy(const Call& call) {
  const char* reason = call.q_tail.defined() ? why_not_latent(call) : why_not_decode(call);
  return reason ? std::string("fallback\nflash_tensorcore: ") + reason : "flash_tensorcore";
}

int64_t paged_workspace_bytes(const DevicePlan::State& plan, int64_t heads, int64_t value_dim) {
  int64_t most = 0;
  for (const bool latent : {false, true}) {
    const int splits = paged::most_splits(plan.longest, 0, latent);
    const int64_t row = part_bytes_of_row(heads, value_dim, splits);
    if (splits > 1) most = std::max(most, row * std::min(plan.size.queries, rows_at_once(plan, row)));
  }
  return most;
}

void paged_run(const char* op, const Call& c) {
  const auto& plan = *c.plan;
  if (plan.size.queries == 0 || c.heads == 0 || c.value_dim == 0) return;
  const DeviceGuard guard(c.q.device());
  const bool decode = !why_not_decode(c), latent = !why_not_latent(c);
  // Partial states are float32, so float64 goes without unless they are asked for.
  const int splits = c.q.dtype() == float64 && c.splits == 0
                         ? 1
                         : paged::most_splits(plan.longest, static_cast<int>(c.splits), latent);
  const int64_t row = part_bytes_of_row(c.heads, c.value_dim, splits);
  int64_t each = c.splits > 0 ? std::min(plan.size.queries, kMostRowsAtOnce) : rows_at_once(plan, row);
  if (latent) each = std::min(each, paged::kLatentLaunchRows);
  Tensor parts = c.workspace;
  if (!parts.defined() && splits > 1)
    parts = Tensor::empty({row * std::min(each, plan.size.queries)}, uint8, c.q.device());
  Tensor sinks = c.sinks;
  if (sinks.defined()) sinks = sinks.to(c.q.dtype() == float64 && splits == 1 ? float64 : float32).contiguous();
  float* memory = parts.defined() && parts.numel() > 0 ? parts.data<float>() : nullptr;
  General p = problem_of(c, sinks, splits, memory, std::min(each, plan.size.queries));
  if (latent) return run_latent(op, c, p, each);
  decode ? run_decode(op, c, p, each) : run_general(op, c, p, each);
}

}  // namespace tenor::cuda
