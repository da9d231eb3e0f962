#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "src/core/backend.h"
#include "src/core/scalar_value.h"
#include "src/cpu/parallel.h"
#include "src/ops/index/index_arith.h"
#include "src/ops/index/index_rows.h"
#include "tenor/device.h"

namespace tenor::index {
namespace {

/// A row's loops: sizes and the strides of its two sides, without dims of size 1, dense runs merged, the dense side's
/// smallest stride innermost.
struct Block {
  Dims shape, table, dense;
  bool is_run() const { return shape.size() == 1 && table[0] == 1 && dense[0] == 1; }
};

Block make_block(const Dims& shape, const Dims& table, const Dims& dense) {
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return dense[a] > dense[b]; });
  Block block;
  for (size_t d : order) {
    if (shape[d] == 1) continue;
    if (!block.shape.empty() && block.table.back() == shape[d] * table[d] &&
        block.dense.back() == shape[d] * dense[d]) {
      block.shape.back() *= shape[d];
      block.table.back() = table[d];
      block.dense.back() = dense[d];
    } else {
      block.shape.push_back(shape[d]);
      block.table.push_back(table[d]);
      block.dense.push_back(dense[d]);
    }
  }
  return block;
}

/// fn(to, from) over the elements of a row, dims first..last; `Copy` says that it only assigns.
template <class T, class Op>
void combine_block(const Dims& shape, const Dims& to_strides, const Dims& from_strides, size_t dim, T* to,
                   const T* from, const Op& op) {
  if (dim == shape.size()) {
    *to = op(*to, *from);
    return;
  }
  const int64_t n = shape[dim], ts = to_strides[dim], fs = from_strides[dim];
  if (dim + 1 < shape.size()) {
    for (int64_t i = 0; i < n; ++i)
      combine_block(shape, to_strides, from_strides, dim + 1, to + i * ts, from + i * fs, op);
  } else if (ts == 1 && fs == 1) {
    if constexpr (std::is_same_v<Op, Put>) {
      std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) to[i] = op(to[i], from[i]);
    }
  } else if (std::is_same_v<Op, Put> && ts == 1 && fs == -1) {
    std::reverse_copy(from - (n - 1), from + 1, to);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * ts] = op(to[i * ts], from[i * fs]);
  }
}

/// How the work is cut: each outer position into `pieces` of a row's first dim, and for writes also into `ranges` of
/// table places, so that no two threads write one element and each place sees its writes in order.
struct Cut {
  int64_t outer = 1, pieces = 1, ranges = 1, row_elements = 1;
};

Cut cut_reads(const RowMove& m, const Block& block, size_t item) {
  Cut cut{product(m.outer), 1, 1, product(m.inner)};
  const int64_t rows = cut.outer * m.count, bytes = cut.row_elements * static_cast<int64_t>(item);
  if (rows < 4 * num_threads() && bytes > 1 << 18 && !block.shape.empty())
    cut.pieces = std::min<int64_t>(block.shape[0], 4 * num_threads());
  return cut;
}

Cut cut_writes(const RowMove& m, const Block& block, size_t item) {
  Cut cut{product(m.outer), 1, 1, product(m.inner)};
  const int64_t threads = num_threads();
  if (threads == 1 || cut.outer >= 2 * threads) return cut;
  if (!block.shape.empty()) {
    const int64_t piece_bytes = cut.row_elements / block.shape[0] * static_cast<int64_t>(item);
    cut.pieces = std::clamp<int64_t>(block.shape[0] * piece_bytes / 256, 1, std::min(threads, block.shape[0]));
  }
  // Each thread looks at all places and takes its own: for short rows the scan is worth several threads' work.
  const int64_t row_bytes = cut.row_elements / cut.pieces * static_cast<int64_t>(item);
  if (cut.outer * cut.pieces < threads && (threads >= 4 || row_bytes >= 64)) cut.ranges = threads;
  return cut;
}

/// The part of a block that piece i of n covers, and where it starts on each side.
struct Piece {
  Dims shape;
  int64_t table = 0, dense = 0;
};
Piece piece_of(const Block& block, int64_t i, int64_t n) {
  Piece piece{block.shape};
  if (n == 1) return piece;
  const int64_t first = block.shape[0] * i / n, last = block.shape[0] * (i + 1) / n;
  piece.shape[0] = last - first;
  piece.table = first * block.table[0];
  piece.dense = first * block.dense[0];
  return piece;
}

