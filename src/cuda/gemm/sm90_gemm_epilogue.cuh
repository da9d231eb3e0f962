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

/// Two neighbours, which are aligned together.
template <class T>
__device__ __forceinline__ float2 two(const T* from) {
  const uint32_t word = *reinterpret_cast<const uint32_t*>(from);
  T pair[2];
  memcpy(pair, &word, sizeof(word));
  return {static_cast<float>(pair[0]), static_cast<float>(pair[1])};
}
/// d = fn(d, other) of the accumulators from i on that lie in a row's two columns and in those eight rows below.
template <int kCount, class F>
__device__ __forceinline__ void each_of_four(float (&d)[kCount], int i, float2 high, float2 low, F fn) {
  d[i] = fn(d[i], high.x), d[i + 1] = fn(d[i + 1], high.y);
  d[i + 2] = fn(d[i + 2], low.x), d[i + 3] = fn(d[i + 3], low.y);
}

/// An operand as a thread meets it in a tile of sums: at its accumulators' places, two neighbours of a row at a time.
template <class T, int kCount>
class ChainReader {
 public:
  __device__ __forceinline__ ChainReader(const ChainOperand& o, const GemmShape& shape, int y, int x, int z, int w)
      : operand_(o), shape_(shape), y_(y), x_(x), batch_(z * o.batch[0] + w * o.batch[1]) {
    const T* first =
        static_cast<const T*>(o.data) + batch_ + (y + accumulator_row(0)) * o.row + x + accumulator_column(0);
    near_ = first;
    // Whole tiles of an array whose rows are dense, or that is one row.
    together_ = !o.is_float && o.column == 1 && o.row % 2 == 0 && reinterpret_cast<uintptr_t>(first) % 4 == 0 &&
                y + 64 <= shape.m && x + 2 * kCount <= shape.n;
  }
  /// y = fn(y, other) of every accumulator.
  template <class F>
  __device__ __forceinline__ void each(float (&d)[kCount], F fn) const {
    if (together_ && operand_.row == 0) return each_column(d, fn);
    if (together_) return each_together(d, fn);
#pragma unroll
    for (int i = 0; i < kCount; ++i) d[i] = fn(d[i], at(i));
  }

 private:
  template <class F>
  __device__ __forceinline__ void each_column(float (&d)[kCount], F fn) const {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const float2 other = two(near_ + 2 * i);
      each_of_four(d, i, other, other, fn);
    }
  }
  template <class F>
  __device__ __forceinline__ void each_together(float (&d)[kCount], F fn) const {
    const T* below = near_ + 8 * operand_.row;
#pragma unroll
    for (int i = 0; i < kCount; i += 4) each_of_four(d, i, two(near_ + 2 * i), two(below + 2 * i), fn);
  }
  __device__ __forceinline__ float at(int i) const {
    const int row = min(y_ + accumulator_row(i), shape_.m - 1), column = min(x_ + accumulator_column(i), shape_.n - 1);
    const int64_t place = batch_ + row * operand_.row + column * operand_.column;
    return operand_.is_float ? static_cast<const float*>(operand_.data)[place]
                             : static_cast<float>(static_cast<const T*>(operand_.data)[place]);
  }

  const ChainOperand& operand_;
  const GemmShape& shape_;
  int y_, x_;
  int64_t batch_;
  const T* near_;
  bool together_;
};

/// The tile of an array beside C in the ring's stages behind a tile's last step: boxes of 64 columns that TMA has
/// swizzled, so that they come while the last products are formed.
template <class Config>
struct StagedTile {
  using T = typename Config::T;
  static constexpr int kBoxes = Config::kColumns / 64, kBoxElements = Config::kTileM * 64;
  static constexpr int kBoxesOfB = Config::kColumns * kTileK / kBoxElements, kAtOnce = 1 + kBoxesOfB;
  static_assert(Config::kColumns % 64 == 0 && !Config::kSwiGlu && Config::kConsumers == 2);

  GemmShared<Config>& shared;
  Ring<Config::kStages>& ring;

  /// Box i of a stage: in A's memory, then in B's.
  __device__ __forceinline__ T* box(int i) const {
    return i == 0 ? shared.a[ring.stage] : shared.b[ring.stage] + (i - 1) * kBoxElements;
  }
  __device__ __forceinline__ void load(const CUtensorMap& map, int y, int x, int2 matrix) const {
    for (int first = 0; first < kBoxes; first += kAtOnce) {
      const int here = min(kAtOnce, kBoxes - first);
      ptx::mbarrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
      ptx::mbarrier_arrive_expect(&shared.full[ring.stage], here * kBoxElements * static_cast<int>(sizeof(T)));
      for (int i = 0; i < here; ++i)
        ptx::tma_load_4d(box(i), &map, x + (first + i) * 64, y, matrix.x, matrix.y, &shared.full[ring.stage]);
      ring.advance();
    }
  }
  /// y = fn(y, other) of every accumulator of this warpgroup.
  template <class F>
  __device__ __forceinline__ void each(float (&d)[Config::kColumns / 2], const BlockPlace<Config>& place, F fn) const {
    const int row = (threadIdx.x / 128 - 1) * 64 + accumulator_row(0), line = row % 8;
#pragma unroll
    for (int first = 0; first < kBoxes; first += kAtOnce) {
      ptx::mbarrier_wait(&shared.full[ring.stage], ring.parity);
#pragma unroll
      for (int i = first; i < first + kAtOnce && i < kBoxes; ++i) {
        const T* from = box(i - first) + row * 64 + accumulator_column(0);
#pragma unroll
        for (int chunk = 0; chunk < 8; ++chunk) {
          const T* at = from + (chunk ^ line) * 8;
          each_of_four(d, (i * 8 + chunk) * 4, two(at), two(at + 8 * 64), fn);
        }
      }
      ptx::fence_async_proxy();
      warpgroup_sync(threadIdx.x / 128);
      release(shared, place, ring.stage);
      ring.advance();
    }
  }
};

