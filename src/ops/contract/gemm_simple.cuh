// A tile of c = a @ b + bias for every dtype, stride and size. A block stages slices of k of both operands in shared
// memory, converted to the compute type; each output is one chain of multiply-adds over ascending k, so its bits depend
// on its row, its column and k alone, whatever the tile.
#pragma once

#include "src/cuda/vector.cuh"
#include "src/ops/contract/gemm_cuda.h"
#include "src/ops/contract/gemm_element.cuh"

namespace tenor::contract {

inline constexpr int kSimpleThreads = 256, kSimpleSide = 16;  ///< a block: kSimpleSide x kSimpleSide outputs' groups

/// One operand as a block stages it: `side` runs along its rows (of a) or columns (of b), `depth` along k.
struct SimpleOperand {
  const void* data;
  DType dtype;
  int64_t offset, side_step, depth_step, sides, depths;
};

/// A thread's share of a slice [kDepth][kTile], fetched ahead of its use. Neighbouring threads run along the smaller
/// step.
template <class T, int kTile, int kDepth>
class SimpleSlice {
 public:
  __device__ SimpleSlice(const SimpleOperand& x, int64_t first_side) : x_(x), along_depth_(x.depth_step < x.side_step) {
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      const int64_t s = first_side + side(i);
      at_[i] = s < x.sides ? x.offset + s * x.side_step + depth(i) * x.depth_step : -1;
    }
  }
  /// The next slice: its first depth is `first`.
  __device__ void fetch(int64_t first) {
    if constexpr (std::is_same_v<T, float>) {
      if (x_.dtype == DType::kBFloat16) return fetch_as<BFloat16>(first);
      if (x_.dtype == DType::kFloat16) return fetch_as<Float16>(first);
    }
    fetch_as<T>(first);
  }
  __device__ void store(T (*shared)[kTile + 4]) const {
#pragma unroll
    for (int i = 0; i < kShare; ++i) shared[depth(i)][side(i)] = held_[i];
  }

 private:
  static constexpr int kShare = kTile * kDepth / kSimpleThreads;
  template <class S>
  __device__ void fetch_as(int64_t first) {
    const int64_t left = x_.depths - first;
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      held_[i] = at_[i] >= 0 && depth(i) < left ? cuda::convert<T>(static_cast<const S*>(x_.data)[at_[i]]) : T(0);
      at_[i] += at_[i] >= 0 ? kDepth * x_.depth_step : 0;
    }
  }
  __device__ int place(int i) const { return i * kSimpleThreads + threadIdx.x; }
  __device__ int side(int i) const { return along_depth_ ? place(i) / kDepth : place(i) % kTile; }
  __device__ int depth(int i) const { return along_depth_ ? place(i) % kDepth : place(i) / kTile; }

  const SimpleOperand& x_;
  bool along_depth_;
  int64_t at_[kShare];  // -1: outside
  T held_[kShare];
};

/// The rows or columns of a slice's line that a thread multiplies: four (or 16 bytes') neighbours in every 64.
template <class T, int kOwn>
__device__ __forceinline__ void load_own(const T* line, int thread, T (&own)[kOwn]) {
  constexpr int kRun = sizeof(T) == 8 ? 2 : 4;
#pragma unroll
  for (int i = 0; i < kOwn; i += kRun) {
    const auto run = cuda::load_pack<kRun>(line + i / 4 * 64 + thread * 4 + i % 4);
#pragma unroll
    for (int j = 0; j < kRun; ++j) own[i + j] = run.at[j];
  }
}

/// sums += line d of a's slice times line d of b's.
template <class T, int kTile, int kOwn>
__device__ __forceinline__ void multiply_line(const T* a, const T* b, T (&sums)[kOwn][kOwn]) {
  T u[kOwn], v[kOwn];
  load_own(a, threadIdx.x / kSimpleSide, u), load_own(b, threadIdx.x % kSimpleSide, v);
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
#pragma unroll
    for (int j = 0; j < kOwn; ++j) sums[i][j] = multiply_add(u[i], v[j], sums[i][j]);
}

/// A block's tile of one matrix. Thread (x, y) holds rows y * 4 + {0..3} of each 64 and columns likewise.
template <class T, int kTile, int kDepth>
__device__ void simple_tile(const DeviceGemm& p, const int64_t (&at)[3], int64_t first_row, int64_t first_col,
                            T (*as)[kTile + 4], T (*bs)[kTile + 4]) {
  constexpr int kOwn = kTile / kSimpleSide;
  const int x = threadIdx.x % kSimpleSide, y = threadIdx.x / kSimpleSide;
  const auto place = [](int thread, int i) { return i / 4 * 64 + thread * 4 + i % 4; };
  const SimpleOperand a{p.a.data, p.a.dtype, at[0], p.a.row, p.a.col, p.m, p.k},
      b{p.b.data, p.b.dtype, at[1], p.b.col, p.b.row, p.n, p.k};
  T sums[kOwn][kOwn] = {};
  SimpleSlice<T, kTile, kDepth> next_a(a, first_row), next_b(b, first_col);
  next_a.fetch(0), next_b.fetch(0);
  for (int64_t k = 0; k < p.k; k += kDepth) {
    next_a.store(as), next_b.store(bs);
    __syncthreads();
    if (k + kDepth < p.k) next_a.fetch(k + kDepth), next_b.fetch(k + kDepth);
    if (p.k - k >= kDepth) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) multiply_line<T, kTile>(as[d], bs[d], sums);
    } else {  // no further than k: padding would turn a sum of -0 into 0
      for (int d = 0; d < p.k - k; ++d) multiply_line<T, kTile>(as[d], bs[d], sums);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int64_t row = first_row + place(y, i), col = first_col + place(x, j);
      if (row >= p.m || col >= p.n) continue;
      const T sum =
          p.bias ? multiply_add(T(1), element<T>(p.bias, p.bias_dtype, row * p.bias_row + col * p.bias_col), sums[i][j])
                 : sums[i][j];
      set_element(p.c.data, p.c.dtype, at[2] + row * p.c.row + col * p.c.col, sum);
    }
}

}  // namespace tenor::contract
