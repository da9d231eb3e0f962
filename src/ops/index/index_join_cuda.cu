#include <algorithm>
#include <numeric>

#include "src/core/visit.h"
#include "src/cuda/rows.cuh"
#include "src/ops/index/index_join_cuda.h"

namespace tenor::index {

namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;
constexpr size_t kMaxPieces = 64;
constexpr int kFewPieces = 8;  // so many may take a launch each

/// A piece in bytes: its rows are `pitch` apart and stand at begin .. begin + bytes of the target's.
struct Piece {
  const char* data;
  int64_t pitch, begin, bytes;
};
struct Pieces {
  int count = 0;
  int64_t rows = 0, row = 0;  ///< of the target, and the bytes of one
  Piece piece[kMaxPieces];
};

/// Row r of all pieces, one piece after the other.
struct JoinMap {
  Pieces pieces;
  char* target;

  __device__ cuda::RowEnds operator()(int64_t r) const {
    const int64_t row = pieces.count == 1 ? r
                        : r <= UINT32_MAX ? static_cast<uint32_t>(r) / static_cast<uint32_t>(pieces.count)
                                          : r / pieces.count;
    const Piece& piece = pieces.piece[r - row * pieces.count];
    return {piece.data + row * piece.pitch, target + row * pieces.row + piece.begin, piece.bytes};
  }
};

/// Short runs: neighbouring threads make neighbouring elements of the target.
template <class T>
__global__ void __launch_bounds__(kThreads)
    join_elements_kernel(const __grid_constant__ Pieces pieces, T* __restrict__ target) {
  constexpr int64_t kItem = sizeof(T);
  const int64_t row_items = pieces.row / kItem, count = pieces.rows * row_items;
#pragma unroll
  for (int k = 0; k < kUnroll; ++k) {
    const int64_t i = (int64_t{blockIdx.x} * kUnroll + k) * kThreads + threadIdx.x;
    if (i >= count) return;
    const int64_t row =
        count <= UINT32_MAX ? static_cast<uint32_t>(i) / static_cast<uint32_t>(row_items) : i / row_items;
    const int64_t along = (i - row * row_items) * kItem;
    int p = 0;
    while (p + 1 < pieces.count && pieces.piece[p + 1].begin <= along) ++p;
    const Piece& piece = pieces.piece[p];
    target[i] = *reinterpret_cast<const T*>(piece.data + row * piece.pitch + along - piece.begin);
  }
}

/// x's dims in another order.
Tensor reordered(const Tensor& x, const std::vector<int>& order) {
  Dims shape, strides;
  for (int d : order) {
    shape.push_back(x.shape(d));
    strides.push_back(x.stride(d));
  }
  return x.with_layout(shape, strides, x.offset());
}

/// The stride of dims first..last taken as one (0 for a single place), or -1 when none walks them.
int64_t one_stride(const Tensor& x, int first, int last) {
  int64_t stride = 0, expected = -1;
  for (int d = last; d-- > first;) {
    if (x.shape(d) == 1) continue;
    if (expected >= 0 && x.stride(d) != expected) return -1;
    if (expected < 0) stride = x.stride(d);
    expected = x.stride(d) * x.shape(d);
  }
  return stride;
}

bool is_dense_from(const Tensor& x, int d) {
  int64_t step = 1;
  for (int k = x.ndim(); k-- > d; step *= x.shape(k))
    if (x.shape(k) != 1 && x.stride(k) != step) return false;
  return true;
}

/// Every piece's runs, in one launch where they are about equally long or many, else one a piece. False, and nothing
/// done, for short runs.
bool join_rows(const char* op, const Pieces& list, char* target, int item, Device device) {
  const auto shorter = [](const Piece& a, const Piece& b) { return a.bytes < b.bytes; };
  const auto [least, most] = std::minmax_element(list.piece, list.piece + list.count, shorter);
  const auto aligned = [&](const Piece& p) {
    return (reinterpret_cast<uintptr_t>(p.data) | p.pitch | p.begin | p.bytes | list.row) % 16 == 0;
  };
  const bool all =
      std::all_of(list.piece, list.piece + list.count, aligned) && reinterpret_cast<uintptr_t>(target) % 16 == 0;
  if (most->bytes < (all ? 16 : 64)) return false;
  if (most->bytes <= 2 * least->bytes || list.count > kFewPieces) {
    cuda::move_rows(op, JoinMap{list, target}, list.rows * list.count, most->bytes, item, all, device);
    return true;
  }
  for (int k = 0; k < list.count; ++k) {
    Pieces one = list;
    one.count = 1;
    one.piece[0] = list.piece[k];
    cuda::move_rows(op, JoinMap{one, target}, list.rows, one.piece[0].bytes, item, all, device);
  }
  return true;
}

}  // namespace

bool join_on_device(const char* op, const std::vector<Tensor>& pieces, const Tensor& target, int d) {
  if (pieces.size() > kMaxPieces || target.numel() == 0) return false;
  std::vector<int> order(static_cast<size_t>(target.ndim()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return target.stride(a) > target.stride(b); });
  const int along = static_cast<int>(std::find(order.begin(), order.end(), d) - order.begin());
  if (!reordered(target, order).is_contiguous()) return false;
  const auto item = static_cast<int64_t>(item_size(target.dtype()));
  Pieces list;
  for (const Tensor& given : pieces) {
    const Tensor x = reordered(given, order);
    if (x.numel() == 0) continue;
    const int64_t pitch = one_stride(x, 0, along);
    if (x.dtype() != target.dtype() || pitch < 0 || !is_dense_from(x, along)) return false;
    const int64_t run = product(Dims(x.shape().begin() + along, x.shape().end())) * item;
    list.rows = x.numel() * item / run;
    list.piece[list.count++] = {static_cast<const char*>(x.raw()), pitch * item, list.row, run};
    list.row += run;
  }
  const cuda::DeviceGuard guard(target.device());
  auto* to = static_cast<char*>(target.raw());
  if (join_rows(op, list, to, static_cast<int>(item), target.device())) return true;
  constexpr int64_t kPerBlock = int64_t{kThreads} * kUnroll;
  const cuda::Grid grid{static_cast<unsigned>((target.numel() + kPerBlock - 1) / kPerBlock), kThreads};
  core::visit_size(target.dtype(), [&]<class T>() {
    cuda::launch(op, join_elements_kernel<T>, grid, target.device(), list, static_cast<T*>(target.raw()));
  });
  return true;
}

}  // namespace tenor::index
