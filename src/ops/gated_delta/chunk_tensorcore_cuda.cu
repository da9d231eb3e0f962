// "tensorcore": the chunk form's two kernels, or those of its segments, and what they need of memory.
#include <algorithm>

#include "src/cuda/tensor_map.h"
#include "src/ops/gated_delta/chunk_prepare.cuh"
#include "src/ops/gated_delta/chunk_segments.cuh"
#include "src/ops/gated_delta/gated_delta_launch.h"

namespace tenor::delta {
namespace {

void make_map(CUtensorMap& map, const char* op, const Tensor& x) {
  const cuda::MapTensor as{
      x.raw(), true, {x.shape(3), x.shape(2), x.shape(1), x.shape(0)}, {x.stride(2), x.stride(1), x.stride(0)}};
  if (!cuda::make_line_map(&map, as, {{kChunk, 1}})) cuda::check(cudaErrorInvalidValue, op);
}

struct Launch {
  const char* op;
  const DeviceProblem& p;
  const ChunkMaps& maps;
  void* factors;  // null: no sequence has a step
  Device device;
};

template <int kKeyDim>
void launch_prepare(const Launch& l, const ChunkSlice& slice) {
  const DeviceProblem& p = l.p;
  const unsigned blocks = blocks_of(l.op, 1, p.value_heads, chunk_slots(p.sequences) / slice.each * slice.count);
  const bool early = slice.first > 0;  // beside the second kernel of the slice before
  if (p.by_channel)
    cuda::launch(l.op, prepare_channels_kernel<kKeyDim>,
                 {dim3(blocks), dim3(kChannelThreads), sizeof(ChannelShared<kKeyDim>), 1, early}, l.device, p, l.maps,
                 static_cast<ChannelFactors<kKeyDim>*>(l.factors), slice);
  else
    cuda::launch(l.op, prepare_kernel<kKeyDim>,
                 {dim3(blocks), dim3(kPrepareThreads), sizeof(PrepareShared<kKeyDim>), 1, early}, l.device, p, l.maps,
                 static_cast<ChunkFactors*>(l.factors), slice);
}

template <class Config>
unsigned scan_blocks(const Launch& l) {
  return blocks_of(l.op, l.p.value_dim / Config::kColumns, l.p.value_heads, l.p.sequences.count);
}

template <class Config>
void launch_scan(const Launch& l, const ChunkSlice& slice) {
  cuda::launch(
      l.op, scan_kernel<Config>,
      {dim3(scan_blocks<Config>(l)), dim3(Config::kThreads), sizeof(typename Config::Shared), 1, l.factors != nullptr},
      l.device, l.p, static_cast<const typename Config::Factors*>(l.factors), l.maps,
      static_cast<unsigned>(l.p.value_dim / Config::kColumns), slice);
}

/// A chunk without outputs takes 0.7 of one with them, joining two chunks' time. With decays by channel the slow first
/// kernel had better run beside the second one.
SegmentCosts segment_costs(const DeviceProblem& p) { return {0.7, 2, p.by_channel ? 0.4 : 0.8, 16}; }

template <class Config>
void launch_segments(const Launch& l, const Segments& s) {
  const auto pass = [&](auto* kernel, bool early) {
    return [=, &l](const Segments& given, unsigned blocks) {
      cuda::launch(l.op, kernel, {dim3(blocks), dim3(Config::kThreads), sizeof(typename Config::Shared), 1, early},
                   l.device, l.p, static_cast<const typename Config::Factors*>(l.factors), l.maps, given);
    };
  };
  run_segments<Config::kKeyDim>(l.op, l.p, s, l.device, pass(segments_kernel<Config, false>, true),
                                pass(segments_kernel<Config, true>, false));
}

template <int kKeyDim>
void launch_cut(const Launch& l, const Segments& s) {
  const unsigned each = most_chunks(l.p);
  launch_prepare<kKeyDim>(l, {0, each, each});
  l.p.by_channel ? launch_segments<ChannelScan<kKeyDim>>(l, s) : launch_segments<Scan<kKeyDim, 1>>(l, s);
}

/// In slices where the second kernel leaves a third of the multiprocessors to the first one of the next. Not a bit
/// depends on it.
template <class Config>
void launch_kernels(const Launch& l) {
  const bool packed = l.p.sequences.starts.data;
  const unsigned each = most_chunks(l.p);
  if (!l.factors || packed || 3 * int64_t{scan_blocks<Config>(l)} > 2 * cuda::multiprocessors(l.device)) {
    if (l.factors) launch_prepare<Config::kKeyDim>(l, {0, each, each});
    return launch_scan<Config>(l, {0, each, each});
  }
  constexpr unsigned kLeast = 256, kSlices = 4;  // chunks of a slice, and slices; more of them cost more than they hide
  const unsigned count = std::max(kLeast, (each + kSlices - 1) / kSlices);
  for (unsigned first = 0; first < each; first += count) {
    const ChunkSlice slice{first, std::min(count, each - first), each};
    launch_prepare<Config::kKeyDim>(l, slice);
    launch_scan<Config>(l, slice);
  }
}

/// In segments where they pay, which alone bits depend on. Else two warpgroups a block share a sequence's copies where
/// there are more columns than multiprocessors.
template <int kKeyDim>
void launch_both(const Launch& l) {
  if (l.factors)
    if (const Segments s = choose_segments(l.p, segment_costs(l.p), l.device); s.count > 0)
      return launch_cut<kKeyDim>(l, s);
  if (l.p.by_channel) return launch_kernels<ChannelScan<kKeyDim>>(l);
  const int64_t groups = l.p.value_dim / 64 * l.p.value_heads * l.p.sequences.count;
  if (l.p.value_dim % 128 == 0 && groups > cuda::multiprocessors(l.device)) return launch_kernels<Scan<kKeyDim, 2>>(l);
  launch_kernels<Scan<kKeyDim, 1>>(l);
}

/// Of what the first kernel makes for a chunk and head.
int64_t factor_bytes(const DeviceProblem& p) {
  if (!p.by_channel) return sizeof(ChunkFactors);
  return p.key_dim == 128 ? sizeof(ChannelFactors<128>) : sizeof(ChannelFactors<64>);
}

}  // namespace

void launch_tensorcore(const Problem& problem, const DeviceProblem& given) {
  const Device device = problem.output.device();
  const Tensor output =
      has_aligned_rows(problem.output) ? problem.output : Tensor::empty(problem.output.shape(), bfloat16, device);
  zero_unclaimed_cuda(problem.op, given.sequences, output, given.value_heads);
  DeviceProblem p = given;
  const Tensor query = aligned_rows(problem.query), key = aligned_rows(problem.key),
               value = aligned_rows(problem.value);
  p.output = {output.raw(), output.stride(0), output.stride(1), output.stride(2), output.stride(3)};
  const int64_t items = core::count_product(chunk_slots(p.sequences), p.value_heads);
  Tensor memory;
  ChunkMaps maps{};
  if (items > 0 && problem.steps > 0) {
    memory = Tensor::empty({core::count_product(items, factor_bytes(p))}, uint8, device);
    make_map(maps.query, problem.op, query), make_map(maps.key, problem.op, key);
    make_map(maps.value, problem.op, value), make_map(maps.output, problem.op, output);
  }
  void* factors = memory.defined() ? memory.raw() : nullptr;
  const Launch launch{problem.op, p, maps, factors, device};
  if (p.value_heads > 0 && p.sequences.count > 0) p.key_dim == 128 ? launch_both<128>(launch) : launch_both<64>(launch);
  if (output.raw() != problem.output.raw()) core::copy_into(output, problem.output);
}

}  // namespace tenor::delta
