// Reductions along rows: a group of lanes, a warp, a block or several blocks an output.
#pragma once

#include "src/cuda/lane_tree.cuh"
#include "src/ops/reduce/reduce_kernels.cuh"

namespace tenor::reduce {

/// Elements a thread takes side by side: 8, as the reduction order has it, or 16 of single bytes, whose order does not
/// show.
template <int V>
inline constexpr int kSlots = V == 16 ? 16 : 8;

struct RowGrid {
  int log_lanes;    ///< lanes of a row; fewer than a warp only where they hold the whole row
  int log_sharing;  ///< warps of a thread block that share a row
  int blocks;       ///< of the reduction order that a warp takes, a power of two up to 32
  int splits;       ///< thread blocks that share a row: gridDim.y, or x where `swapped`
  bool swapped;
};

/// The leaves of one block as the lanes hold them: their tree, in lane 0.
template <int V, class Core, class A, int N>
__device__ __forceinline__ A lane_tree(const Core& core, A (&leaf)[N], int lanes) {
  return cuda::lane_tree<V>(core, leaf, lanes, [](A value, int mask) { return cuda::shuffle_xor(value, mask); });
}

/// The value of the first of `lanes` neighbouring lanes, in all of them.
template <class A>
__device__ __forceinline__ A leading(A value, int lanes) {
  static_assert(sizeof(A) % 4 == 0);
  uint32_t words[sizeof(A) / 4];
  memcpy(words, &value, sizeof(A));
#pragma unroll
  for (uint32_t& word : words) word = __shfl_sync(~0u, word, 0, lanes);
  memcpy(&value, words, sizeof(A));
  return value;
}

/// Takes in V neighbours, or the first n of them.
template <int V, class T, class Op, class S, class A, int N>
__device__ __forceinline__ void fold_pack(const Op& op, const T (&x)[V], int64_t i, int n, int slot, S shift,
                                          A (&acc)[N]) {
  bool whole = false;
  if constexpr (kHasPacks<Op, T, V>) {
    whole = n >= V;
    if (whole) op.fold_packed(acc[0], x);
  }
#pragma unroll
  for (int j = 0; j < V; ++j)
    if (!whole && j < n) op.fold(acc[(slot + j) % N], x[j], i + j, shift);
}

/// Loads the elements of a block that fall to this lane: those before `left`, from `base` on.
template <int V, Walk W, class T, int N>
__device__ __forceinline__ void load_block(Pack<T, V> (&pack)[N], const Shape& shape, const T* __restrict__ from,
                                           int64_t base, int left, bool valid, int lanes, int lane) {
  const int step = V * lanes, mine = valid ? left - lane * V : 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (k % (kSlots<V> / V) == 0 && k * step >= left) break;
    if (k * step < mine) pack[k] = load<V, W>(shape, from, base + k * step + lane * V);
  }
}

/// Takes them in. `held` is where an operator of groups keeps the vector in which it found the extreme: in shared
/// memory, for it seldom changes and registers are short.
template <int V, Walk W, class T, class Op, class S, class A, int M, int N>
__device__ __forceinline__ void fold_block(const Op& op, const Pack<T, V> (&pack)[M], S shift, int64_t base, int left,
                                           bool valid, int lanes, int lane, A (&acc)[N], Pack<T, V>* held) {
  constexpr int kGroups = kSlots<V> / V;
  const int step = V * lanes, mine = valid ? left - lane * V : 0;
  if constexpr (kHasLeaves<Op>) {
#pragma unroll
    for (int slot = 0; slot < kSlots<V>; ++slot) {
      const auto at = [&](int c) { return (c * kGroups + slot / V) * step + slot % V; };
      const auto x = [&](int c) { return pack[c * kGroups + slot / V].at[slot % V]; };
      if (at(kChain - 1) < mine) {
        op.fold_leaf(acc[slot], x(0), x(1), x(2), x(3), shift);
      } else {
#pragma unroll
        for (int c = 0; c < kChain - 1; ++c)
          if (at(c) < mine) op.fold(acc[slot], x(c), 0, shift);
      }
    }
  } else {
#pragma unroll
    for (int k = 0; k < M; ++k) {
      const int at = k * step;
      if (k % kGroups == 0 && at >= left) break;
      if (at >= mine) continue;
      const int n = W == Walk::kShift ? mine - at : V;
      const int64_t i = base + at + lane * V;
      if constexpr (kHasGroups<Op>) {
        if (op.take(acc[0], op.template largest<V>(pack[k].at, n), i)) *held = pack[k];
      } else if constexpr (kHasPacks<Op, T, V> && W != Walk::kShift) {
        op.fold_packed(acc[0], pack[k].at);
      } else {
        fold_pack<V>(op, pack[k].at, i, n, k % kGroups * V, shift, acc);
      }
    }
  }
}

