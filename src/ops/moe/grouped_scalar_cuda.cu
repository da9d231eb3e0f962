// Grouped products by one chain of multiply-adds an element, for every dtype, stride and size: the tiles of
// contraction's simple kernel, a group's beside one another. And the activation between two of them.
#include "src/core/visit.h"
#include "src/cuda/content_error.cuh"
#include "src/cuda/content_kind.h"
#include "src/cuda/gemm/sm90_groups.cuh"
#include "src/cuda/reduce.cuh"
#include "src/cuda/stride_loop.cuh"
#include "src/ops/contract/gemm_simple.cuh"
#include "src/ops/moe/grouped_cuda.h"
#include "src/ops/moe/moe_score.h"

namespace tenor::cuda {
namespace {

using contract::DeviceGemm;
using gemm::GroupOffsets;

constexpr int kTile = 64, kDepth = 16;

/// `p` is the product of all rows; its m, and where its matrices start, are the group's.
template <class C>
__global__ void __launch_bounds__(contract::kSimpleThreads)
    grouped_scalar_kernel(const __grid_constant__ DeviceGemm p, const __grid_constant__ GroupOffsets offsets,
                          int64_t group_b) {
  __shared__ __align__(16) C as[kDepth][kTile + 4], bs[kDepth][kTile + 4];
  extern __shared__ int starts[];
  gemm::count_tiles(starts, offsets, kTile);
  const int64_t cols = (p.n + kTile - 1) / kTile, tiles = starts[offsets.groups] * cols;
  for (int64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    const auto tile = static_cast<int>(i / cols);
    const int group = gemm::group_of(starts, offsets.groups, tile), first = offsets.first(group);
    DeviceGemm own = p;
    own.m = offsets.last(group) - first;
    const int64_t at[3] = {first * p.a.row, group * group_b, first * p.c.row};
    contract::simple_tile<C, kTile, kDepth>(own, at, int64_t{tile - starts[group]} * kTile, i % cols * kTile, as, bs);
  }
}

template <class T>
__global__ void gated_kernel(const core::Compute<T>* gate, const core::Compute<T>* up, T* out, int64_t count) {
  for_each_item(count, [&](int64_t i) { out[i] = convert<T>(moe::gated(gate[i], up[i])); });
}

/// One warp: clean[g] = the greatest offset up to g, within 0..rows; raises the flag where that is another number, or
/// the first is not 0.
__global__ void __launch_bounds__(kWarp) clean_offsets_kernel(const void* offsets, bool wide, int count, int64_t rows,
                                                              int64_t* clean, ContentError* flag, int op) {
  int64_t before = 0;
  for (int strip = 0; strip < count; strip += kWarp) {
    const int g = strip + threadIdx.x;
    int64_t given = 0;
    if (g < count) given = wide ? static_cast<const int64_t*>(offsets)[g] : static_cast<const int32_t*>(offsets)[g];
    int64_t most = min(given, rows);
    for (int step = 1; step < kWarp; step *= 2) {
      const int64_t other = __shfl_up_sync(~0u, most, step);
      if (static_cast<int>(threadIdx.x) >= step) most = max(most, other);
    }
    most = max(most, before);
    before = __shfl_sync(~0u, most, kWarp - 1);
    if (g >= count) continue;
    clean[g] = most;
    if (given != most || (g == 0 && given != 0)) raise_content_error(flag, op, g, given);
  }
}

contract::DeviceMatrix matrix_of(const Tensor& x, int row, int column) {
  return {x.raw(), x.dtype(), x.stride(row), x.stride(column)};
}

}  // namespace

void grouped_scalar(const char* op, const Tensor& x, const Tensor& weight, const Tensor& offsets, const Tensor& y) {
  const Device device = y.device();
  const DeviceGuard guard(device);
  DeviceGemm p;
  p.m = x.shape(0), p.n = weight.shape(1), p.k = weight.shape(2), p.device = device;
  p.a = matrix_of(x, 0, 1), p.b = matrix_of(weight, 2, 1), p.c = matrix_of(y, 0, 1);
  const auto groups = static_cast<int>(weight.shape(0));
  const GroupOffsets at{offsets.raw(), true, groups, static_cast<int>(p.m)};
  const int64_t most = (p.m / kTile + std::min<int64_t>(groups, p.m)) * ((p.n + kTile - 1) / kTile);
  const Grid grid{blocks_for(most, 1, device, 16), contract::kSimpleThreads, (groups + 1) * sizeof(int)};
  if (x.dtype() == float64)
    launch(op, grouped_scalar_kernel<double>, grid, device, p, at, weight.stride(0));
  else
    launch(op, grouped_scalar_kernel<float>, grid, device, p, at, weight.stride(0));
}

void gated_elements(const char* op, const Tensor& gate, const Tensor& up, const Tensor& out) {
  const Device device = out.device();
  const DeviceGuard guard(device);
  core::visit_float(out.dtype(), [&]<class T>() {
    using C = core::Compute<T>;
    launch(op, gated_kernel<T>, {blocks_for(out.numel(), 1024, device), 256}, device, gate.data<C>(), up.data<C>(),
           out.data<T>(), out.numel());
  });
}

Tensor clean_offsets(const char* op, const Tensor& offsets, int64_t rows) {
  const Device device = offsets.device();
  const DeviceGuard guard(device);
  static const int argument = content_op("moe.grouped_matmul", "offsets", ContentKind::kValue);
  const Tensor clean = Tensor::empty(offsets.shape(), int64, device);
  launch(op, clean_offsets_kernel, {1, kWarp}, device, offsets.raw(), offsets.dtype() == int64,
         static_cast<int>(offsets.shape(0)), rows, clean.data<int64_t>(), content_error(current_stream(device)),
         argument);
  return clean;
}

}  // namespace tenor::cuda
