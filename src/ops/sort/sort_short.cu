// Rows that fit the registers of a warp, or of a few, sorted by a bitonic network; longer ones by radix
// (sort_block.cu).
#include "src/core/visit.h"
#include "src/cuda/bitonic.cuh"
#include "src/cuda/launch.h"
#include "src/ops/sort/sort_cuda.h"
#include "src/ops/sort/sort_wanted.cuh"

namespace tenor::cuda {
namespace {

constexpr int kBlock = 256;  // threads of a block whose warps sort a row each, and the most of any

/// Elements of rows for which a network is faster than a radix sort; of 64 bits it takes too many registers, and of 16
/// bits a radix sort few passes.
int64_t longest_network_row(DType dtype) {
  const size_t width = item_size(dtype);
  return width == 8 ? 64 : width == 4 ? 1024 : 256;
}

/// What the network has put in order.
template <class K>
struct Sorted {
  const Packed<K>* items;
  __device__ K key(int i) const { return key_of<K>(items[i]); }
  __device__ uint32_t index(int i) const { return index_of(items[i]); }
};

template <class K, int E>
__global__ void __launch_bounds__(kBlock)
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
  write_wanted(from, Sorted<K>{mine}, n, wanted, code, values ? values + row * wanted.count : nullptr,
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
  if (p.n > longest_network_row(p.dtype)) return sort_blocks(p, wanted);
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
