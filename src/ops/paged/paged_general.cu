// The plain CUDA kernel of paged attention: every dtype, stride, head size and page size. A block takes splits of one
// (row, head).
#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/ops/paged/paged_general.cuh"

namespace tenor::cuda::paged {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kKeys = 256;       // scored together
constexpr int kMostColumns = 8;  // of a thread: 1024 in all
constexpr int kMostDim = 1280;

template <class C>
struct Shared {
  C query[kMostDim];
  C score[kKeys];
  C warp[kWarps];
};

template <class T>
__device__ __forceinline__ const T* row_of(const General& p, const void* cache, const int64_t (&at)[4],
                                           const int* table, int key, int head) {
  return static_cast<const T*>(cache) + table[key / p.page_size] * at[0] + key % p.page_size * at[1] + head * at[2];
}

template <class C>
__device__ C largest_of_block(C x, C* warp) {
  for (int step = 16; step > 0; step /= 2) x = fmax(x, __shfl_xor_sync(~0u, x, step));
  __syncthreads();
  if ((threadIdx.x & 31) == 0) warp[threadIdx.x / 32] = x;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) x = fmax(x, warp[w]);
  return x;
}

/// One warp's dot product, the sum in every lane.
template <class T, class C>
__device__ C dot(const C* query, const T* key, int64_t step, int n) {
  C sum = 0;
  for (int d = threadIdx.x & 31; d < n; d += 32) sum += query[d] * widen(key[d * step]);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return sum;
}

template <class T, class C>
__device__ void score_keys(const General& p, Shared<C>& shared, const int* table, int head, int begin, int count) {
  for (int i = static_cast<int>(threadIdx.x) / 32; i < count; i += kWarps) {
    const int dim = p.dim - p.tail_dim;
    C s = dot(shared.query, row_of<T>(p, p.k, p.k_at, table, begin + i, head), p.k_at[3], dim);
    if (p.tail_dim > 0)
      s += dot(shared.query + dim, row_of<T>(p, p.k_tail, p.k_tail_at, table, begin + i, head), p.k_tail_at[3],
               p.tail_dim);
    s *= static_cast<C>(p.score_scale);
    if (p.score_cap > 0) s = static_cast<C>(p.score_cap) * tanh(s / static_cast<C>(p.score_cap));
    if ((threadIdx.x & 31) == 0) shared.score[i] = s;
  }
  __syncthreads();
}

template <class C>
struct State {
  C top, sum, out[kMostColumns];
};

template <class T, class C>
__device__ void add_values(const General& p, const Shared<C>& shared, const int* table, int head, int begin, int count,
                           State<C>& state) {
  for (int i = 0; i < count; ++i) {
    const C s = shared.score[i];
    if (s == -INFINITY) continue;  // as good as hidden
    const C weight = exp(s - state.top);
    state.sum += weight;
    const T* value = row_of<T>(p, p.v, p.v_at, table, begin + i, head);
#pragma unroll
    for (int e = 0; e < kMostColumns; ++e) {
      const int d = static_cast<int>(threadIdx.x) + e * kThreads;
      if (d < p.value_dim) state.out[e] += weight * widen(value[d * p.v_at[3]]);
    }
  }
}

/// Keys [begin, end), from nothing.
template <class T, class C>
__device__ State<C> attend(const General& p, Shared<C>& shared, const int* table, int head, int begin, int end) {
  State<C> state{static_cast<C>(-INFINITY), 0, {}};
  for (int at = begin; at < end; at += kKeys) {
    const int count = min(kKeys, end - at);
    score_keys<T>(p, shared, table, head, at, count);
    C top = state.top;
    for (int i = threadIdx.x; i < count; i += kThreads) top = fmax(top, shared.score[i]);
    top = largest_of_block(top, shared.warp);
    const C shrink = top == static_cast<C>(-INFINITY) ? C(1) : exp(state.top - top);
    state.top = top, state.sum *= shrink;
#pragma unroll
    for (int e = 0; e < kMostColumns; ++e) state.out[e] *= shrink;
    add_values<T>(p, shared, table, head, at, count, state);
    __syncthreads();
  }
  return state;
}

