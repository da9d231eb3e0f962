// Plans from the caller's ids, and the part of every plan that comes after its slots are counted.
#include "src/core/visit.h"
#include "src/cuda/content_error.cuh"
#include "src/cuda/convert.cuh"
#include "src/cuda/stride_loop.cuh"
#include "src/ops/moe/moe_arrange.h"
#include "src/ops/moe/moe_cuda.h"

namespace tenor::cuda {
namespace {

using moe::Slots;

constexpr int kScanThreads = 1024, kCountThreads = 256;

__global__ void __launch_bounds__(kCountThreads) count_kernel(const __grid_constant__ Slots s) {
  extern __shared__ int counts[];
  count_slots(s, blockIdx.x, counts);
  for (int b = threadIdx.x; b <= s.experts; b += blockDim.x)
    s.counts[int64_t{blockIdx.x} * (s.experts + 1) + b] = counts[b];
}

/// One block. Neighbouring threads have neighbouring buckets; where those are few, several threads share the chunks of
/// one. `parts` [threads] holds what each adds up.
__global__ void __launch_bounds__(kScanThreads) scan_kernel(const __grid_constant__ Slots s) {
  extern __shared__ int totals[];
  __shared__ int parts[kScanThreads], warps[kScanThreads / kWarp];
  const int buckets = s.experts + 1, share = max(1, kScanThreads / buckets), part = threadIdx.x / buckets;
  const int per_part = (s.chunks + share - 1) / share, first = part * per_part, last = min(s.chunks, first + per_part);
  for (int strip = 0; strip < buckets; strip += kScanThreads) {
    const int b = strip + threadIdx.x % min(buckets, kScanThreads);
    int sum = 0;
    if (b < buckets)
      for (int c = first; c < last; ++c) sum += s.counts[int64_t{c} * buckets + b];
    parts[threadIdx.x] = sum;
    __syncthreads();
    if (part == 0 && b < buckets) {
      int total = 0;
      for (int p = 0; p < share; ++p) total += parts[p * buckets + threadIdx.x];
      totals[b] = total;
    }
    __syncthreads();
  }
  scan_counts(s, totals, warps);
  for (int strip = 0; strip < buckets; strip += kScanThreads) {
    const int b = strip + threadIdx.x % min(buckets, kScanThreads);
    if (b >= buckets || first >= last) continue;
    int row = totals[b];
    for (int p = 0; p < part; ++p) row += parts[p * buckets + threadIdx.x % buckets];
    for (int c = first; c < last; ++c) {
      int& entry = s.counts[int64_t{c} * buckets + b];
      const int count = entry;
      entry = row;
      row += count;
    }
  }
}

__global__ void __launch_bounds__(kWarp) rows_kernel(const __grid_constant__ Slots s) {
  extern __shared__ int next[];
  for (int b = threadIdx.x; b <= s.experts; b += kWarp) next[b] = s.counts[int64_t{blockIdx.x} * (s.experts + 1) + b];
  __syncwarp();
  deal_rows(s, blockIdx.x, next);
}

template <class I>
__global__ void ids_kernel(const I* ids, int64_t row, int64_t column, int top_k, int64_t count, int64_t experts,
                           int* to, ContentError* flag, int op) {
  for_each_item(count, [&](int64_t i) {
    const I id = ids[i / top_k * row + i % top_k * column];
    const bool good = std::is_signed_v<I> ? static_cast<int64_t>(id) >= -1 && static_cast<int64_t>(id) < experts
                                          : static_cast<uint64_t>(id) < static_cast<uint64_t>(experts);
    if (!good) raise_content_error(flag, op, i, static_cast<int64_t>(id));
    to[i] = good ? static_cast<int>(id) : -1;
  });
}

size_t bucket_bytes(const Slots& s) { return static_cast<size_t>(s.experts + 1) * sizeof(int); }

}  // namespace

ArrangeSpace::ArrangeSpace(const moe::RoutingPlan::State& plan) {
  const auto tokens = static_cast<int>(plan.ids.shape(0)), experts = static_cast<int>(plan.experts);
  const int least = (tokens + moe::kMostChunks - 1) / moe::kMostChunks;
  const int chunk = std::max(1, (least + moe::kChunkTokens - 1) / moe::kChunkTokens) * moe::kChunkTokens;
  const int chunks = std::max(1, (tokens + chunk - 1) / chunk);
  if (chunks > 1) counts = Tensor::empty({chunks, experts + 1}, int32, plan.ids.device());
  slots = {plan.ids.data<int>(),
           plan.rows.data<int>(),
           plan.offsets.data<int64_t>(),
           chunks > 1 ? counts.data<int>() : nullptr,
           tokens,
           static_cast<int>(plan.ids.shape(1)),
           experts,
           chunk,
           chunks};
}

void arrange_counted(const char* op, const moe::Slots& s, Device device) {
  launch(op, scan_kernel, {1, kScanThreads, bucket_bytes(s)}, device, s);
  launch(op, rows_kernel, {static_cast<unsigned>(s.chunks), kWarp, bucket_bytes(s)}, device, s);
}

void arrange(const char* op, const moe::RoutingPlan::State& plan) {
  const Device device = plan.ids.device();
  const DeviceGuard guard(device);
  ArrangeSpace space(plan);
  if (!space.slots.counts) {  // one chunk
    space.counts = Tensor::empty({1, plan.experts + 1}, int32, device);
    space.slots.counts = space.counts.data<int>();
  }
  const auto chunks = static_cast<unsigned>(space.slots.chunks);
  launch(op, count_kernel, {chunks, kCountThreads, bucket_bytes(space.slots)}, device, space.slots);
  arrange_counted(op, space.slots, device);
}

void read_expert_ids(const char* op, const Tensor& ids, int64_t experts, const Tensor& to) {
  if (to.numel() == 0) return;
  const Device device = to.device();
  const DeviceGuard guard(device);
  static const int argument = content_op("moe.RoutingPlan", "expert_indices");
  core::visit_integer(ids.dtype(), [&]<class I>() {
    launch(op, ids_kernel<I>, {blocks_for(to.numel(), 256, device), 256}, device, ids.data<I>(), ids.stride(0),
           ids.stride(1), static_cast<int>(to.shape(1)), to.numel(), experts, to.data<int>(),
           content_error(current_stream(device)), argument);
  });
}

}  // namespace tenor::cuda