/// A whole block of moments, whose counts are known: what fold_block, lane_tree and leading come to, in all lanes.
template <int V, class T, class Op, class S, int M>
__device__ __forceinline__ auto fold_whole(const Op& op, const Pack<T, V> (&pack)[M], S shift) {
  using A = typename Op::Core::Acc;
  constexpr int N = kSlots<V>, kGroups = N / V;
  A leaf[N];
#pragma unroll
  for (int slot = 0; slot < N; ++slot) {
    const auto x = [&](int c) { return pack[c * kGroups + slot / V].at[slot % V]; };
    op.fold_leaf(leaf[slot], x(0), x(1), x(2), x(3), shift);
  }
  auto count = leaf[0].count;
#pragma unroll
  for (int step = 1; step < V; step *= 2, count *= 2)
#pragma unroll
    for (int j = 0; j < N; j += 2 * step) leaf[j] = op.core.merge_level(leaf[j], leaf[j + step], count);
#pragma unroll
  for (int mask = 1; mask < kWarp; mask *= 2, count *= 2)
#pragma unroll
    for (int g = 0; g < N; g += V) {
      const A other{count, cuda::shuffle_xor(leaf[g].mean, mask), cuda::shuffle_xor(leaf[g].squares, mask)};
      leaf[g] = op.core.merge_level(leaf[g], other, count);
    }
#pragma unroll
  for (int step = V; step < N; step *= 2, count *= 2)
#pragma unroll
    for (int g = 0; g < N; g += 2 * step) leaf[g] = op.core.merge_level(leaf[g], leaf[g + step], count);
  return A{count, leading(leaf[0].mean, kWarp), leading(leaf[0].squares, kWarp)};
}

/// Keys as unsigned integers in their order, the first NaN of all above: what one instruction compares over a warp.
__device__ __forceinline__ uint32_t to_ordered(float x) {
  const uint32_t bits = __float_as_uint(x);
  return x != x ? ~0u : bits ^ (bits >> 31 ? ~0u : 1u << 31);
}
__device__ __forceinline__ uint32_t to_ordered(int x) { return static_cast<uint32_t>(x) ^ 1u << 31; }
__device__ __forceinline__ uint32_t to_ordered(unsigned x) { return x; }
template <class K>
__device__ __forceinline__ K from_ordered(uint32_t u) {
  if constexpr (std::is_same_v<K, float>)
    return u == ~0u ? __uint_as_float(0x7fffffff) : __uint_as_float(u ^ (u >> 31 ? 1u << 31 : ~0u));
  else
    return static_cast<K>(std::is_signed_v<K> ? u ^ 1u << 31 : u);
}

/// Operators of groups whose lanes meet by few instructions.
template <class Op, bool = kHasGroups<Op>>
inline constexpr bool kMeetsAtOnce = false;
template <class Op>
inline constexpr bool kMeetsAtOnce<Op, true> = sizeof(typename Op::K) == 4;

/// The largest key and the least index of `lanes` neighbouring lanes, in all of them.
template <class Op, class K>
__device__ __forceinline__ K largest_of_lanes(K key, int lanes) {
  if constexpr (kMeetsAtOnce<Op>)
    if (lanes == kWarp) return from_ordered<K>(__reduce_max_sync(~0u, to_ordered(key)));
  for (int mask = 1; mask < lanes; mask *= 2) key = larger(key, cuda::shuffle_xor(key, mask));
  return key;
}
/// INT64_MAX stands for none; the others are below `count`.
__device__ __forceinline__ int64_t least_of_lanes(int64_t index, int64_t count, int lanes) {
  if (lanes == kWarp && count < UINT32_MAX) {
    const uint32_t least = __reduce_min_sync(~0u, index == INT64_MAX ? ~0u : static_cast<uint32_t>(index));
    return least == ~0u ? INT64_MAX : least;
  }
  for (int mask = 1; mask < lanes; mask *= 2)
    index = min(index, static_cast<int64_t>(cuda::shuffle_xor(static_cast<long long>(index), mask)));
  return index;
}

/// The extreme of the lanes of a row, in all of them, and its first place in a sequence of `count`: the lanes that have
/// it look for it in the vectors that they hold.
template <int V, class T, class Op, class A>
__device__ __forceinline__ A meet_lanes(const Op& op, A value, const Pack<T, V>& held, int64_t count, int lanes) {
  const auto most = largest_of_lanes<Op>(value.value, lanes);
  if (!op.is_level(value.value, most)) value.index = INT64_MAX;
  if (V > 1 && value.index != INT64_MAX) {
    int place = 0;
#pragma unroll
    for (int j = V - 1; j >= 0; --j)
      if (value.index + j < count && op.is_level(op.key(held.at[j]), most)) place = j;
    value.index += place;
  }
  return {most, least_of_lanes(value.index, count, lanes)};
}

/// Blocks whose loads are in flight together: 128 bytes a thread.
template <class T, int V, Walk W>
inline constexpr int kBlocksAhead = V > 1 && sizeof(T) <= 2 && W != Walk::kShift ? 2 : 1;

/// Thread blocks that must fit a multiprocessor together, so that enough loads are in flight.
template <class T, class Op, int V>
inline constexpr int kRowResidents = sizeof(T) == 8 || sizeof(typename Op::Core::Acc) == 12 ? 2
                                     : V == 1                                               ? 3
                                                                                            : 4;