template <class T, class C>
__device__ void write_whole(const General& p, const Place& at, const State<C>& state) {
  const bool empty = state.top == static_cast<C>(-INFINITY) && state.sum == 0;
  const C whole = empty    ? C(1)
                  : p.sink ? state.sum + exp(static_cast<const C*>(p.sink)[at.head] - state.top)
                           : state.sum;
#pragma unroll
  for (int e = 0; e < kMostColumns; ++e) {
    const int d = static_cast<int>(threadIdx.x) + e * kThreads;
    if (d < p.value_dim)
      static_cast<T*>(p.out)[at.row * p.out_row + at.head * p.out_head + d * p.out_col] =
          convert<T>(state.out[e] / whole);
  }
  if (threadIdx.x == 0 && p.lse)
    p.lse[at.row * p.lse_row + at.head * p.lse_head] =
        static_cast<float>(empty ? state.top : state.top + log(state.sum));
}

template <class C>
__device__ void write_part(const General& p, const Place& at, int split, const State<C>& state) {
  const int64_t part = part_of(p, at) + split;
#pragma unroll
  for (int e = 0; e < kMostColumns; ++e) {
    const int d = static_cast<int>(threadIdx.x) + e * kThreads;
    if (d < p.value_dim) p.part_out[part * p.value_dim + d] = static_cast<float>(state.out[e]);
  }
  if (threadIdx.x == 0) p.part_state[part] = make_float2(static_cast<float>(state.top), static_cast<float>(state.sum));
}

template <class T>
__global__ void __launch_bounds__(kThreads) general_kernel(const __grid_constant__ General p) {
  using C = core::Compute<T>;
  __shared__ Shared<C> shared;
  const Place at{static_cast<int>(blockIdx.x / p.heads), static_cast<int>(blockIdx.x % p.heads)};
  const GeneralSplits splits = general_splits(p, at.row);
  const int kv_head = at.head / p.group, dim = p.dim - p.tail_dim;
  const T* query = static_cast<const T*>(p.q) + at.row * p.q_row + at.head * p.q_head;
  for (int d = threadIdx.x; d < dim; d += kThreads) shared.query[d] = widen(query[d * p.q_col]);
  const T* tail = static_cast<const T*>(p.q_tail) + at.row * p.q_tail_at[0] + at.head * p.q_tail_at[1];
  for (int d = threadIdx.x; d < p.tail_dim; d += kThreads) shared.query[dim + d] = widen(tail[d * p.q_tail_at[2]]);
  __syncthreads();
  const int* table = p.ids[at.row] < 0 ? nullptr : p.tables + p.ids[at.row] * p.table_stride;
  if (p.most_splits == 1) {
    if (blockIdx.y == 0)
      write_whole<T>(p, at, attend<T, C>(p, shared, table, kv_head, splits.seen.begin, splits.seen.end));
    return;
  }
  for (int n = splits.first + static_cast<int>(blockIdx.y); n < splits.last; n += gridDim.y) {
    const Range keys = splits.keys(n);
    write_part(p, at, n, attend<T, C>(p, shared, table, kv_head, keys.begin, keys.end));
  }
}

}  // namespace

void launch_general(const char* op, const General& p, DType dtype, Device device) {
  if (dtype == float32 && takes_float(p)) return launch_float(op, p, device);
  const int64_t pairs = int64_t{p.rows} * p.heads;
  const auto split_slots =
      static_cast<int>(std::clamp<int64_t>(16 * multiprocessors(device) / pairs, 1, p.most_splits));
  const Grid grid{dim3(static_cast<unsigned>(p.rows) * p.heads, split_slots), dim3(kThreads)};
  core::visit_float(dtype, [&]<class T>() { launch(op, general_kernel<T>, grid, device, p); });
}

}  // namespace tenor::cuda::paged
