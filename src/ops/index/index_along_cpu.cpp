#include <algorithm>
#include <atomic>
#include <vector>

#include "src/cpu/move.h"
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

bool is_last(const AlongMove& m) { return m.dim + 1 == static_cast<int>(m.shape.size()); }

Steps steps_of(const AlongMove& m) {
  return {is_last(m) ? 0 : m.table_strides.back(), m.table_strides[m.dim], m.dense_strides.back()};
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

/// Calls line(run, low, high) so that no two threads write one element of the table and each element sees its writes in
/// order: `run` is a run of the last dim, of which only indices low <= i < high count.
class Lines {
 public:
  Lines(const AlongMove& m, size_t item, bool writes)
      : m_(m), lines_(m.shape), index_strides_(contiguous_strides(m.shape)) {
    const int64_t length = m.shape.back(), threads = num_threads();
    lines_.back() = lines_[m.dim] = 1;  // positions that share no place: all dims but dim and the last
    count_ = product(lines_);
    depth_ = is_last(m) ? 1 : m.shape[m.dim];
    // Along another dim than the last, a block of columns that stays in cache with all its places.
    const int64_t columns = kCacheBytes / std::max<int64_t>(1, m.size * static_cast<int64_t>(item));
    if (!is_last(m))
      pieces_ = (length + std::max<int64_t>(columns, kLeastColumns) - 1) / std::max<int64_t>(columns, kLeastColumns);
    if (is_last(m) && !writes) pieces_ = (length + kSegment - 1) / kSegment;
    // Each thread looks at all indices and takes those of its places; the scan costs a few threads' worth of work.
    if (writes && threads >= 4 && 2 * count_ * pieces_ <= threads) ranges_ = threads;
  }

  void run(cpu::FunctionRef<void(const Run&, int64_t, int64_t)> line) const {
    const Steps s = steps_of(m_);
    const int64_t length = m_.shape.back();
    const int64_t grain = cpu::grain_of(16 * std::max<int64_t>(1, depth_ * length / pieces_ / ranges_));
    cpu::parallel_for(count_ * pieces_ * ranges_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t r = item % ranges_, i = item / ranges_ % pieces_, first = length * i / pieces_;
        Run run = run_at(m_, lines_, item / ranges_ / pieces_, index_strides_);
        run.table += first * s.table;
        run.dense += first * s.dense;
        run.index += first;
        run.length = length * (i + 1) / pieces_ - first;
        for (int64_t k = 0; k < depth_; ++k) {
          line(run, m_.size * r / ranges_, m_.size * (r + 1) / ranges_);
          run.dense += m_.dense_strides[m_.dim];
          run.index += index_strides_[m_.dim];
        }
      }
    });
  }

  bool has_ranges() const { return ranges_ > 1; }

 private:
  static constexpr int64_t kCacheBytes = 1 << 19, kLeastColumns = 16, kSegment = 4096;

  const AlongMove& m_;
  Dims lines_, index_strides_;
  int64_t count_ = 1, depth_ = 1, pieces_ = 1, ranges_ = 1;
};

template <class T>
void gather_run(const T* table, const int64_t* index, T* dense, int64_t n, Steps s) {
  if (s.table == 0 && s.place == 1 && s.dense == 1) {
    for (int64_t j = 0; j < n; ++j) dense[j] = table[index[j]];
  } else {
    for (int64_t j = 0; j < n; ++j) dense[j * s.dense] = table[j * s.table + index[j] * s.place];
  }
}

/// Whether all entries are 0..n-1, by the sign bits of the entries and of their distances to the end.
bool all_inside(const int64_t* index, int64_t count, int64_t n) {
  uint64_t outside = 0;
  for (int64_t j = 0; j < count; ++j)
    outside |= static_cast<uint64_t>(index[j]) | (static_cast<uint64_t>(n) - 1 - static_cast<uint64_t>(index[j]));
  return !(outside >> 63);
}

template <class T>
bool gather_typed(const AlongMove& m, bool checked) {
  const Steps s = steps_of(m);
  std::atomic<bool> inside{true};
  Lines(m, sizeof(T), false).run([&](const Run& run, int64_t, int64_t) {
    if (!checked && !all_inside(m.index + run.index, run.length, m.size)) {
      inside = false;
      return;
    }
    gather_run(static_cast<const T*>(m.table) + run.table, m.index + run.index, static_cast<T*>(m.dense) + run.dense,
               run.length, s);
  });
  return inside;
}

