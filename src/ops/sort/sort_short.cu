// Rows that fit the registers of a warp or a block: sorted by a bitonic network. A warp takes rows of up to 256
// elements.
#include "src/core/visit.h"
#include "src/cuda/bitonic.cuh"
#include "src/cuda/launch.h"
#include "src/ops/sort/sort_cuda.h"

namespace tenor::cuda {
namespace {

constexpr int kBlock = 256;  // threads of a block whose warps sort a row each

/// What is written of a sorted row: elements first to first + count - 1, or the first NaN.
struct Wanted {
  int first, count;
  bool nan_wins;
};

/// Whether sorted element i is what is wanted, where one is. NaN stand at the end.
template <class K>
__device__ bool is_picked(const Packed<K>* sorted, int n, int i, const Wanted& wanted, core::KeyCode code) {
  const K nan = core::nan_key<K>(code);
  if (!wanted.nan_wins || key_of<K>(sorted[n - 1]) != nan) return i == wanted.first;
  return key_of<K>(sorted[i]) == nan && (i == 0 || key_of<K>(sorted[i - 1]) != nan);
}

template <class K>
__device__ void write_row(const K* x, const Packed<K>* sorted, int n, const Wanted& wanted, core::KeyCode code,
                          K* values, int64_t* indices) {
  const bool one = wanted.count == 1;
  for (int i = one ? threadIdx.x : wanted.first + threadIdx.x; i < (one ? n : wanted.first + wanted.count);
       i += blockDim.x) {
    if (one && !is_picked<K>(sorted, n, i, wanted, code)) continue;
    const uint32_t index = index_of(sorted[i]);
    const int at = one ? 0 : i - wanted.first;
    if (values) values[at] = x[index];
    if (indices) indices[at] = index;
  }
}

template <class K, int E>
__global__ void __launch_bounds__(1024)
    sort_kernel(const K* __restrict__ x, int64_t rows, int n, int64_t stride, int size, core::KeyCode code,
                Wanted wanted, K* values, int64_t* indices) {
  extern __shared__ __align__(16) char memory[];
  const int64_t row = blockIdx.x * int64_t{blockDim.y} + threadIdx.y;
  if (row >= rows) return;  // whole warps, and only where no row has several
  Packed<K>* mine = reinterpret_cast<Packed<K>*>(memory) + threadIdx.y * (E * blockDim.x);
  const K* from = x + row * stride;
  Packed<K> v[E];
  const int lanes = size / E;  // threads whose elements are sorted; the others hold padding
#pragma unroll
  for (int e = 0; e < E; ++e) {
    const int i = static_cast<int>(threadIdx.x) < lanes ? e * lanes + static_cast<int>(threadIdx.x) : n;
    v[e] = i < n ? pack<K>(core::encode(from[i], code), i) : last_packed<K>();
  }
  bitonic_sort(v, size, mine);
  if (blockDim.x > kWarp) __syncthreads();
#pragma unroll
  for (int e = 0; e < E; ++e) mine[threadIdx.x * E + e] = v[e];
  if (blockDim.x > kWarp)
    __syncthreads();
  else
    __syncwarp();
  write_row(from, mine, n, wanted, code, values ? values + row * wanted.count : nullptr,
            indices ? indices + row * wanted.count : nullptr);
}

template <class K, int E>
void launch_sort(const OrderRows& p, int size, const Wanted& wanted) {
  const unsigned threads = std::max(kWarp, size / E), per_block = threads == kWarp ? kBlock / kWarp : 1;
  const Grid grid{static_cast<unsigned>((p.rows + per_block - 1) / per_block), dim3(threads, per_block),
                  sizeof(Packed<K>) * E * threads * per_block};
  launch(p.op, sort_kernel<K, E>, grid, p.device, static_cast<const K*>(p.x), p.rows, static_cast<int>(p.n), p.stride,
         size, p.code, wanted, static_cast<K*>(p.values), p.indices);
}

void run(const OrderRows& p, const Wanted& wanted) {
  if (p.rows == 0 || wanted.count == 0) return;
  const DeviceGuard guard(p.device);
  int size = 2;
  while (size < p.n) size *= 2;
  core::visit_size(p.dtype, [&]<class K>() {
    if (size <= 64) return launch_sort<K, 2>(p, size, wanted);
    if (size <= 128) return launch_sort<K, 4>(p, size, wanted);
    launch_sort<K, 8>(p, size, wanted);
  });
}

}  // namespace

void sort_short(const OrderRows& rows, int64_t k) {
  // A row of one element is picked like any other single one.
  run(rows, {0, static_cast<int>(k), false});
}

void pick_short(const OrderRows& rows, int64_t k, bool nan_wins) {
  run(rows, {static_cast<int>(k), 1, nan_wins && rows.code.kind == core::KeyKind::kFloat});
}

}  // namespace tenor::cuda