template <class T>
void gather_typed(const RowMove& m) {
  const Block block = make_block(m.inner, m.table_inner, m.dense_inner);
  const Cut cut = cut_reads(m, block, sizeof(T));
  const int64_t per_outer = cut.pieces * m.count;
  const int64_t grain = cpu::grain_of(2 * cut.row_elements / cut.pieces * static_cast<int64_t>(sizeof(T)) + 8);
  cpu::parallel_for(cut.outer * per_outer, grain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t o = begin / per_outer, i = begin % per_outer / m.count, first = begin % m.count;
      const int64_t last = std::min(m.count, first + end - begin);
      const Piece piece = piece_of(block, i, cut.pieces);
      const T* table = static_cast<const T*>(m.table) + offset_at(o, m.outer, m.table_outer) + piece.table;
      T* dense = static_cast<T*>(m.dense) + offset_at(o, m.outer, m.dense_outer) + piece.dense;
      if (block.shape.empty() && m.dense_stride == 1 && m.place_stride == 1) {
        for (int64_t p = first; p < last; ++p) dense[p] = table[m.places[p]];
      } else if (block.shape.empty()) {
        for (int64_t p = first; p < last; ++p) dense[p * m.dense_stride] = table[m.places[p] * m.place_stride];
      } else if (block.is_run()) {
        const size_t bytes = static_cast<size_t>(piece.shape[0]) * sizeof(T);
        for (int64_t p = first; p < last; ++p)
          std::memcpy(dense + p * m.dense_stride, table + m.places[p] * m.place_stride, bytes);
      } else {
        for (int64_t p = first; p < last; ++p)
          combine_block(piece.shape, block.dense, block.table, 0, dense + p * m.dense_stride,
                        table + m.places[p] * m.place_stride, Put());
      }
      begin += last - first;
    }
  });
}

template <class T, class Op>
void write_typed(const RowMove& m, const Op& op) {
  const Block block = make_block(m.inner, m.table_inner, m.dense_inner);
  const Cut cut = cut_writes(m, block, sizeof(T));
  const int64_t past = cut.ranges == 1 || m.count == 0 ? 1 : *std::max_element(m.places, m.places + m.count) + 1;
  const int64_t bytes =
      m.count * (3 * cut.row_elements / cut.pieces / cut.ranges * static_cast<int64_t>(sizeof(T)) + 8);
  cpu::parallel_for(cut.outer * cut.pieces * cut.ranges, cpu::grain_of(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t r = item % cut.ranges, i = item / cut.ranges % cut.pieces, o = item / cut.ranges / cut.pieces;
      const Piece piece = piece_of(block, i, cut.pieces);
      const int64_t low = cut.ranges == 1 ? INT64_MIN : past * r / cut.ranges,
                    high = cut.ranges == 1 ? INT64_MAX : past * (r + 1) / cut.ranges;
      T* table = static_cast<T*>(m.table) + offset_at(o, m.outer, m.table_outer) + piece.table;
      const T* dense = static_cast<const T*>(m.dense) + offset_at(o, m.outer, m.dense_outer) + piece.dense;
      if (cut.ranges == 1 && block.shape.empty()) {
        for (int64_t p = 0; p < m.count; ++p) {
          T& place = table[m.places[p] * m.place_stride];
          place = op(place, dense[p * m.dense_stride]);
        }
        continue;
      }
      for (int64_t p = 0; p < m.count; ++p) {
        if (m.places[p] < low || m.places[p] >= high) continue;
        combine_block(piece.shape, block.table, block.dense, 0, table + m.places[p] * m.place_stride,
                      dense + p * m.dense_stride, op);
      }
    }
  });
}

/// The last row of each place, or nothing where places are too far apart to be marked.
std::vector<int64_t> last_rows(const RowMove& m) {
  std::vector<int64_t> rows;
  const int64_t past = *std::max_element(m.places, m.places + m.count) + 1;
  if (past > 64 * m.count + (1 << 16)) return rows;
  std::vector<bool> seen(static_cast<size_t>(past), false);
  for (int64_t p = m.count; p-- > 0;) {
    if (seen[static_cast<size_t>(m.places[p])]) continue;
    seen[static_cast<size_t>(m.places[p])] = true;
    rows.push_back(p);
  }
  return rows;
}

