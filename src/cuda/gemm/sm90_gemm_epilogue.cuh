// The Hopper GEMM with an epilogue: a chain of elementwise steps on the accumulators, before they are rounded. Each
// step is one loop over the registers of a thread, chosen once a tile; results have 16 bits, so functions may err by
// 2^-14.
#pragma once

#include "src/cuda/gemm/sm90_gemm.cuh"
#include "src/cuda/gemm/sm90_gemm_launch.cuh"
#include "src/ops/elementwise/formulas/activation.cuh"
#include "src/ops/elementwise/formulas/arithmetic.cuh"
#include "src/ops/elementwise/formulas/math.cuh"

namespace tenor::cuda::gemm {

/// Two neighbours of an operand, at row and column and the next column; clamped to C.
template <class T>
struct ChainReader {
  const void* data;
  int64_t row, column;
  int m, n;
  bool is_float, together;
  __device__ ChainReader(const ChainOperand& o, const GemmShape& shape, int z, int w)
      : row(o.row), column(o.column), m(shape.m), n(shape.n), is_float(o.is_float) {
    const int64_t at = z * o.batch[0] + w * o.batch[1];
    data = static_cast<const char*>(o.data) + at * (is_float ? 4 : 2);
    together = column == 1 && row % 2 == 0 && n % 2 == 0 && reinterpret_cast<uintptr_t>(data) % (is_float ? 8 : 4) == 0;
  }
  __device__ __forceinline__ float2 at(int i, int j) const {
    const int64_t first = min(i, m - 1) * row + min(j, n - (together ? 2 : 1)) * column;
    if (together) {
      if (is_float) return *reinterpret_cast<const float2*>(static_cast<const float*>(data) + first);
      const uint32_t two = *reinterpret_cast<const uint32_t*>(static_cast<const T*>(data) + first);
      return {static_cast<float>(reinterpret_cast<const T*>(&two)[0]),
              static_cast<float>(reinterpret_cast<const T*>(&two)[1])};
    }
    const int64_t second = min(i, m - 1) * row + min(j + 1, n - 1) * column;
    if (is_float) return {static_cast<const float*>(data)[first], static_cast<const float*>(data)[second]};
    return {static_cast<float>(static_cast<const T*>(data)[first]),
            static_cast<float>(static_cast<const T*>(data)[second])};
  }
};

template <int kCount, class F>
__device__ __forceinline__ void each_sum(float (&d)[kCount], F f) {
#pragma unroll
  for (float& y : d) y = f(y);
}

/// fn(d, other) of each accumulator.
template <class T, int kCount, class F>
__device__ __forceinline__ void each_pair(float (&d)[kCount], const ChainReader<T>& other, int y, int x, F fn) {
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    const float2 two = other.at(y + accumulator_row(i), x + accumulator_column(i));
    d[i] = fn(d[i], two.x), d[i + 1] = fn(d[i + 1], two.y);
  }
}

/// A 64-row tile of sums whose first element is (y, x), matrix (z, w).
template <class T, int kCount>
__device__ __forceinline__ void run_chain(float (&d)[kCount], const Chain& chain, const GemmShape& shape, int y, int x,
                                          int z, int w) {
  using elementwise::Formula;
  using elementwise::Op;
#pragma unroll 1
  for (int s = 0; s < chain.steps; ++s) {
    const ChainStep& step = chain.step[s];
    const float scalar = step.scalar;
    switch (step.op) {
      case ChainOp::kScale:
        each_sum(d, [=](float v) { return v * scalar; });
        break;
      case ChainOp::kShift:
        each_sum(d, [=](float v) { return v + scalar; });
        break;
      case ChainOp::kAdd:
        each_pair(d, ChainReader<T>(chain.operand[step.operand], shape, z, w), y, x,
                  [=](float v, float other) { return fmaf(other, scalar, v); });
        break;
      case ChainOp::kMul:
        each_pair(d, ChainReader<T>(chain.operand[step.operand], shape, z, w), y, x,
                  [](float v, float other) { return v * other; });
        break;
      case ChainOp::kRelu:
        each_sum(d, [](float v) { return Formula<Op::kRelu, float>()(v); });
        break;
      case ChainOp::kSigmoid:
        each_sum(d, [](float v) { return Formula<Op::kSigmoid, float>().brief(v); });
        break;
      case ChainOp::kTanh:
        each_sum(d, [](float v) { return Formula<Op::kTanh, float>().brief(v); });
        break;
      case ChainOp::kSilu:
        each_sum(d, [](float v) { return Formula<Op::kSilu, float>().brief(v); });
        break;
      case ChainOp::kGelu:
        each_sum(d, [](float v) { return Formula<Op::kGelu, float>().brief(v); });
        break;
      case ChainOp::kGeluTanh:
        each_sum(d, [](float v) { return Formula<Op::kGeluTanh, float>().brief(v); });
        break;
    }
  }
}

/// Tiles of which gemm_consume() finishes the sums.
template <class Config>
struct ChainTiles : DenseTiles<Config> {
  const Chain& chain;
  template <int kCount>
  __device__ __forceinline__ void finish(float (&d)[kCount], int y, int x, int2 matrix) const {
    run_chain<typename Config::T>(d, chain, this->shape, y, x, matrix.x, matrix.y);
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    sm90_gemm_chain_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                           const __grid_constant__ CUtensorMap map_c, const __grid_constant__ GemmShape shape,
                           const __grid_constant__ Chain chain) {
  if constexpr (!ptx::kIsHopper) return;
  extern __shared__ __align__(1024) unsigned char raw[];
  gemm_block(*reinterpret_cast<GemmShared<Config>*>(raw), ChainTiles<Config>{{shape}, chain},
             {map_a, map_b, map_c, map_b});
}

template <class T, bool kOuter>
cudaError_t launch_chain_tile(int tile, const GemmLaunch& launch, const Chain& chain) {
  constexpr auto kLayout = kOuter ? ptx::TileLayout::kOuter : ptx::TileLayout::kInner;
  const auto launched = [&]<int kTile>() {
    constexpr TileShape kShape = kOuter ? kOuterTiles[kTile % 4] : kInnerTiles[kTile];
    using Config = GemmConfig<T, kShape.columns, kShape.cluster_m, kShape.cluster_n, kLayout>;
    return launch_kernel<Config>(sm90_gemm_chain_kernel<Config>, launch, chain);
  };
  if (tile == kChainTiles[0]) return launched.template operator()<kChainTiles[0]>();
  if constexpr (kOuter) {
    if (tile == kChainOuterTiles[1]) return launched.template operator()<kChainOuterTiles[1]>();
  } else {
    if (tile == kChainTiles[1]) return launched.template operator()<kChainTiles[1]>();
    if (tile == kChainTiles[2]) return launched.template operator()<kChainTiles[2]>();
  }
  return cudaErrorInvalidValue;
}

}  // namespace tenor::cuda::gemm