template <class T, class Op, int V, Walk W>
__global__ void __launch_bounds__(kThreads, kRowResidents<T, Op, V>)
    row_kernel(const T* __restrict__ x, const __grid_constant__ Op op, const __grid_constant__ Shape shape,
               const __grid_constant__ RowGrid grid, const __grid_constant__ Result result) {
  using A = typename Op::Core::Acc;
  constexpr int kAccs = Op::Core::kOrdered ? kSlots<V> : kHasGroups<Op> ? 1 : 2;
  constexpr int kElements = kWarp * kSlots<V> * kChain;
  constexpr int kHeld = kHasGroups<Op> ? kThreads : 1;
  __shared__ Pack<T, V> held[kHeld];
  __shared__ A shared[kWarps];
  const int lanes = 1 << grid.log_lanes, lane = threadIdx.x & (lanes - 1), group = threadIdx.x >> grid.log_lanes;
  const int sharing = 1 << grid.log_sharing, sharer = group & (sharing - 1);
  const int row_block = grid.swapped ? blockIdx.y : blockIdx.x, split = grid.swapped ? blockIdx.x : blockIdx.y;
  const int64_t row =
      (int64_t{row_block} * kThreads >> (grid.log_lanes + grid.log_sharing)) + (group >> grid.log_sharing);
  const int64_t first = (int64_t{split} * sharing + sharer) * grid.blocks;
  const bool valid = row < shape.outputs;
  int64_t at[2] = {0, 0};
  if (valid) offsets(shape.kept, row, at);
  const T* from = x + at[0];
  const auto shift = op.shift(valid ? row : 0, from, valid && shape.count > 0);
  if (grid.splits > 1) cuda::ptx::launch_dependents();  // the second stage may take its place, and wait

  A acc[kAccs], value = op.core.identity();
#pragma unroll
  for (A& a : acc) a = op.core.identity();
  constexpr int kAhead = kBlocksAhead<T, V, W>;
  for (int b = 0; b < grid.blocks; b += kAhead) {
    if ((first + b) * kElements >= shape.count) break;  // alike for the whole warp
    Pack<T, V> pack[kAhead][kChain * kSlots<V> / V];
    const auto base = [&](int k) { return (first + b + k) * kElements; };
    const auto left = [&](int k) {
      return static_cast<int>(max(min(shape.count - base(k), int64_t{kElements}), int64_t{0}));
    };
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (b + k < grid.blocks) load_block<V, W>(pack[k], shape, from, base(k), left(k), valid, lanes, lane);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (b + k >= grid.blocks || left(k) == 0) break;
      if constexpr (kHasLevels<typename Op::Core>) {
        if (valid && lanes == kWarp && left(k) == kElements) {
          const A block = fold_whole<V>(op, pack[k], shift);
          if (lane == b + k) value = block;
          continue;
        }
      }
      fold_block<V, W>(op, pack[k], shift, base(k), left(k), valid, lanes, lane, acc, held + threadIdx.x % kHeld);
      if constexpr (Op::Core::kOrdered) {
        A block = lane_tree<V>(op.core, acc, lanes);
        if constexpr (!std::is_scalar_v<A>)
          block = leading(block, lanes);  // moments do not commute: the first lane has the order's
        if (lane == b + k) value = block;
#pragma unroll
        for (A& a : acc) a = op.core.identity();
      }
    }
  }
  if constexpr (Op::Core::kOrdered) {
    for (int mask = 1; mask < grid.blocks; mask *= 2) value = op.core.merge(value, cuda::shuffle_xor(value, mask));
  } else {
    if constexpr (kHasGroups<Op>) {
      value = meet_lanes<V>(op, acc[0], held[threadIdx.x % kHeld], shape.count, lanes);
    } else {
      value = acc[0];
      if constexpr (kAccs == 2) value = op.core.merge(acc[0], acc[1]);
      for (int mask = 1; mask < lanes; mask *= 2) value = op.core.merge(value, cuda::shuffle_xor(value, mask));
    }
  }
  if (sharing > 1) {
    if (lane == 0) shared[group] = value;
    __syncthreads();
    if constexpr (kMeetsAtOnce<Op>) {
      if (sharer != 0) return;
      value = lane < sharing ? shared[group + lane] : op.core.identity();
      const auto most = largest_of_lanes<Op>(value.value, kWarp);
      value = {most, least_of_lanes(op.is_level(value.value, most) ? value.index : INT64_MAX, shape.count, kWarp)};
    } else if (lane == 0 && sharer == 0) {
      Counter<typename Op::Core, 4> counter;
      for (int w = 0; w < sharing; ++w) counter.push(op.core, shared[group + w]);
      value = counter.finish(op.core);
    }
  }
  if (!valid || lane != 0 || sharer != 0) return;
  if (grid.splits > 1)
    static_cast<A*>(result.partials)[split * shape.outputs + row] = value;
  else
    op.core.store(result, at[1], row, value);
}

}  // namespace tenor::reduce