/// Asks for what a warpgroup's tile will read of the arrays beside it, long before it does.
template <class T, int kCount>
__device__ __forceinline__ void prefetch_chain(const Chain& chain, const GemmShape& shape, int y, int x, int z, int w) {
  constexpr int kLine = 128 / static_cast<int>(sizeof(T)), kLines = (2 * kCount + kLine - 1) / kLine;
  for (int s = 0; s < chain.steps; ++s) {
    const ChainStep& step = chain.step[s];
    if (step.op != ChainOp::kAdd && step.op != ChainOp::kMul) continue;
    const ChainOperand& o = chain.operand[step.operand];
    if (o.row == 0 || o.column != 1 || o.is_float) continue;
    for (int i = threadIdx.x % 128; i < 64 * kLines; i += 128) {
      const int row = y + i / kLines, column = x + i % kLines * kLine;
      if (row >= shape.m || column >= shape.n) continue;
      const T* at = static_cast<const T*>(o.data) + z * o.batch[0] + w * o.batch[1] + row * o.row + column;
      asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
    }
  }
}

template <int kCount, class F>
__device__ __forceinline__ void each_sum(float (&d)[kCount], F f) {
#pragma unroll
  for (float& y : d) y = f(y);
}

/// A 64-row tile of sums whose first element is (y, x), matrix (z, w). `staged(fn)` is each() of chain.staged.
template <class T, int kCount, class Staged>
__device__ __forceinline__ void run_chain(float (&d)[kCount], const Chain& chain, const GemmShape& shape, int y, int x,
                                          int z, int w, Staged staged) {
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
      case ChainOp::kAdd: {
        const auto add = [=](float v, float other) { return fmaf(other, scalar, v); };
        if (step.operand == chain.staged)
          staged(add);
        else
          ChainReader<T, kCount>(chain.operand[step.operand], shape, y, x, z, w).each(d, add);
        break;
      }
      case ChainOp::kMul: {
        const auto mul = [](float v, float other) { return v * other; };
        if (step.operand == chain.staged)
          staged(mul);
        else
          ChainReader<T, kCount>(chain.operand[step.operand], shape, y, x, z, w).each(d, mul);
        break;
      }
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
  __device__ __forceinline__ void prepare(int y, int x, int2 matrix) const {
    prefetch_chain<typename Config::T, Config::kColumns / 2>(chain, this->shape, y, x, matrix.x, matrix.y);
  }
  __device__ __forceinline__ void load_beside(GemmShared<Config>& shared, Ring<Config::kStages>& ring,
                                              const GemmMaps& maps, int y, int x, int2 matrix) const {
    if (chain.staged < 0) return;
    const ChainOperand& o = chain.operand[chain.staged];
    StagedTile<Config>{shared, ring}.load(maps.up, y, x, {o.batch[0] ? matrix.x : 0, o.batch[1] ? matrix.y : 0});
  }
  template <int kCount>
  __device__ __forceinline__ void finish(float (&d)[kCount], int y, int x, int2 matrix, GemmShared<Config>& shared,
                                         Ring<Config::kStages>& ring, const BlockPlace<Config>& place) const {
    run_chain<typename Config::T>(d, chain, this->shape, y, x, matrix.x, matrix.y, [&](auto fn) {
      StagedTile<Config>{shared, ring}.each(d, place, fn);
    });
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    sm90_gemm_chain_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                           const __grid_constant__ CUtensorMap map_c, const __grid_constant__ GemmShape shape,
                           const __grid_constant__ Chain chain, const __grid_constant__ CUtensorMap map_beside) {
  if constexpr (!ptx::kIsHopper) return;
  extern __shared__ __align__(1024) unsigned char raw[];
  gemm_block(*reinterpret_cast<GemmShared<Config>*>(raw), ChainTiles<Config>{{shape}, chain},
             {map_a, map_b, map_c, map_beside});
}

template <class T, bool kOuter>
cudaError_t launch_chain_tile(int tile, const GemmLaunch& launch, const Chain& chain) {
  constexpr auto kLayout = kOuter ? ptx::TileLayout::kOuter : ptx::TileLayout::kInner;
  const auto launched = [&]<int kTile>() {
    constexpr TileShape kShape = kOuter ? kOuterTiles[kTile % 4] : kInnerTiles[kTile];
    using Config = GemmConfig<T, kShape.columns, kShape.cluster_m, kShape.cluster_n, kLayout>;
    return launch_kernel<Config>(sm90_gemm_chain_kernel<Config>, launch, chain, launch.beside);
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
