// What the kernels of a reduction share. All of them build the subtrees of cuda/reduction_order.h, so that nothing of
// how the work is split shows in the bits.
#pragma once

#include "src/cuda/launch.h"
#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/cuda/reduce.cuh"
#include "src/cuda/reduction_order.h"
#include "src/cuda/vector.cuh"
#include "src/ops/reduce/reduce_ops.cuh"

namespace tenor::reduce {

using cuda::kWarp;
using cuda::load_pack;
using cuda::Pack;

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / kWarp;
inline constexpr int kChain = cuda::kOrderChain;

/// Operators that take neighbours as one and find the place in them later.
template <class Op>
inline constexpr bool kHasGroups = requires {
  &Op::is_level;
};
/// Operators that take V elements of T by fewer instructions than one by one.
template <class Op, class T, int V>
inline constexpr bool kHasPacks = requires(const Op& op, typename Op::Core::Acc& acc, const T (&x)[V]) {
  op.fold_packed(acc, x);
};
/// Operators that take two neighbouring columns by fewer instructions than one by one.
template <class Op, class A>
concept HasPairs = requires(const Op& op, A& acc, const uint32_t (&pairs)[1]) {
  op.fold_pairs(acc, acc, pairs);
}
|| requires(const Op& op, A& acc, const uint32_t (&pairs)[1]) { op.fold_pairs(acc, acc, pairs, int64_t{0}); };
/// Operators that take a whole leaf at once.
template <class Op>
inline constexpr bool kHasLeaves = requires {
  &Op::fold_leaf;
};

/// Cores whose accumulators meet by fewer instructions where both are of as many elements.
template <class Core>
inline constexpr bool kHasLevels = requires {
  &Core::merge_level;
};

/// Operators of floats whose order shows and whose elements cost an addition or a product.
template <class T, class Op>
inline constexpr bool kIsPlain = Op::Core::kOrdered&& std::is_floating_point_v<typename Op::Core::Acc>&&
    std::is_same_v<decltype(std::declval<const Op&>().shift(0, static_cast<const T*>(nullptr), true)), NoShift>;

/// V neighbours, each into an accumulator of its own.
template <int V, class T, class Op, class S, class A>
__device__ __forceinline__ void fold_each(const Op& op, const Pack<T, V>& x, const S (&shift)[V], A (&acc)[V]) {
  if constexpr (requires { op.fold_each(acc, x); }) {
    op.fold_each(acc, x);
  } else {
#pragma unroll
    for (int v = 0; v < V; ++v) op.fold(acc[v], x.at[v], 0, shift[v]);
  }
}

/// Where output `output` lies in x and out. Of one dim, which is common, at once: a kernel begins with it.
__device__ __forceinline__ void kept_offsets(const Shape& shape, int64_t output, int64_t (&at)[2]) {
  if (shape.kept.ndim == 1) {
    at[0] = output * shape.kept.stride[0][0];
    at[1] = output * shape.kept.stride[1][0];
  } else {
    offsets(shape.kept, output, at);
  }
}

/// The offset in x of element i of any sequence. One copy of it a module: inlined into unrolled loops it would be most
/// of their code.
__device__ __noinline__ inline int64_t locate(const Shape& shape, int64_t i) {
  int64_t at[1];
  offsets(shape.reduced, i, at);
  return at[0];
}
template <Walk W>
__device__ __forceinline__ int64_t offset(const Shape& shape, int64_t i) {
  if constexpr (W == Walk::kRun || W == Walk::kShift) {
    return i;
  } else if constexpr (W == Walk::kStride) {
    return shape.reduced.ndim == 0 ? 0 : i * shape.reduced.stride[0][0];
  } else if constexpr (W == Walk::kPlane) {
    const int64_t outer = cuda::divide(static_cast<uint32_t>(i), shape.reduced.divider[1]);
    return i + outer * (shape.reduced.stride[0][0] - shape.reduced.size[1]);
  } else {
    return locate(shape, i);
  }
}

/// 16 bytes from p on, whatever its alignment, through the two aligned vectors that hold them. Reads at most 15 bytes
/// beyond them, which lie in the same 16 as some of them.
template <int V, class T>
__device__ __forceinline__ Pack<T, V> load_shifted(const T* p) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(p);
  const unsigned ahead = address % cuda::kVectorBytes;
  const uint4* aligned = reinterpret_cast<const uint4*>(address - ahead);
  const uint4 low = aligned[0], high = ahead ? aligned[1] : low;
  uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int k = 0; k < 7; ++k) words[k] = ahead & 4 ? words[k + 1] : words[k];