template <class T, class Op>
void write_run(T* table, const int64_t* index, const T* dense, int64_t n, Steps s, const Op& op) {
  if (s.table == 0 && s.place == 1 && s.dense == 1) {
    for (int64_t j = 0; j < n; ++j) table[index[j]] = op(table[index[j]], dense[j]);
  } else {
    for (int64_t j = 0; j < n; ++j) {
      T& place = table[j * s.table + index[j] * s.place];
      place = op(place, dense[j * s.dense]);
    }
  }
}

template <class T, class Op>
void write_typed(const AlongMove& m, const Op& op) {
  const Steps s = steps_of(m);
  const Lines lines(m, sizeof(T), true);
  lines.run([&](const Run& run, int64_t low, int64_t high) {
    T* table = static_cast<T*>(m.table) + run.table;
    const T* dense = static_cast<const T*>(m.dense) + run.dense;
    const int64_t* index = m.index + run.index;
    if (!lines.has_ranges()) return write_run(table, index, dense, run.length, s, op);
    for (int64_t j = 0; j < run.length; ++j)
      if (index[j] >= low && index[j] < high) write_run(table + j * s.table, index + j, dense + j * s.dense, 1, s, op);
  });
}

template <class F>
void visit_combine(Combine combine, F&& fn) {
  switch (combine) {
    case Combine::kAdd:
      return fn(Add());
    case Combine::kMultiply:
      return fn(Multiply());
    case Combine::kMaximum:
      return fn(Maximum());
    case Combine::kMinimum:
      return fn(Minimum());
  }
}

}  // namespace

void gather_along(const AlongMove& move, DType dtype) {
  if (product(move.shape) == 0) return;
  core::visit_size(dtype, [&]<class T>() { gather_typed<T>(move, true); });
}

bool try_gather_along(const AlongMove& move, DType dtype) {
  if (product(move.shape) == 0) return true;
  return core::visit_size(dtype, [&]<class T>() { return gather_typed<T>(move, false); });
}

void scatter_along(const AlongMove& move, DType dtype) {
  if (product(move.shape) == 0) return;
  core::visit_size(dtype, [&]<class T>() { write_typed<T>(move, Put()); });
}

void combine_along(const AlongMove& move, DType dtype, Combine combine) {
  if (product(move.shape) == 0) return;
  visit_compute(dtype, [&]<class T>() { visit_combine(combine, [&](auto op) { write_typed<T>(move, op); }); });
}

bool takes_lines(const AlongMove& m, DType dtype) {
  if (!is_float(dtype) || item_size(dtype) != 2 || !is_last(m)) return false;
  const Dims lines(m.shape.begin(), m.shape.end() - 1);
  return m.table_strides.back() == 1 && m.dense_strides.back() == 1 && product(lines) >= 2 * num_threads() &&
         m.size <= 1 << 16;
}

void combine_lines(const AlongMove& m, DType dtype, Combine combine) {
  if (product(m.shape) == 0) return;
  const cpu::Converter widen(dtype, float32), narrow(float32, dtype);
  const Dims index_strides = contiguous_strides(m.shape);
  Dims lines = m.shape;
  lines.back() = 1;
  const int64_t length = m.shape.back();
  cpu::parallel_for(product(lines), cpu::grain_of(16 * (length + m.size)), [&](int64_t begin, int64_t end) {
    std::vector<float> sums(static_cast<size_t>(m.size)), from(static_cast<size_t>(length));
    for (int64_t i = begin; i < end; ++i) {
      const Run run = run_at(m, lines, i, index_strides);
      auto* table = static_cast<uint16_t*>(m.table) + run.table;
      widen(table, sums.data(), sums.size());
      widen(static_cast<const uint16_t*>(m.dense) + run.dense, from.data(), from.size());
      visit_combine(combine, [&](auto op) {
        write_run(sums.data(), m.index + run.index, from.data(), length, {0, 1, 1}, op);
      });
      narrow(sums.data(), table, sums.size());
    }
  });
}

}  // namespace tenor::index
