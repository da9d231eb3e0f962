// "tensorcore" for float32 and float16: the two kernels by TF32 products, and what they need of memory.
#include "src/ops/gated_delta/chunk_tf32_channels.cuh"
#include "src/ops/gated_delta/chunk_tf32_segments.cuh"
#include "src/ops/gated_delta/gated_delta_launch.h"

namespace tenor::delta {
namespace {

/// The most warps of a block that compute. Eight of float32's spill, and take longer than four after four.
template <class T>
inline constexpr int kMostWarps = kIsFine<T> ? 4 : 8;

/// Warps of a block that compute. More of them share a chunk's copies, fewer leave no multiprocessor idle: what counts
/// is how often the blocks fill the device; eight warps take 1.45 times as long as four, which have a scheduler each.
int choose_warps(int64_t tiles, int64_t heads, int most, int multiprocessors) {
  int best = 1;
  double least = 0;
  for (int warps = 1; warps <= most; warps *= 2) {
    const int64_t blocks = (tiles + warps - 1) / warps * heads;
    const double time = static_cast<double>((blocks + multiprocessors - 1) / multiprocessors) * (warps == 8 ? 1.45 : 1);
    if (least == 0 || time < least) least = time, best = warps;
  }
  return best;
}

/// A launch whose first kernel's factors lie in `memory`; null: no sequence has a step.
struct Launch {
  const Problem& problem;
  const DeviceProblem& p;
  void* memory;
  int64_t items;
};

template <class Config, int kWarps>
void launch_scan(const Launch& l, int warps) {
  const DeviceProblem& p = l.p;
  const int64_t tiles = p.value_dim / kTf32Columns, column_blocks = (tiles + warps - 1) / warps;
  cuda::launch(l.problem.op, scan_tf32_kernel<Config, kWarps>,
               {dim3(blocks_of(l.problem.op, column_blocks, p.value_heads, p.sequences.count)),
                dim3(static_cast<unsigned>(32 * (warps + 1))), sizeof(typename Config::Shared), 1, l.memory != nullptr},
               l.problem.output.device(), p, static_cast<const typename Config::Factors*>(l.memory),
               static_cast<unsigned>(column_blocks));
}

template <class Config>
void launch_prepare(const Launch& l) {
  using T = typename Config::Element;
  const auto pass = [&](auto* kernel, int threads, size_t shared) {
    cuda::launch(l.problem.op, kernel,
                 {dim3(blocks_of(l.problem.op, 1, 1, l.items)), dim3(static_cast<unsigned>(threads)), shared},
                 l.problem.output.device(), l.p, static_cast<typename Config::Factors*>(l.memory));
  };
  if constexpr (Config::kByChannel)
    pass(prepare_tf32_channels_kernel<T, Config::kKeyDim>, kChannelThreads,
         sizeof(Tf32ChannelShared<T, Config::kKeyDim>));
  else
    pass(prepare_tf32_kernel<T, Config::kKeyDim>, kPrepareThreads, sizeof(Tf32PrepareShared<T, Config::kKeyDim>));
}

/// A chunk takes four to six times as long as bfloat16's, so that joining counts less and short segments pay.
constexpr SegmentCosts kSegmentCosts{0.7, 0.4, 0.8, 8};

template <class Config>
void launch_segments(const Launch& l, const Segments& s) {
  const Device device = l.problem.output.device();
  const auto pass = [&](auto* kernel, bool early) {
    return [=, &l](const Segments& given, unsigned blocks) {
      cuda::launch(l.problem.op, kernel,
                   {dim3(blocks), dim3(32 * (kSegmentWarps + 1)), sizeof(typename Config::Shared), 1, early}, device,
                   l.p, static_cast<const typename Config::Factors*>(l.memory), given);
    };
  };
  run_segments<Config::kKeyDim>(l.problem.op, l.p, s, device, pass(segments_tf32_kernel<Config, false>, true),
                                pass(segments_tf32_kernel<Config, true>, false));
}

template <class Config>
void launch_kernels(Launch l) {
  constexpr int kMost = kMostWarps<typename Config::Element>;
  const Device device = l.problem.output.device();
  Tensor memory;
  if (l.items > 0 && l.problem.steps > 0)
    memory = Tensor::empty({core::count_product(l.items, int64_t{sizeof(typename Config::Factors)})}, uint8, device);
  l.memory = memory.defined() ? memory.raw() : nullptr;
  if (l.memory) {
    launch_prepare<Config>(l);
    if (const Segments s = choose_segments(l.p, kSegmentCosts, device); s.count > 0)
      return launch_segments<Config>(l, s);
  }
  const int warps = choose_warps(l.p.value_dim / kTf32Columns, l.p.value_heads * l.p.sequences.count, kMost,
                                 cuda::multiprocessors(device));
  warps > 4 ? launch_scan<Config, kMost>(l, warps) : launch_scan<Config, 4>(l, warps);
}

template <class T, int kKeyDim>
void launch_for(const Launch& l) {
  l.p.by_channel ? launch_kernels<Tf32Scan<T, kKeyDim, true>>(l) : launch_kernels<Tf32Scan<T, kKeyDim, false>>(l);
}

template <class T>
void launch_type(const Launch& l) {
  l.p.key_dim == 128 ? launch_for<T, 128>(l) : launch_for<T, 64>(l);
}

}  // namespace

void launch_tf32(const Problem& problem, const DeviceProblem& given) {
  zero_unclaimed_cuda(problem.op, given.sequences, problem.output, given.value_heads);
  if (given.value_heads == 0 || given.sequences.count == 0) return;
  DeviceProblem p = given;
  const Tensor query = aligned_rows(problem.query), key = aligned_rows(problem.key);
  p.query = rows_of(query), p.key = rows_of(key);
  const Launch launch{problem, p, nullptr, core::count_product(chunk_slots(p.sequences), p.value_heads)};
  problem.query.dtype() == float32 ? launch_type<float>(launch) : launch_type<Float16>(launch);
}

}  // namespace tenor::delta
