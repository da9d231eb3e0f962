// Selection in long rows: a cluster of blocks a row.
#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/cuda/radix_select.cuh"
#include "src/ops/sort/sort_cuda.h"

namespace tenor::cuda {
namespace {

template <class K>
using Space = SelectSpace<K, false>;

/// What a kernel knows of the rows: of pieces of n elements, the last one of those that are left of `whole`.
template <class K>
struct Rows {
  const K* x;
  uint32_t n;
  int64_t stride, whole;
  unsigned pieces;
  uint32_t part;
  bool resident;
  core::KeyCode code;
  K* values;
  int64_t* indices;

  __device__ int64_t row() const { return blockIdx.x / ptx::cluster_size(); }
  __device__ const K* begin() const { return x + row() / pieces * stride + row() % pieces * int64_t{n}; }
  __device__ uint32_t length() const {
    return static_cast<uint32_t>(min(int64_t{n}, whole - row() % pieces * int64_t{n}));
  }
  __device__ RowPart<K> mine(char* memory) const {
    K* keys = resident ? reinterpret_cast<K*>(memory + (sizeof(Space<K>) + 15) / 16 * 16) : nullptr;
    return part_of(begin(), length(), part, code, keys);
  }
  __device__ void write(int64_t at, uint32_t index) const {
    if (values) values[at] = begin()[index];
    if (indices) indices[at] = row() % pieces * int64_t{n} + index;
  }
};

template <class K>
__global__ void __launch_bounds__(kSelectThreads, 2) topk_kernel(const __grid_constant__ Rows<K> rows, uint32_t k) {
  extern __shared__ __align__(16) char memory[];
  Selection<K, false> selection(*reinterpret_cast<Space<K>*>(memory), rows.length(), false);
  const RowPart<K> part = rows.mine(memory);
  K least = static_cast<K>(~K(0));
  part.load([&](K key, uint32_t) { least = min(least, key); });
  selection.meet();
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
  Selection<K, false> selection(*reinterpret_cast<Space<K>*>(memory), rows.length());
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

/// `pieces` of `n` elements a row.
template <class K, class... Options>
void launch_rows(const OrderRows& p, int64_t n, int64_t pieces, void (*kernel)(Rows<K>, Options...),
                 Options... options) {
  const SelectShape shape(n, sizeof(K), sizeof(Space<K>), p.device);
  const Rows<K> rows{static_cast<const K*>(p.x),
                     static_cast<uint32_t>(n),
                     p.stride,
                     p.n,
                     static_cast<unsigned>(pieces),
                     shape.part,
                     shape.shared > sizeof(Space<K>) + 15,
                     p.code,
                     static_cast<K*>(p.values),
                     p.indices};
  const Grid grid{static_cast<unsigned>(p.rows * pieces * shape.blocks), kSelectThreads, shape.shared, shape.blocks};
  launch(p.op, kernel, grid, p.device, rows, options...);
}

/// Elements of a piece of a long row, about; of rows that are fewer than the device has room for.
constexpr int64_t kPiece = int64_t{1} << 17, kMostPieces = 128, kFewRows = 16;

int64_t piece_of(const OrderRows& p, int64_t k) {
  const int64_t pieces = std::min(p.n / kPiece, kMostPieces);
  if (p.rows > kFewRows || pieces < 4) return p.n;
  const int64_t piece = ((p.n + pieces - 1) / pieces + 15) / 16 * 16, last = p.n % piece;
  return piece >= k && (last == 0 || last >= k) ? piece : p.n;
}

/// to[i] of each row of k: the element of `from`, a row of `width`, that it names.
__global__ void __launch_bounds__(kSelectThreads)
    name_kernel(const int64_t* __restrict__ from, int64_t width, int64_t* to, int64_t k, int64_t count) {
  const int64_t i = blockIdx.x * int64_t{kSelectThreads} + threadIdx.x;
  if (i < count) to[i] = from[i / k * width + to[i]];
}

void topk_once(const OrderRows& p, int64_t n, int64_t pieces, int64_t k) {
  core::visit_size(p.dtype, [&]<class K>() { launch_rows<K>(p, n, pieces, topk_kernel<K>, static_cast<uint32_t>(k)); });
}

}  // namespace

/// Of few long rows the first k of each piece, then of those. Of equals the first stays first: pieces come in order.
void topk_selected(const OrderRows& p, int64_t k) {
  if (p.rows == 0 || k == 0) return;
  const DeviceGuard guard(p.device);
  const int64_t piece = piece_of(p, k), pieces = (p.n + piece - 1) / piece, width = pieces * k;
  if (pieces == 1) return topk_once(p, p.n, 1, k);
  const Tensor values = Tensor::empty({p.rows, width}, p.dtype, p.device),
               names = Tensor::empty({p.rows, width}, int64, p.device);
  OrderRows first = p, last = p;
  first.values = values.raw();
  first.indices = names.data<int64_t>();
  topk_once(first, piece, pieces, k);
  last.x = values.raw();
  last.n = last.stride = width;
  width <= kShortRow ? sort_short(last, k) : topk_once(last, width, 1, k);
  if (!p.indices) return;
  const int64_t count = p.rows * k;
  launch(p.op, name_kernel,
         Grid{dim3(static_cast<unsigned>((count + kSelectThreads - 1) / kSelectThreads)), dim3(kSelectThreads)},
         p.device, names.data<int64_t>(), width, p.indices, k, count);
}

void pick_selected(const OrderRows& p, int64_t k, bool nan_wins) {
  if (p.rows == 0) return;
  const DeviceGuard guard(p.device);
  const bool wins = nan_wins && p.code.kind == core::KeyKind::kFloat;
  core::visit_size(p.dtype,
                   [&]<class K>() { launch_rows<K>(p, p.n, 1, pick_kernel<K>, static_cast<uint32_t>(k), wins); });
}

}  // namespace tenor::cuda
