// add_rows_grouped: rows of floats grouped by the place they go to, so that a place is read and written once however
// many rows it takes; each is summed in float32 and rounded once.
#include <algorithm>
#include <numeric>
#include <vector>

#include "src/core/numeric.h"
#include "src/cpu/move.h"
#include "src/cpu/parallel.h"
#include "src/ops/index/index_rows.h"

namespace tenor::index {
namespace {

constexpr int64_t kPiece = 1024;   // columns summed at a time, on the stack
constexpr int64_t kFar = 4 << 20;  // bytes of rows that the nearer caches do not hold

bool is_dense(const Dims& shape, const Dims& strides) {
  int64_t step = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] != 1 && strides[d] != step) return false;
    step *= shape[d];
  }
  return true;
}

/// Rows by place, those of one place in their order, and where each place's rows start.
struct Groups {
  std::vector<int64_t> rows, starts;
};

Groups group_by_place(const int64_t* places, int64_t count) {
  Groups g;
  g.rows.resize(static_cast<size_t>(count));
  const int64_t past = *std::max_element(places, places + count) + 1;
  if (past <= 8 * count) {  // counting sort
    std::vector<int64_t> next(static_cast<size_t>(past) + 1, 0);
    for (int64_t p = 0; p < count; ++p) ++next[static_cast<size_t>(places[p]) + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    for (int64_t p = 0; p < count; ++p) g.rows[static_cast<size_t>(next[static_cast<size_t>(places[p])]++)] = p;
  } else {
    std::iota(g.rows.begin(), g.rows.end(), 0);
    std::stable_sort(g.rows.begin(), g.rows.end(), [&](int64_t a, int64_t b) { return places[a] < places[b]; });
  }
  for (int64_t i = 0; i < count; ++i)
    if (i == 0 || places[g.rows[static_cast<size_t>(i)]] != places[g.rows[static_cast<size_t>(i) - 1]])
      g.starts.push_back(i);
  g.starts.push_back(count);
  return g;
}

/// Adds rows first..last to one place, a piece of n columns, in float32.
struct Adder {
  DType dtype;
  float alpha;
  bool far;  // rows come from memory, not from a cache
  cpu::Converter widen{dtype, float32}, narrow{float32, dtype};

  void add(float* sums, const float* from, int64_t n) const {
    if (alpha == 1) {
      for (int64_t j = 0; j < n; ++j) sums[j] += from[j];
    } else {
      for (int64_t j = 0; j < n; ++j) sums[j] += alpha * from[j];
    }
  }
  /// `after`: the row that follows the last one. Each next row is asked for while one is added: rows come from
  /// anywhere, so the hardware does not foresee them.
  void operator()(char* table, const char* dense, int64_t stride, const int64_t* first, const int64_t* last,
                  const char* after, int64_t n) const {
    const auto next = [&] { return first + 1 != last ? dense + first[1] * stride : after; };
    if (dtype == float32) {
      for (; first != last; ++first) {
        ask_for(next(), n);
        add(reinterpret_cast<float*>(table), reinterpret_cast<const float*>(dense + *first * stride), n);
      }
      return;
    }
    float sums[kPiece], from[kPiece];
    widen(table, sums, static_cast<size_t>(n));
    for (; first != last; ++first) {
      ask_for(next(), n);
      widen(dense + *first * stride, from, static_cast<size_t>(n));
      add(sums, from, n);
    }
    narrow(sums, table, static_cast<size_t>(n));
  }
  void ask_for(const char* row, int64_t n) const {
    for (int64_t at = 0; far && at < n * static_cast<int64_t>(item_size(dtype)); at += 64) __builtin_prefetch(row + at);
  }
};

}  // namespace

bool add_rows_grouped(const RowMove& m, DType dtype, const Scalar& alpha) {
  const int64_t columns = product(m.inner), outer = product(m.outer), item = static_cast<int64_t>(item_size(dtype));
  if (!is_float(dtype) || (item != 2 && dtype != float32) || columns < 32) return false;
  if (!is_dense(m.inner, m.table_inner) || !is_dense(m.inner, m.dense_inner)) return false;
  if (outer * m.count == 0) return true;
  const Groups groups = group_by_place(m.places, m.count);
  const auto places = static_cast<int64_t>(groups.starts.size()) - 1;
  const int64_t pieces = (columns + kPiece - 1) / kPiece;
  const Adder add{dtype, static_cast<float>(alpha.as_double()), outer * m.count * columns * item >= kFar};
  const int64_t bytes = 8 * std::min(columns, kPiece) * (m.count / places + 1);
  const int64_t* end = groups.rows.data() + m.count;
  cpu::parallel_for(outer * pieces * places, cpu::grain_of(bytes), [&](int64_t begin, int64_t stop) {
    for (int64_t i = begin; i < stop; ++i) {
      const int64_t c = i % pieces, g = i / pieces % places, o = i / pieces / places;
      const int64_t* rows = groups.rows.data() + groups.starts[static_cast<size_t>(g)];
      const int64_t* past = groups.rows.data() + groups.starts[static_cast<size_t>(g) + 1];
      const int64_t to = offset_at(o, m.outer, m.table_outer) + m.places[*rows] * m.place_stride + c * kPiece;
      const int64_t from = offset_at(o, m.outer, m.dense_outer) + c * kPiece;
      // This place's next piece, or the next place's first one.
      const int64_t following = c + 1 < pieces ? *rows : past == end ? *rows : *past;
      const int64_t at = following * m.dense_stride + (c + 1 < pieces ? from + kPiece : from - c * kPiece);
      const char* after = static_cast<const char*>(m.dense) + at * item;
      add(static_cast<char*>(m.table) + to * item, static_cast<const char*>(m.dense) + from * item,
          m.dense_stride * item, rows, past, after, std::min(kPiece, columns - c * kPiece));
    }
  });
  return true;
}

}  // namespace tenor::index
