// Selection in long rows: a cluster of blocks a row.
#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/cuda/radix_select.cuh"
#include "src/ops/sort/sort_cuda.h"

namespace tenor::cuda {
namespace {

template <class K>
using Space = SelectSpace<K, false>;

/// What a kernel knows of the rows.
template <class K>
struct Rows {
  const K* x;
  uint32_t n;
  int64_t stride;
  uint32_t part;
  bool resident;
  core::KeyCode code;
  K* values;
  int64_t* indices;

  __device__ int64_t row() const { return blockIdx.x / ptx::cluster_size(); }
  __device__ RowPart<K> mine(char* memory) const {
    K* keys = resident ? reinterpret_cast<K*>(memory + (sizeof(Space<K>) + 15) / 16 * 16) : nullptr;
    return part_of(x + row() * stride, n, part, code, keys);
  }
  __device__ void write(int64_t at, uint32_t index) const {
    if (values) values[at] = x[row() * stride + index];
    if (indices) indices[at] = index;
  }
};

template <class K>
__global__ void __launch_bounds__(kSelectThreads, 2) topk_kernel(const __grid_constant__ Rows<K> rows, uint32_t k) {
  extern __shared__ __align__(16) char memory[];
  Selection<K, false> selection(*reinterpret_cast<Space<K>*>(memory), rows.n);
  const RowPart<K> part = rows.mine(memory);
  K least = static_cast<K>(~K(0));
  part.load([&](K key, uint32_t) { least = min(least, key); });
  selection.gather_first(part, least, k);
  if (ptx::cluster_rank() != 0) return;
  selection.sort_list();
  for (uint32_t i = threadIdx.x; i < k; i += kSelectThreads)
    rows.write(rows.row() * int64_t{k} + i, index_of(selection.listed(i)));
}

template <class K>
__global__ void __launch_bounds__(kSelectThreads, 2)
    pick_kernel(const __grid_constant__ Rows<K> rows, uint32_t k, bool nan_wins) {
  extern __shared__ __align__(16) char memory[];
  Selection<K, false> selection(*reinterpret_cast<Space<K>*>(memory), rows.n);
  const RowPart<K> part = rows.mine(memory);
  const auto count = [&](K key, uint32_t i) { selection.add(key, i); };
  uint32_t nans = 0;
  part.load([&](K key, uint32_t i) {
    nans += nan_wins && key == core::nan_key<K>(rows.code);
    count(key, i);
  });
  selection.mark(nans);
  ptx::cluster_sync();  // NaN are counted before the rank is known
  const uint32_t rank = selection.marked() > 0 ? rows.n - selection.marked() : k;
  selection.narrow_to_rank(rank);
  while (selection.inside() > kGathered<false> && !selection.is_done()) {
    part.each(count);
    selection.narrow_to_rank(rank - selection.before());
  }
  part.each([&](K key, uint32_t i) {
    if (selection.range().place(key, i) == 0) selection.gather(key, i);
  });
  ptx::cluster_sync();
  if (ptx::cluster_rank() != 0) return;
  selection.sort_list();
  if (threadIdx.x == 0) rows.write(rows.row(), index_of(selection.listed(rank - selection.before())));
}

template <class K, class... Options>
void launch_rows(const OrderRows& p, void (*kernel)(Rows<K>, Options...), Options... options) {
  const SelectShape shape(p.n, sizeof(K), sizeof(Space<K>), p.device);
  const Rows<K> rows{static_cast<const K*>(p.x),
                     static_cast<uint32_t>(p.n),
                     p.stride,
                     shape.part,
                     shape.shared > sizeof(Space<K>) + 15,
                     p.code,
                     static_cast<K*>(p.values),
                     p.indices};
  const Grid grid{static_cast<unsigned>(p.rows * shape.blocks), kSelectThreads, shape.shared, shape.blocks};
  launch(p.op, kernel, grid, p.device, rows, options...);
}

}  // namespace

void topk_selected(const OrderRows& p, int64_t k) {
  if (p.rows == 0 || k == 0) return;
  const DeviceGuard guard(p.device);
  core::visit_size(p.dtype, [&]<class K>() { launch_rows<K>(p, topk_kernel<K>, static_cast<uint32_t>(k)); });
}

void pick_selected(const OrderRows& p, int64_t k, bool nan_wins) {
  if (p.rows == 0) return;
  const DeviceGuard guard(p.device);
  const bool wins = nan_wins && p.code.kind == core::KeyKind::kFloat;
  core::visit_size(p.dtype, [&]<class K>() { launch_rows<K>(p, pick_kernel<K>, static_cast<uint32_t>(k), wins); });
}

}  // namespace tenor::cuda
