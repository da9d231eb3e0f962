// "tensorcore": the chunk form's two kernels, and what they need of memory.
#include "src/cuda/tensor_map.h"
#include "src/ops/gated_delta/chunk_prepare.cuh"
#include "src/ops/gated_delta/chunk_scan.cuh"
#include "src/ops/gated_delta/gated_delta_launch.h"

namespace tenor::delta {
namespace {

Tensor aligned_rows(const Tensor& x) {
  if (has_aligned_rows(x)) return x;
  return x.is_contiguous() ? x.clone() : x.contiguous();  // dense, but at an odd address
}

void make_map(CUtensorMap& map, const char* op, const Tensor& x) {
  const cuda::MapTensor as{
      x.raw(), true, {x.shape(3), x.shape(2), x.shape(1), x.shape(0)}, {x.stride(2), x.stride(1), x.stride(0)}};
  if (!cuda::make_line_map(&map, as, {{kChunk, 1}})) cuda::check(cudaErrorInvalidValue, op);
}

template <int kKeyDim>
void launch_prepare(const char* op, const DeviceProblem& p, const ChunkMaps& maps, ChunkFactors* factors,
                    Device device) {
  const unsigned blocks = blocks_of(op, 1, p.value_heads, chunk_slots(p.sequences));
  cuda::launch(op, prepare_kernel<kKeyDim>, {dim3(blocks), dim3(kPrepareThreads), sizeof(PrepareShared<kKeyDim>)},
               device, p, maps, factors);
}

template <class Config>
void launch_scan(const char* op, const DeviceProblem& p, const ChunkMaps& maps, const ChunkFactors* factors,
                 Device device) {
  const int64_t column_blocks = p.value_dim / Config::kColumns;
  const unsigned blocks = blocks_of(op, column_blocks, p.value_heads, p.sequences.count);
  cuda::launch(op, scan_kernel<Config>,
               {dim3(blocks), dim3(Config::kThreads), sizeof(typename Config::Shared), 1, factors != nullptr}, device,
               p, factors, maps, static_cast<unsigned>(column_blocks));
}

/// Two warpgroups a block share a sequence's copies where there are more columns than multiprocessors. Not a bit
/// depends on it.
template <int kKeyDim>
void launch_both(const char* op, const DeviceProblem& p, const ChunkMaps& maps, ChunkFactors* factors, Device device) {
  if (factors) launch_prepare<kKeyDim>(op, p, maps, factors, device);
  const int64_t groups = p.value_dim / 64 * p.value_heads * p.sequences.count;
  if (p.value_dim % 128 == 0 && groups > cuda::multiprocessors(device))
    return launch_scan<Scan<kKeyDim, 2>>(op, p, maps, factors, device);
  launch_scan<Scan<kKeyDim, 1>>(op, p, maps, factors, device);
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
    memory = Tensor::empty({items * static_cast<int64_t>(sizeof(ChunkFactors))}, uint8, device);
    make_map(maps.query, problem.op, query), make_map(maps.key, problem.op, key);
    make_map(maps.value, problem.op, value), make_map(maps.output, problem.op, output);
  }
  auto* factors = memory.defined() ? reinterpret_cast<ChunkFactors*>(memory.raw()) : nullptr;
  if (p.value_heads > 0 && p.sequences.count > 0) {
    if (p.key_dim == 128) {
      launch_both<128>(problem.op, p, maps, factors, device);
    } else {
      launch_both<64>(problem.op, p, maps, factors, device);
    }
  }
  if (output.raw() != problem.output.raw()) core::copy_into(output, problem.output);
}

}  // namespace tenor::delta