/// Writes those rows, which name different places, on all threads.
template <class T>
void write_rows(const RowMove& m, const std::vector<int64_t>& rows) {
  const Block block = make_block(m.inner, m.table_inner, m.dense_inner);
  const int64_t count = static_cast<int64_t>(rows.size()), elements = product(m.inner);
  cpu::parallel_for(
      product(m.outer) * count, cpu::grain_of(2 * elements * static_cast<int64_t>(sizeof(T))),
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t p = rows[static_cast<size_t>(i % count)], o = i / count;
          T* table = static_cast<T*>(m.table) + offset_at(o, m.outer, m.table_outer) + m.places[p] * m.place_stride;
          const T* dense = static_cast<const T*>(m.dense) + offset_at(o, m.outer, m.dense_outer) + p * m.dense_stride;
          combine_block(block.shape, block.table, block.dense, 0, table, dense, Put());
        }
      });
}

/// a + alpha * b, rounding twice.
template <class T>
struct AddScaled {
  T alpha;
  T operator()(T a, T b) const { return Add()(a, Multiply()(alpha, b)); }
};

Dims range(const Dims& dims, size_t first, size_t last) { return Dims(dims.begin() + first, dims.begin() + last); }

bool empty(const RowMove& m) { return product(m.outer) * product(m.inner) * m.count == 0; }

}  // namespace

void gather_rows(const RowMove& move, DType dtype) {
  if (empty(move)) return;
  core::visit_size(dtype, [&]<class T>() { gather_typed<T>(move); });
}

void scatter_rows(const RowMove& move, DType dtype) {
  if (empty(move)) return;
  // Of long rows only those that stay are written.
  std::vector<int64_t> rows;
  if (product(move.inner) * static_cast<int64_t>(item_size(dtype)) >= 128 && move.count >= 2 * num_threads())
    rows = last_rows(move);
  core::visit_size(dtype, [&]<class T>() {
    if (!rows.empty()) return write_rows<T>(move, rows);
    write_typed<T>(move, Put());
  });
}

void add_rows(const RowMove& move, DType dtype, const Scalar& alpha) {
  if (empty(move)) return;
  visit_compute(dtype, [&]<class T>() {
    const T scale = core::scalar_as<T>(alpha);
    if (scale == T(1)) return write_typed<T>(move, Add());
    write_typed<T>(move, AddScaled<T>{scale});
  });
}

namespace {

/// select_rows on CUDA.
void select_on_cuda(Argument at, const Tensor& x, size_t d, const Tensor& places, const Tensor& out, size_t rank) {
  const Dims along = contiguous_strides(range(out.shape(), d, d + rank));
  Dims index_strides(out.shape().size(), 0), table_strides(out.shape().size(), 0);
  for (size_t i = 0; i < out.shape().size(); ++i) {
    if (i < d) table_strides[i] = x.strides()[i];
    if (i >= d && i < d + rank) index_strides[i] = along[i - d];
    if (i >= d + rank) table_strides[i] = x.strides()[i - rank + 1];
  }
  gather_on_device({.at = at,
                    .shape = out.shape(),
                    .index = places,
                    .index_strides = index_strides,
                    .size = x.shape()[d],
                    .place_stride = x.strides()[d],
                    .table = x.raw(),
                    .table_strides = table_strides,
                    .dense = out.raw(),
                    .dense_strides = out.strides()},
                   x.dtype());
}

}  // namespace

void select_rows(Argument at, const Tensor& x, size_t d, const Tensor& places, const Tensor& out, size_t rank) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) return select_on_cuda(at, x, d, places, out, rank);
  }
  RowMove move{.outer = range(x.shape(), 0, d), .inner = range(x.shape(), d + 1, x.shape().size())};
  move.table = x.raw();
  move.table_outer = range(x.strides(), 0, d);
  move.table_inner = range(x.strides(), d + 1, x.strides().size());
  move.places = places.data<int64_t>();
  move.place_stride = x.strides()[d];
  move.dense = out.raw();
  move.dense_outer = range(out.strides(), 0, d);
  move.dense_inner = range(out.strides(), d + rank, out.strides().size());
  move.dense_stride = rank == 1 ? out.strides()[d] : product(move.inner);
  move.count = places.numel();
  gather_rows(move, x.dtype());
}

void copy_strided(const void* src, const Dims& src_strides, void* dst, const Dims& dst_strides, const Dims& shape,
                  DType dtype) {
  const int64_t here = 0;
  RowMove move{.inner = shape,
               .table = const_cast<void*>(src),
               .table_inner = src_strides,
               .places = &here,
               .dense = dst,
               .dense_inner = dst_strides,
               .count = 1};
  gather_rows(move, dtype);
}

}  // namespace tenor::index