#pragma unroll
  for (int k = 0; k < 5; ++k) words[k] = ahead & 8 ? words[k + 2] : words[k];
#pragma unroll
  for (int k = 0; k < 4; ++k) words[k] = __funnelshift_r(words[k], words[k + 1], ahead % 4 * 8);
  Pack<T, V> out;
  memcpy(&out, words, cuda::kVectorBytes);
  return out;
}

/// V elements from i on; of a shifted vector those before `count`.
template <int V, Walk W, class T>
__device__ __forceinline__ Pack<T, V> load(const Shape& shape, const T* __restrict__ from, int64_t i) {
  if constexpr (W == Walk::kShift) {
    if (i + 2 * V <= shape.count) return load_shifted<V>(from + i);
    Pack<T, V> out{};
#pragma unroll
    for (int j = 0; j < V; ++j)
      if (i + j < shape.count) out.at[j] = from[i + j];
    return out;
  } else {
    return cuda::load_past_l1<V>(from + offset<W>(shape, i));
  }
}

/// The place of the extreme in the group of N neighbours that holds it. All of them are read at once.
template <int N, Walk W, class T, class Op, class A>
__device__ __forceinline__ void find_in_group(const Op& op, const Shape& shape, const T* __restrict__ from, A& value) {
  if (value.index == INT64_MAX) return;
  T x[N];
#pragma unroll
  for (int j = 0; j < N; ++j)
    if (value.index + j < shape.count) x[j] = from[offset<W>(shape, value.index + j)];
  int place = 0;
#pragma unroll
  for (int j = N - 1; j >= 0; --j)
    if (value.index + j < shape.count && op.is_level(op.key(x[j]), value.value)) place = j;
  value.index += place;
}

/// Leaves or subtrees that come in order meet as a counter carries. At most 2^Levels of them. kWhole: whole leaves, in
/// a loop that is written out, so that what a level holds is known.
template <class Core, int Levels>
struct Counter {
  typename Core::Acc slots[Levels];
  unsigned count = 0;

  template <bool kWhole = false>
  __device__ __forceinline__ void push(const Core& core, typename Core::Acc value) {
    bool carries = true;  // no break: the slots must stay in registers
#pragma unroll
    for (int level = 0; level < Levels; ++level) {
      const bool taken = count >> level & 1;
      if (carries && taken) {
        if constexpr (kWhole && kHasLevels<Core>)
          value = core.merge_level(slots[level], value, kChain << level);
        else
          value = core.merge(slots[level], value);
      }
      if (carries && !taken) slots[level] = value;
      carries = carries && taken;
    }
    ++count;
  }
  __device__ __forceinline__ typename Core::Acc finish(const Core& core) const {
    typename Core::Acc value = core.identity();
    bool some = false;
#pragma unroll
    for (int level = 0; level < Levels; ++level) {
      const bool taken = count >> level & 1;
      if (taken) value = some ? core.merge(slots[level], value) : slots[level];
      some = some || taken;
    }
    return value;
  }
};

/// The threads' values, `across` of them side by side and `V` each, meet over the rest of the block; in its first row.
template <int V, class Core, class A>
__device__ __forceinline__ void meet_down(const Core& core, A (&value)[V], A* shared, int log_across) {
  const int across = 1 << log_across, tx = threadIdx.x & (across - 1), ty = threadIdx.x >> log_across,
            down = kThreads >> log_across;
  if (down == 1) return;
#pragma unroll
  for (int v = 0; v < V; ++v) shared[(ty * V + v) * across + tx] = value[v];
  for (int step = 1; step < down; step *= 2) {
    __syncthreads();
    if (ty % (2 * step) != 0) continue;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      value[v] = core.merge(value[v], shared[((ty + step) * V + v) * across + tx]);
      shared[(ty * V + v) * across + tx] = value[v];
    }
  }
}

