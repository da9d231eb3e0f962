#include <algorithm>

#include "src/cpu/parallel.h"
#include "src/ops/index/index_along.h"
#include "src/ops/index/index_arith.h"
#include "tenor/device.h"

namespace tenor::index {
namespace {

/// A run of positions along the last dim: element offsets of its start, and its length.
struct Run {
  int64_t table, dense, index, length;
};

/// Strides of one step along the last dim; the table moves by `table` a step and by `place` an index.
struct Steps {
  int64_t table, place, dense;
};

Steps steps_of(const AlongMove& m) {
  const size_t last = m.shape.size() - 1;
  return {static_cast<size_t>(m.dim) == last ? 0 : m.table_strides[last], m.table_strides[m.dim], m.dense_strides[last]};
}

/// The start of the run at flat position `at` of `shape`, a shape with m's rank and some dims set to 1.
Run run_at(const AlongMove& m, const Dims& shape, int64_t at, const Dims& index_strides) {
  Run run{0, 0, 0, 0};
  for (size_t d = shape.size(); d-- > 0;) {
    const int64_t i = at % shape[d];
    at /= shape[d];
    if (static_cast<int>(d) != m.dim) run.table += i * m.table_strides[d];
    run.dense += i * m.dense_strides[d];
    run.index += i * index_strides[d];
  }
  return run;
}

template <class T>
void gather_typed(const AlongMove& m) {
  const Dims index_strides = contiguous_strides(m.shape);
  const Steps s = steps_of(m);
  const int64_t length = m.shape.back();
  Dims rows = m.shape;
  rows.back() = 1;
  cpu::parallel_for(product(m.shape), cpu::grain_of(8 + 2 * sizeof(T)), [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t first = begin % length, last = std::min(length, first + end - begin);
      const Run run = run_at(m, rows, begin / length, index_strides);
      const T* table = static_cast<const T*>(m.table) + run.table;
      T* dense = static_cast<T*>(m.dense) + run.dense;
      const int64_t* index = m.index + run.index;
      for (int64_t j = first; j < last; ++j) dense[j * s.dense] = table[j * s.table + index[j] * s.place];
      begin += last - first;
    }
  });
}

/// Calls line(run, low, high) so that no two threads write one element and each element sees its writes in order: `run`
/// is a run of the last dim, of which only indices low <= i < high count.
void for_each_run(const AlongMove& m, cpu::FunctionRef<void(const Run&, int64_t, int64_t)> line) {
  const Dims index_strides = contiguous_strides(m.shape);
  const int64_t length = m.shape.back(), threads = num_threads();
  const bool along_last = m.dim + 1 == static_cast<int>(m.shape.size());
  Dims lines = m.shape;  // positions that share no place: all dims but dim, the last one cut into pieces
  lines.back() = lines[m.dim] = 1;
  const int64_t count = product(lines), depth = along_last ? 1 : m.shape[m.dim];
  const int64_t pieces = along_last || count >= 2 * threads ? 1 : std::clamp<int64_t>(length / 16, 1, threads);
  const int64_t ranges = count * pieces >= threads ? 1 : threads;
  const int64_t grain = cpu::grain_of(16 * std::max<int64_t>(1, depth * length / pieces / ranges));
  cpu::parallel_for(count * pieces * ranges, grain, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t r = item % ranges, i = item / ranges % pieces, first = length * i / pieces;
      Run run = run_at(m, lines, item / ranges / pieces, index_strides);
      const Steps s = steps_of(m);
      run.table += first * s.table;
      run.dense += first * s.dense;
      run.index += first;
      run.length = length * (i + 1) / pieces - first;
      for (int64_t k = 0; k < depth; ++k) {
        line(run, m.size * r / ranges, m.size * (r + 1) / ranges);
        run.dense += m.dense_strides[m.dim];
        run.index += index_strides[m.dim];
      }
    }
  });
}

template <class T, class Op>
void write_typed(const AlongMove& m, const Op& op) {
  const Steps s = steps_of(m);
  for_each_run(m, [&](const Run& run, int64_t low, int64_t high) {
    T* table = static_cast<T*>(m.table) + run.table;
    const T* dense = static_cast<const T*>(m.dense) + run.dense;
    const int64_t* index = m.index + run.index;
    for (int64_t j = 0; j < run.length; ++j) {
      if (index[j] < low || index[j] >= high) continue;
      T& place = table[j * s.table + index[j] * s.place];
      place = op(place, dense[j * s.dense]);
    }
  });
}

}  // namespace

void gather_along(const AlongMove& move, DType dtype) {
  if (product(move.shape) == 0) return;
  core::visit_size(dtype, [&]<class T>() { gather_typed<T>(move); });
}

void scatter_along(const AlongMove& move, DType dtype) {
  if (product(move.shape) == 0) return;
  core::visit_size(dtype, [&]<class T>() { write_typed<T>(move, Put()); });
}

void combine_along(const AlongMove& move, DType dtype, Combine combine) {
  if (product(move.shape) == 0) return;
  visit_compute(dtype, [&]<class T>() {
    switch (combine) {
      case Combine::kAdd: return write_typed<T>(move, Add());
      case Combine::kMultiply: return write_typed<T>(move, Multiply());
      case Combine::kMaximum: return write_typed<T>(move, Maximum());
      case Combine::kMinimum: return write_typed<T>(move, Minimum());
    }
  });
}

}  // namespace tenor::index
