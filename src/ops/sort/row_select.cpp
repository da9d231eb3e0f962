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
  each_row<K>(
      problem, k, [&] { return Scratch<P>(Smallest<P>::capacity(k)); },
      [&](const Row<K>& row, const Scratch<P>& scratch) {
        Smallest<P> best(scratch.data(), k);
        best.scan(row.x, row.x_stride, 0, problem.n, problem.code);
        row.write_packed(best.in_order(), 0, k);
      });
}

/// Every thread finds the k best of its part of the row; the best of those are the row's.
template <class K, class P>
void topk_shared(const RowOrder& problem, int64_t k) {
  const int64_t n = problem.n, parts = std::min<int64_t>(num_threads(), n / kPart), capacity = Smallest<P>::capacity(k);
  const Scratch<P> scratch((parts + 1) * capacity);
  RowCursor cursor(problem.rows, 0);
  for (int64_t r = 0; r < problem.rows.count; ++r, cursor.next()) {
    const Row<K> row = Row<K>::at(problem, cursor);
    parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        Smallest<P> best(scratch.data() + part * capacity, k);
        best.scan(row.x, row.x_stride, n * part / parts, n * (part + 1) / parts, problem.code);
        best.any_order();
      }
    });
    Smallest<P> best(scratch.data() + parts * capacity, k);
    for (int64_t part = 0; part < parts; ++part)
      for (int64_t i = 0; i < k; ++i) best.push(scratch.data()[part * capacity + i]);
    row.write_packed(best.in_order(), 0, k);
  }
}

/// The place of the row's first NaN, -1 for none: NaN alone have the greatest key, the least of the opposite order.
template <class K>
int64_t first_nan(const K* x, int64_t stride, int64_t n, KeyCode code) {
  if (code.kind != KeyKind::kFloat) return -1;
  code.descending = true;
  K block[kKeyBlock] = {}, keys[kKeyBlock];
  uint32_t places[kKeyBlock];
  for (int64_t done = 0; done < n; done += kKeyBlock) {
    const int64_t count = std::min(kKeyBlock, n - done);
    if (find_below(side_by_side(x, stride, done, count, block), static_cast<size_t>(count), code, K(1), places, keys) >
        0)
      return done + places[0];
  }
  return -1;
}

/// Element k of the order, from the few elements with keys in a range where it probably lies; nothing when it does not.
template <class K, class P>
const P* select_sampled(const K* x, int64_t stride, int64_t n, KeyCode code, int64_t k, P* packed) {
  const Sample<K> sample(x, stride, 0, n, code);
  const K low = sample.low(k, 2.5), high = sample.high(k, 2.5);
  K block[kKeyBlock] = {}, keys[kKeyBlock];
  uint32_t places[kKeyBlock];
  size_t lower = 0;
  int64_t size = 0;
  for (int64_t done = 0; done < n; done += kKeyBlock) {
    const int64_t count = std::min(kKeyBlock, n - done);
    const K* bits = side_by_side(x, stride, done, count, block);
    const size_t found = find_between(bits, static_cast<size_t>(count), code, low, high, places, keys, &lower);
    for (size_t i = 0; i < found; ++i) packed[size++] = pack<P>(keys[i], done + places[i]);
  }
  const int64_t rank = k - static_cast<int64_t>(lower);
  if (rank < 0 || rank >= size) return nullptr;
  std::nth_element(packed, packed + rank, packed + size);
  return packed + rank;
}

template <class K, class P>
void select_row(const Row<K>& row, int64_t k, bool nan_wins, P* packed) {
  const RowOrder& problem = row.problem;
  const int64_t n = problem.n, stride = row.x_stride;
  if (const int64_t nan = nan_wins ? first_nan(row.x, stride, n, problem.code) : -1; nan >= 0)
    return row.write(0, 1, [&](int64_t) { return nan; });
  if (n >= kSampled)
    if (const P* chosen = select_sampled(row.x, stride, n, problem.code, k, packed))
      return row.write_packed(chosen, 0, 1);
  load_packed(row.x, stride, 0, n, problem.code, packed);
  std::nth_element(packed, packed + k, packed + n);
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
    each_row<K>(
        problem, 1, [&] { return Scratch<P>(problem.n); },
        [&](const Row<K>& row, const Scratch<P>& scratch) { select_row<K, P>(row, k, nan_wins, scratch.data()); });
  });
}

}  // namespace tenor::cpu
