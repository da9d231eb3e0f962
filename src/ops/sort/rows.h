// What the family's row kernels are written with.
#pragma once

#include <memory>

#include "src/cpu/parallel.h"
#include "src/ops/sort/packed.h"
#include "src/ops/sort/row_order.h"
#include "tenor/allocator.h"

namespace tenor::cpu {

inline constexpr int64_t kShareable = 1 << 16;  ///< elements of a row worth sharing among threads
inline constexpr int64_t kPart = 1 << 14;       ///< elements that one thread takes at least of a shared row

/// Rows too few to keep the threads busy, and long enough to share.
inline bool shares_rows(const RowOrder& problem) {
  return problem.rows.count * 2 <= num_threads() && problem.n >= kShareable;
}

/// The unsigned integer of an element's width.
template <class F>
void visit_key(size_t width, F&& fn) {
  switch (width) {
    case 1:
      return fn.template operator()<uint8_t>();
    case 2:
      return fn.template operator()<uint16_t>();
    case 4:
      return fn.template operator()<uint32_t>();
    default:
      return fn.template operator()<uint64_t>();
  }
}

/// Workspace of one thread, or of all.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : memory_(current_allocator().allocate(static_cast<size_t>(count) * sizeof(T), kCpu)) {}
  T* data() const { return static_cast<T*>(memory_.get()); }

 private:
  std::shared_ptr<void> memory_;
};

/// One row of a problem: where its elements and results are.
template <class K>
struct Row {
  const RowOrder& problem;
  const K* x;
  K* values;  ///< nothing when not wanted, and indices likewise
  int64_t* indices;
  int64_t x_stride, value_stride, index_stride;

  static Row at(const RowOrder& p, const RowCursor& cursor) {
    return {p,
            static_cast<const K*>(p.x) + cursor.offset(0),
            p.values ? static_cast<K*>(p.values) + cursor.offset(1) : nullptr,
            p.indices ? p.indices + cursor.offset(2) : nullptr,
            p.strides[0],
            p.strides[1],
            p.strides[2]};
  }

  /// Result i is element place(i), for i in [first, last). Elements keep their bits, which their keys may have lost.
  template <class Place>
  void write(int64_t first, int64_t last, Place place) const {
    if (values)
      for (int64_t i = first; i < last; ++i) values[i * value_stride] = x[place(i) * x_stride];
    if (indices)
      for (int64_t i = first; i < last; ++i) indices[i * index_stride] = place(i);
  }
  template <class P>
  void write_packed(const P* order, int64_t first, int64_t last) const {
    write(first, last, [&](int64_t i) { return index_of(order[i]); });
  }
};

/// Rows along a strided dim that are neighbours in memory, copied so that each lies packed: a cache line that one row
/// fetches for one element serves the others too, and so with the `results` of each.
template <class K>
class RowTile {
 public:
  static constexpr int64_t kRows = 16;

  static bool helps(const RowOrder& problem) {
    const Dims& sizes = problem.rows.sizes;
    return problem.n >= 8 && problem.strides[0] != 1 && !sizes.empty() && sizes.back() > 1 &&
           problem.rows.strides[0].back() == 1;
  }

  RowTile(const RowOrder& problem, int64_t results)
      : problem_(problem),
        results_(results),
        x_(kRows * problem.n),
        values_(kRows * results),
        indices_(kRows * results) {}

  /// The next `rows` rows from the cursor on.
  template <class Fn>
  void run(const RowCursor& cursor, int64_t rows, Fn fn) {
    const Row<K> first = Row<K>::at(problem_, cursor);
    const int64_t n = problem_.n;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t r = 0; r < rows; ++r) x_.data()[r * n + i] = first.x[i * first.x_stride + r];
    for (int64_t r = 0; r < rows; ++r) {
      K* values = first.values ? values_.data() + r * results_ : nullptr;
      int64_t* indices = first.indices ? indices_.data() + r * results_ : nullptr;
      fn(Row<K>{problem_, x_.data() + r * n, values, indices, 1, 1, 1});
    }
    if (first.values) store(values_.data(), rows, first.values, first.value_stride, problem_.rows.strides[1].back());
    if (first.indices) store(indices_.data(), rows, first.indices, first.index_stride, problem_.rows.strides[2].back());
  }

 private:
  template <class T>
  void store(const T* from, int64_t rows, T* to, int64_t stride, int64_t row_stride) const {
    for (int64_t i = 0; i < results_; ++i)
      for (int64_t r = 0; r < rows; ++r) to[i * stride + r * row_stride] = from[r * results_ + i];
  }

  const RowOrder& problem_;
  int64_t results_;
  Scratch<K> x_, values_;
  Scratch<int64_t> indices_;
};

/// fn(row, shared) for every row, rows side by side on the threads; make() gives each thread what its calls share.
template <class K, class Make, class Fn>
void each_row(const RowOrder& problem, int64_t results, Make make, Fn fn) {
  const int64_t bytes = problem.n * static_cast<int64_t>(16 + sizeof(K));
  if (!RowTile<K>::helps(problem)) {
    return parallel_for(problem.rows.count, grain_of(bytes), [&](int64_t begin, int64_t end) {
      auto&& shared = make();
      RowCursor cursor(problem.rows, begin);
      for (int64_t r = begin; r < end; ++r, cursor.next()) fn(Row<K>::at(problem, cursor), shared);
    });
  }
  const int64_t inner = problem.rows.sizes.back(), tiles = (inner + RowTile<K>::kRows - 1) / RowTile<K>::kRows;
  parallel_for(problem.rows.count / inner * tiles, grain_of(bytes * RowTile<K>::kRows),
               [&](int64_t begin, int64_t end) {
                 auto&& shared = make();
                 RowTile<K> tile(problem, results);
                 for (int64_t t = begin; t < end; ++t) {
                   const int64_t at = t % tiles * RowTile<K>::kRows;
                   tile.run(RowCursor(problem.rows, t / tiles * inner + at), std::min(RowTile<K>::kRows, inner - at),
                            [&](const Row<K>& row) { fn(row, shared); });
                 }
               });
}

}  // namespace tenor::cpu
