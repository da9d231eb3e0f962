// The "simple" candidate: c = a @ b + bias for every dtype, stride and size, in tiles of gemm_simple.cuh.
#include "src/cuda/launch.h"
#include "src/ops/contract/gemm_cuda.h"
#include "src/ops/contract/gemm_simple.cuh"

namespace tenor::contract {
namespace {

template <class T, int kTile, int kDepth>
__global__ void __launch_bounds__(kSimpleThreads) simple_kernel(const __grid_constant__ DeviceGemm p) {
  __shared__ __align__(16) T as[kDepth][kTile + 4], bs[kDepth][kTile + 4];
  const int64_t rows = (p.m + kTile - 1) / kTile, cols = (p.n + kTile - 1) / kTile, tiles = rows * cols;
  for (int64_t i = blockIdx.x; i < tiles * p.batch.count; i += gridDim.x) {
    int64_t at[3];
    cuda::offsets(p.batch, i / tiles, at);
    simple_tile<T, kTile, kDepth>(p, at, i % tiles / cols * kTile, i % tiles % cols * kTile, as, bs);
  }
}

template <class T, int kTile, int kDepth>
void launch_simple(const DeviceGemm& p) {
  const int64_t tiles = (p.m + kTile - 1) / kTile * ((p.n + kTile - 1) / kTile) * p.batch.count;
  cuda::launch("matmul", simple_kernel<T, kTile, kDepth>,
               {cuda::blocks_for(tiles, 1, p.device, 1 << 16), kSimpleThreads}, p.device, p);
}

template <class F>
void visit_compute(DType compute, F&& fn) {
  if (compute == DType::kFloat32) return fn.template operator()<float>();
  if (compute == DType::kFloat64) return fn.template operator()<double>();
  if (compute == DType::kBool) return fn.template operator()<bool>();
  switch (item_size(compute)) {  // signed and unsigned wrap alike
    case 1:
      return fn.template operator()<uint8_t>();
    case 2:
      return fn.template operator()<uint16_t>();
    case 4:
      return fn.template operator()<uint32_t>();
    default:
      return fn.template operator()<uint64_t>();
  }
}

}  // namespace

void simple_gemm_cuda(const DeviceGemm& p) {
  const cuda::DeviceGuard guard(p.device);
  visit_compute(p.compute, [&]<class T>() {
    const int64_t large_tiles = (p.m + 127) / 128 * ((p.n + 127) / 128) * p.batch.count;
    if (sizeof(T) <= 4 && large_tiles >= cuda::multiprocessors(p.device))
      launch_simple<T, 128, 8>(p);
    else
      launch_simple<T, 64, 16>(p);
  });
}

}  // namespace tenor::contract
