// Selection in rows: topk, and one element of the order for kthvalue and median.
#include "src/ops/sort/rows.h"
#include "src/ops/sort/smallest.h"

namespace tenor::cpu {
namespace {

/// Calls fn<K, P>() with a packing that holds whole keys: selection compares packed values and nothing else.
template <class F>
void visit_select(size_t width, int64_t n, F&& fn) {
  visit_key(width, [&]<class K>() {
    if (sizeof(K) == 8 || n > int64_t{UINT32_MAX}) return fn.template operator()<K, Packed128>();
    if constexpr (sizeof(K) < 8) fn.template operator()<K, Packed64>();
  });
}

template <class K, class P>
void topk_side_by_side(const RowOrder& problem, int64_t k) {
  each_row<K>(problem, [&] { return Scratch<P>(Smallest<P>::capacity(k)); }, [&](const Row<K>& row, const Scratch<P>& scratch) {
    Smallest<P> best(scratch.data(), k);
    best.scan(row.x, problem.strides[0], 0, problem.n, problem.code);
    row.write_packed(best.sorted(), 0, k);
  });
}

/// Every thread finds the k best of its part of the row; the best of those are the row's.
template <class K, class P>
void topk_shared(const RowOrder& problem, int64_t k) {
  const int64_t n = problem.n, parts = std::min<int64_t>(num_threads(), n / kPart), capacity = Smallest<P>::capacity(k);
  const Scratch<P> scratch((parts + 1) * capacity);
  RowCursor cursor(problem.rows, 0);
  for (int64_t r = 0; r < problem.rows.count; ++r, cursor.next()) {
    const Row<K> row(problem, cursor);
    parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        Smallest<P> best(scratch.data() + part * capacity, k);
        best.scan(row.x, problem.strides[0], n * part / parts, n * (part + 1) / parts, problem.code);
        best.sorted();
      }
    });
    Smallest<P> best(scratch.data() + parts * capacity, k);
    for (int64_t part = 0; part < parts; ++part)
      for (int64_t i = 0; i < k; ++i) best.push(scratch.data()[part * capacity + i]);
    row.write_packed(best.sorted(), 0, k);
  }
}

template <class K, class P>
void select_row(const Row<K>& row, int64_t k, bool nan_wins, P* packed) {
  const RowOrder& problem = row.problem;
  load_packed(row.x, problem.strides[0], 0, problem.n, problem.code, packed);
  if (nan_wins && problem.code.kind == KeyKind::kFloat)
    for (int64_t i = 0; i < problem.n; ++i)
      if (key_of(packed[i]) == static_cast<K>(~K(0))) return row.write_packed(packed + i, 0, 1);
  std::nth_element(packed, packed + k, packed + problem.n);
  row.write_packed(packed + k, 0, 1);
}

}  // namespace

void topk_rows(const RowOrder& problem, int64_t k) {
  // A sort costs a handful of passes; selection one, and then k log(n / k) insertions.
  if (problem.n <= static_cast<int64_t>(kRanked) || k > problem.n / 8) return sort_rows(problem, k);
  if (problem.rows.count == 0 || k == 0) return;
  visit_select(problem.width, problem.n, [&]<class K, class P>() {
    return shares_rows(problem) && k <= kPart / 2 ? topk_shared<K, P>(problem, k) : topk_side_by_side<K, P>(problem, k);
  });
}

void select_rows(const RowOrder& problem, int64_t k, bool nan_wins) {
  if (problem.rows.count == 0) return;
  visit_select(problem.width, problem.n, [&]<class K, class P>() {
    each_row<K>(problem, [&] { return Scratch<P>(problem.n); }, [&](const Row<K>& row, const Scratch<P>& scratch) {
      select_row<K, P>(row, k, nan_wins, scratch.data());
    });
  });
}

}  // namespace tenor::cpu
