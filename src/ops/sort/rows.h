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
    case 1: return fn.template operator()<uint8_t>();
    case 2: return fn.template operator()<uint16_t>();
    case 4: return fn.template operator()<uint32_t>();
    default: return fn.template operator()<uint64_t>();
  }
}

/// Workspace of one thread, or of all.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count) : memory_(current_allocator().allocate(static_cast<size_t>(count) * sizeof(T), kCpu)) {}
  T* data() const { return static_cast<T*>(memory_.get()); }

 private:
  std::shared_ptr<void> memory_;
};

/// One row of a problem.
template <class K>
struct Row {
  const K* x;
  K* values;
  int64_t* indices;
  const RowOrder& problem;

  Row(const RowOrder& p, const RowCursor& at)
      : x(static_cast<const K*>(p.x) + at.offset(0)),
        values(p.values ? static_cast<K*>(p.values) + at.offset(1) : nullptr),
        indices(p.indices ? p.indices + at.offset(2) : nullptr),
        problem(p) {}

  /// Result i is element place(i), for i in [first, last). Elements keep their bits, which their keys may have lost.
  template <class Place>
  void write(int64_t first, int64_t last, Place place) const {
    const int64_t xs = problem.strides[0], vs = problem.strides[1], is = problem.strides[2];
    if (values)
      for (int64_t i = first; i < last; ++i) values[i * vs] = x[place(i) * xs];
    if (indices)
      for (int64_t i = first; i < last; ++i) indices[i * is] = place(i);
  }
  template <class P>
  void write_packed(const P* order, int64_t first, int64_t last) const {
    write(first, last, [&](int64_t i) { return index_of(order[i]); });
  }
};

/// fn(row) for every row, rows side by side on the threads; `make()` gives each thread what its calls share.
template <class K, class Make, class Fn>
void each_row(const RowOrder& problem, Make make, Fn fn) {
  const int64_t grain = grain_of(problem.n * static_cast<int64_t>(16 + sizeof(K)));
  parallel_for(problem.rows.count, grain, [&](int64_t begin, int64_t end) {
    auto&& shared = make();
    RowCursor cursor(problem.rows, begin);
    for (int64_t r = begin; r < end; ++r, cursor.next()) fn(Row<K>(problem, cursor), shared);
  });
}

}  // namespace tenor::cpu