// ---- what several thread blocks left ----

inline constexpr int kPartialsAtOnce = 8;
inline constexpr int kPartialLevels = 16;

/// The subtree of N neighbouring subtrees, in the first.
template <class Core, class A, int N>
__device__ __forceinline__ A merge_all(const Core& core, A (&x)[N]) {
#pragma unroll
  for (int step = 1; step < N; step *= 2)
#pragma unroll
    for (int k = 0; k < N; k += 2 * step) x[k] = core.merge(x[k], x[k + step]);
  return x[0];
}

/// `each` subtrees of an output a thread, a power of two; where there are fewer the identity stands for them.
template <class Core>
__global__ void __launch_bounds__(kThreads)
    partial_kernel(const __grid_constant__ Core core, const __grid_constant__ Shape shape, int log_across, int each,
                   int splits, const __grid_constant__ Result result) {
  using A = typename Core::Acc;
  __shared__ A shared[kThreads];
  const int tx = threadIdx.x & ((1 << log_across) - 1), first = (threadIdx.x >> log_across) * each,
            end = min(first + each, splits);
  const int64_t output = (int64_t{blockIdx.x} << log_across) + tx;
  const bool valid = output < shape.outputs;
  int64_t at[2] = {0, 0};
  if (valid) kept_offsets(shape, output, at);
  cuda::ptx::wait_for_previous();  // it starts while the first stage ends
  const A* partials = static_cast<const A*>(result.partials);
  Counter<Core, kPartialLevels> counter;
  for (int s = first; s < end; s += kPartialsAtOnce) {
    A x[kPartialsAtOnce];
#pragma unroll
    for (int k = 0; k < kPartialsAtOnce; ++k)
      x[k] = valid && s + k < end ? partials[(s + k) * shape.outputs + output] : core.identity();
    counter.push(core, merge_all(core, x));
  }
  A value[1] = {counter.finish(core)};
  meet_down<1>(core, value, shared, log_across);
  if (!valid || threadIdx.x >> log_across != 0) return;
  core.store(result, at[1], output, value[0]);
}

inline constexpr int kPartialRowThreads = 1024;
inline constexpr int kPartialRowLevels = 6;
/// Partial results of an output that a thread takes at most.
inline constexpr int kMostOfRow = kPartialsAtOnce << (kPartialRowLevels - 1);

/// Likewise for few outputs of many partial results: a block an output.
template <class Core>
__global__ void __launch_bounds__(kPartialRowThreads)
    partial_row_kernel(const __grid_constant__ Core core, const __grid_constant__ Shape shape, int each, int splits,
                       const __grid_constant__ Result result) {
  using A = typename Core::Acc;
  __shared__ A shared[kWarp];
  const int first = threadIdx.x * each, end = min(first + each, splits);
  const int64_t output = blockIdx.x;
  cuda::ptx::wait_for_previous();
  const A* partials = static_cast<const A*>(result.partials);
  Counter<Core, kPartialRowLevels> counter;
  for (int s = first; s < end; s += kPartialsAtOnce) {
    A x[kPartialsAtOnce];
#pragma unroll
    for (int k = 0; k < kPartialsAtOnce; ++k)
      x[k] = s + k < end ? partials[(s + k) * shape.outputs + output] : core.identity();
    counter.push(core, merge_all(core, x));
  }
  A value = counter.finish(core);
  const auto meet = [&] {
#pragma unroll
    for (int mask = 1; mask < kWarp; mask *= 2) value = core.merge(value, cuda::shuffle_xor(value, mask));
  };
  meet();
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  value = shared[threadIdx.x];
  meet();
  if (threadIdx.x != 0) return;
  int64_t at[2];
  offsets(shape.kept, output, at);
  core.store(result, at[1], output, value);
}

}  // namespace tenor::reduce
